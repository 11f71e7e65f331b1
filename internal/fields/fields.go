// SPDX-License-Identifier: Apache-2.0

// Package fields converts forms and query strings to pairs of a key and a text. While they arrive,
// they are written as a JSON list of pairs, which needs no memory of earlier pairs. When they are
// complete, they are read as a JSON object.
package fields

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	// ContentType is the type of pairs, [["key", "text"], …], as a Writer writes them.
	ContentType = "application/vnd.agentplatform.fields+json"
	// MaxFields limits the pairs, MaxKey the bytes of a key.
	MaxFields = 1000
	MaxKey    = 255
)

// ErrInvalid is an error of fields. Its text is safe to show.
var ErrInvalid = errors.New("invalid fields")

// Errors of a Writer. Each wraps ErrInvalid.
var (
	ErrTooMany  = fmt.Errorf("%w: more than %d fields", ErrInvalid, MaxFields)
	ErrKey      = fmt.Errorf("%w: the name of a field has more than %d bytes", ErrInvalid, MaxKey)
	ErrEncoding = fmt.Errorf("%w: the name or the value of a field is not UTF-8", ErrInvalid)
)

// Writer writes pairs in pieces of text. It buffers at most one character.
type Writer struct {
	out   *bytes.Buffer
	count int
	rest  []byte // first bytes of a character
}

// NewWriter returns a writer to out. The caller can empty out between calls.
func NewWriter(out *bytes.Buffer) *Writer {
	out.WriteByte('[')
	return &Writer{out: out}
}

// Begin begins a pair.
func (w *Writer) Begin(key []byte) error {
	switch {
	case w.count == MaxFields:
		return ErrTooMany
	case len(key) > MaxKey:
		return ErrKey
	}
	if w.count++; w.count > 1 {
		w.out.WriteByte(',')
	}
	w.out.WriteString(`["`)
	if _, err := w.Write(key); err != nil {
		return err
	}
	if len(w.rest) > 0 {
		return ErrEncoding
	}
	w.out.WriteString(`","`)
	return nil
}

// Write adds to the text of the current pair.
func (w *Writer) Write(piece []byte) (int, error) {
	n := len(piece)
	for len(w.rest) > 0 && len(piece) > 0 {
		w.rest, piece = append(w.rest, piece[0]), piece[1:]
		if utf8.FullRune(w.rest) {
			if r, _ := utf8.DecodeRune(w.rest); r == utf8.RuneError && !bytes.Equal(w.rest, []byte(string(utf8.RuneError))) {
				return 0, ErrEncoding
			}
			w.out.Write(w.rest)
			w.rest = w.rest[:0]
		}
	}
	plain := 0
	for i := 0; i < len(piece); {
		c := piece[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(piece[i:])
			if r == utf8.RuneError && size == 1 {
				if utf8.FullRune(piece[i:]) {
					return 0, ErrEncoding
				}
				w.rest = append(w.rest[:0], piece[i:]...)
				piece = piece[:i]
				break
			}
			i += size
			continue
		}
		if c < ' ' || c == '"' || c == '\\' {
			w.out.Write(piece[plain:i])
			w.escapeByte(c)
			plain = i + 1
		}
		i++
	}
	w.out.Write(piece[plain:])
	return n, nil
}

func (w *Writer) escapeByte(c byte) {
	switch c {
	case '"', '\\':
		w.out.WriteByte('\\')
		w.out.WriteByte(c)
	case '\n':
		w.out.WriteString(`\n`)
	case '\r':
		w.out.WriteString(`\r`)
	case '\t':
		w.out.WriteString(`\t`)
	default:
		fmt.Fprintf(w.out, `\u%04x`, c)
	}
}

// End ends the pair.
func (w *Writer) End() error {
	if len(w.rest) > 0 {
		return ErrEncoding
	}
	w.out.WriteString(`"]`)
	return nil
}

// Close ends the list.
func (w *Writer) Close() { w.out.WriteByte(']') }

// Object returns the JSON object for pairs, with keys in the order of their first occurrence. A key
// has its text, or the list of its texts if it occurs more than once. The object is not longer than
// the pairs.
func Object(pairs []byte) ([]byte, error) {
	var list [][2]json.RawMessage
	if err := json.Unmarshal(pairs, &list); err != nil {
		return nil, fmt.Errorf("reading fields: %w", err)
	}
	var keys []string
	texts := map[string][]json.RawMessage{}
	for _, pair := range list {
		key := string(pair[0])
		if _, known := texts[key]; !known {
			keys = append(keys, key)
		}
		texts[key] = append(texts[key], pair[1])
	}
	out := make([]byte, 0, len(pairs))
	out = append(out, '{')
	for i, key := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, key...), ':')
		if values := texts[key]; len(values) == 1 {
			out = append(out, values[0]...)
		} else {
			out = append(append(append(out, '['), bytes.Join(rawMessages(values), []byte(","))...), ']')
		}
	}
	return append(out, '}'), nil
}

func rawMessages(values []json.RawMessage) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}
