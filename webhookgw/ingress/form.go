// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// formPiece is how many bytes of a form are read at a time.
const formPiece = 4 << 10

// errEscape says that a percent sign is not followed by two hexadecimal digits.
var errEscape = fmt.Errorf("%w: a %% is not followed by two hexadecimal digits", fields.ErrInvalid)

// form reads a form as browsers encode it, or a query string, as pairs of fields, while
// it comes in. A field of which the key is skipped is left out.
type form struct {
	in   io.Reader
	skip string
	out  bytes.Buffer
	to   *fields.Writer
	err  error // with which reading ends
	// json reads the body as if it were JSON; nil of a query.
	json *jsonBody

	key    []byte
	inText bool   // of a pair that was begun
	left   bool   // the pair is left out
	escape []byte // what came of %XX
}

func newForm(in io.Reader, skip string) *form {
	f := &form{in: in, skip: skip}
	f.to = fields.NewWriter(&f.out)
	return f
}

// Read implements io.Reader. An error of what the form is like is a Problem.
func (f *form) Read(p []byte) (int, error) {
	for f.out.Len() == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.err = problemOf(f.more())
	}
	return f.out.Read(p)
}

// more reads a piece; io.EOF says that it was the last.
func (f *form) more() error {
	piece := make([]byte, formPiece)
	n, err := f.in.Read(piece)
	if f.json != nil {
		f.json.write(piece[:n])
	}
	if wrong := f.take(piece[:n]); wrong != nil {
		return f.json.orProblem(wrong)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if wrong := f.end(); wrong != nil || f.json.whole() {
		return f.json.orProblem(wrong)
	}
	f.to.Close()
	return io.EOF
}

// jsonBody tells the body of a form from JSON that came without its Content-Type.
type jsonBody struct {
	text   *jsonscan.Stream
	began  bool // with an object or a list
	failed bool
}

func newJSONBody() *jsonBody {
	b := &jsonBody{}
	b.text = jsonscan.NewStream(func(token jsonscan.Token) {
		b.began = b.began || token.Kind == jsonscan.OpenObject || token.Kind == jsonscan.OpenList
	})
	return b
}

func (b *jsonBody) write(piece []byte) {
	if !b.failed {
		_, err := b.text.Write(piece)
		b.failed = err != nil
	}
}

// whole says at the end of a body whether it is a JSON object or list. A nil one is none.
func (b *jsonBody) whole() bool { return b != nil && b.began && b.text.Close() == nil }

// orProblem is what is wrong with a form, or that it is JSON so far.
func (b *jsonBody) orProblem(wrong error) error {
	if b != nil && b.began && !b.failed {
		return errJSONAsForm
	}
	return wrong
}

var errJSONAsForm = httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia,
	"The body is JSON, but its Content-Type is that of a form. Send it with the header `Content-Type: application/json`.")

func (f *form) take(piece []byte) error {
	for len(piece) > 0 {
		if n := unescaped(piece); n > 0 && len(f.escape) == 0 {
			if err := f.add(piece[:n]); err != nil {
				return err
			}
			piece = piece[n:]
			continue
		}
		if err := f.step(piece[0]); err != nil {
			return err
		}
		piece = piece[1:]
	}
	return nil
}

// unescaped is how many bytes stand for themselves.
func unescaped(piece []byte) int {
	if n := bytes.IndexAny(piece, "%+&="); n >= 0 {
		return n
	}
	return len(piece)
}

// step takes a byte that does not stand for itself, or belongs to an escape.
func (f *form) step(c byte) error {
	switch {
	case len(f.escape) > 0:
		if f.escape = append(f.escape, c); len(f.escape) < len("%XX") {
			return nil
		}
		c, ok := hexByte(f.escape[1], f.escape[2])
		if f.escape = f.escape[:0]; !ok {
			return errEscape
		}
		return f.add([]byte{c})
	case c == '%':
		f.escape = append(f.escape, c)
		return nil
	case c == '+':
		return f.add([]byte{' '})
	case c == '&':
		return f.end()
	case f.inText: // a = in a text
		return f.add([]byte{c})
	}
	return f.begin()
}

func hexByte(high, low byte) (byte, bool) {
	h, ok := hexDigit(high)
	l, too := hexDigit(low)
	return h<<4 | l, ok && too
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// add adds to the key or to the text.
func (f *form) add(piece []byte) error {
	switch {
	case !f.inText && len(f.key)+len(piece) > fields.MaxKey:
		return fields.ErrKey
	case !f.inText:
		f.key = append(f.key, piece...)
	case !f.left:
		_, err := f.to.Write(piece)
		return err
	}
	return nil
}

// begin begins a text.
func (f *form) begin() error {
	f.inText = true
	if f.left = f.skip != "" && string(f.key) == f.skip; f.left {
		return nil
	}
	return f.to.Begin(f.key)
}

// end ends a field. One without = has no text; where nothing stands there is none.
func (f *form) end() error {
	switch {
	case len(f.escape) > 0:
		return errEscape
	case !f.inText && len(f.key) == 0:
		return nil
	case !f.inText:
		if err := f.begin(); err != nil {
			return err
		}
	}
	left := f.left
	f.key, f.inText, f.left = f.key[:0], false, false
	if left {
		return nil
	}
	return f.to.End()
}

// problemOf makes a Problem of what is wrong with fields, and leaves other errors.
func problemOf(err error) error {
	if !errors.Is(err, fields.ErrInvalid) {
		return err
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidForm, "The request has "+err.Error()+".")
}
