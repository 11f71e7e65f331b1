// SPDX-License-Identifier: Apache-2.0

// Package exactjson decodes JSON without changing its numbers. encoding/json makes a float64 of a
// number in a value of type any, which turns 9007199254740993 into 9007199254740992.
package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// errMore says that a text holds more than one value.
var errMore = errors.New("there is more behind its end")

// Decode decodes the one JSON value that a text is, as json.Unmarshal does, except that a number in a
// value of type any becomes a json.Number, which is encoded as it was written.
func Decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF // The text is empty.
		}
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errMore
	}
	return nil
}
