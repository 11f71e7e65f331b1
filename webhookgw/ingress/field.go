// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// fieldScanner finds the text of one top-level field of a JSON object in a stream. Its memory does not
// grow with the object. If a name occurs several times, the last one counts, as with encoding/json.
type fieldScanner struct {
	name  string
	json  *jsonscan.Stream
	depth int
	// wanted means that the next value is that of the field. inside means that its text is being
	// read.
	wanted, inside, escaped bool
	raw                     []byte // as written, with its opening quote
}

// newFieldScanner finds a field with a name of at most ten ASCII characters.
func newFieldScanner(name string) *fieldScanner {
	f := &fieldScanner{name: name}
	f.json = jsonscan.NewStream(f.observeToken)
	return f
}

// valueText returns the text of the field, or "" if it is missing or longer than a key.
func (f *fieldScanner) valueText() string {
	if f.json.Close() != nil || len(f.raw) == 0 || len(f.raw) > maxFieldText {
		return ""
	}
	return decodeString(f.raw)
}

// maxFieldText is the longest text, with escapes, that can be a key. One more byte is kept to
// detect longer texts.
const maxFieldText = len(`"`) + len(`\u0000`)*maxIdempotencyKey

func (f *fieldScanner) observeToken(token jsonscan.Token) {
	switch token.Kind {
	case jsonscan.Key:
		f.wanted = f.depth == 1 && token.Is(f.name)
	case jsonscan.OpenObject, jsonscan.OpenList:
		if f.depth++; f.depth == 1 && token.Kind == jsonscan.OpenList {
			f.depth++ // fields in a list do not count
		}
	case jsonscan.CloseObject, jsonscan.CloseList:
		f.depth--
	case jsonscan.Scalar:
	}
}

// Write reads the next part. It returns an error of jsonscan if the input is no JSON.
func (f *fieldScanner) Write(piece []byte) (int, error) {
	for rest := piece; len(rest) > 0; {
		n := 1
		if !f.wanted && !f.inside {
			if n = bytes.IndexByte(rest, '"') + 1; n == 0 {
				n = len(rest)
			}
		}
		if n == 1 {
			f.observeByte(rest[0])
		}
		if _, err := f.json.Write(rest[:n]); err != nil {
			return len(piece) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(piece), nil
}

// observeByte reads a byte of the field's value, or before it.
func (f *fieldScanner) observeByte(c byte) {
	switch {
	case f.inside && c == '"' && !f.escaped:
		f.inside = false
	case f.inside:
		if f.escaped = !f.escaped && c == '\\'; len(f.raw) <= maxFieldText {
			f.raw = append(f.raw, c)
		}
	case !f.wanted:
	case c == ' ', c == '\t', c == '\r', c == '\n', c == ':':
	default:
		f.wanted, f.raw = false, f.raw[:0]
		if f.inside = c == '"'; f.inside {
			f.raw = append(f.raw, c)
		}
	}
}
