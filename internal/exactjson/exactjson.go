// SPDX-License-Identifier: Apache-2.0

// Package exactjson decodes JSON without changing its numbers. encoding/json decodes a number in a
// value of type any to a float64, which turns 9007199254740993 into 9007199254740992.
package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// errMore means that a text contains more than one value.
var errMore = errors.New("unexpected data after the value")

// Decode decodes a text with one JSON value, like json.Unmarshal. A number in a value of type any
// becomes a json.Number, which is encoded unchanged.
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
