// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// field finds the text of one field of a JSON object while that goes by: of the object
// itself, not of what stands in it. It takes no memory that grows with the object. Of
// several fields of one name the last counts, as with encoding/json.
type field struct {
	name  string
	json  *jsonscan.Stream
	depth int
	// wanted says that the next value is the field's; inside that its text goes by.
	wanted, inside, escaped bool
	raw                     []byte // as it is written, with its first quote
}

// newField finds a field whose name has at most ten characters of ASCII.
func newField(name string) *field {
	f := &field{name: name}
	f.json = jsonscan.NewStream(f.see)
	return f
}

// text is what the field says; "" where there is none, or it is longer than a key may be.
func (f *field) text() string {
	if f.json.Close() != nil || len(f.raw) == 0 || len(f.raw) > maxFieldText {
		return ""
	}
	return unquoted(f.raw)
}

// maxFieldText is the most bytes of a text that may be a key, however it is escaped; one more
// is kept, which says that there are more.
const maxFieldText = len(`"`) + len(`\u0000`)*maxIdempotencyKey

func (f *field) see(token jsonscan.Token) {
	switch token.Kind {
	case jsonscan.Key:
		f.wanted = f.depth == 1 && token.Is(f.name)
	case jsonscan.OpenObject, jsonscan.OpenList:
		if f.depth++; f.depth == 1 && token.Kind == jsonscan.OpenList {
			f.depth++ // what stands in a list is no field of ours
		}
	case jsonscan.CloseObject, jsonscan.CloseList:
		f.depth--
	case jsonscan.Scalar:
	}
}

// Write takes the next piece; an error of jsonscan of what is no JSON.
func (f *field) Write(piece []byte) (int, error) {
	for rest := piece; len(rest) > 0; {
		n := 1
		if !f.wanted && !f.inside {
			if n = bytes.IndexByte(rest, '"') + 1; n == 0 {
				n = len(rest)
			}
		}
		if n == 1 {
			f.step(rest[0])
		}
		if _, err := f.json.Write(rest[:n]); err != nil {
			return len(piece) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(piece), nil
}

// step takes a byte of the field's value, or one before it.
func (f *field) step(c byte) {
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
