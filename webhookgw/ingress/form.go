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

// formPiece is the read size of a form in bytes.
const formPiece = 4 << 10

// errEscape means that two hexadecimal digits are missing after a percent sign.
var errEscape = fmt.Errorf("%w: a %% is not followed by two hexadecimal digits", fields.ErrInvalid)

// formReader converts a form in URL encoding, or a query string, to pairs of fields while it arrives. It
// omits a field with the key skip.
type formReader struct {
	in   io.Reader
	skip string
	out  bytes.Buffer
	to   *fields.Writer
	err  error // the final error of the reader
	// json reads the body as if it were JSON. It is nil for a query.
	json *jsonBody

	key    []byte
	inText bool   // of a started pair
	left   bool   // the pair is omitted
	escape []byte // the bytes of %XX so far
}

func newFormReader(in io.Reader, skip string) *formReader {
	f := &formReader{in: in, skip: skip}
	f.to = fields.NewWriter(&f.out)
	return f
}

// Read implements io.Reader. Errors in the form are Problems.
func (f *formReader) Read(p []byte) (int, error) {
	for f.out.Len() == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.err = problemOf(f.readPiece())
	}
	return f.out.Read(p)
}

// readPiece reads the next part. io.EOF means that it was the last one.
func (f *formReader) readPiece() error {
	piece := make([]byte, formPiece)
	n, err := f.in.Read(piece)
	if f.json != nil {
		f.json.writePiece(piece[:n])
	}
	if wrong := f.takePiece(piece[:n]); wrong != nil {
		return f.json.orProblem(wrong)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if wrong := f.endField(); wrong != nil || f.json.isComplete() {
		return f.json.orProblem(wrong)
	}
	f.to.Close()
	return io.EOF
}

// jsonBody detects JSON that was sent without its Content-Type.
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

func (b *jsonBody) writePiece(piece []byte) {
	if !b.failed {
		_, err := b.text.Write(piece)
		b.failed = err != nil
	}
}

// isComplete reports at the end of a body whether it is a JSON object or list. It returns false for nil.
func (b *jsonBody) isComplete() bool { return b != nil && b.began && b.text.Close() == nil }

// orProblem returns an error in the form. If the body is JSON so far, it returns the error about
// the missing Content-Type.
func (b *jsonBody) orProblem(wrong error) error {
	if b != nil && b.began && !b.failed {
		return errJSONAsForm
	}
	return wrong
}

var errJSONAsForm = httpserver.NewProblem(http.StatusUnsupportedMediaType, httpserver.CodeUnsupportedMedia,
	"The body is JSON, but its Content-Type is that of a form. Send it with the header `Content-Type: application/json`.")

func (f *formReader) takePiece(piece []byte) error {
	for len(piece) > 0 {
		if n := plainLength(piece); n > 0 && len(f.escape) == 0 {
			if err := f.appendPiece(piece[:n]); err != nil {
				return err
			}
			piece = piece[n:]
			continue
		}
		if err := f.handleByte(piece[0]); err != nil {
			return err
		}
		piece = piece[1:]
	}
	return nil
}

// plainLength returns the number of bytes that need no decoding.
func plainLength(piece []byte) int {
	if n := bytes.IndexAny(piece, "%+&="); n >= 0 {
		return n
	}
	return len(piece)
}

// handleByte processes a byte with a special meaning, or a byte of an escape sequence.
func (f *formReader) handleByte(c byte) error {
	switch {
	case len(f.escape) > 0:
		if f.escape = append(f.escape, c); len(f.escape) < len("%XX") {
			return nil
		}
		c, ok := hexByte(f.escape[1], f.escape[2])
		if f.escape = f.escape[:0]; !ok {
			return errEscape
		}
		return f.appendPiece([]byte{c})
	case c == '%':
		f.escape = append(f.escape, c)
		return nil
	case c == '+':
		return f.appendPiece([]byte{' '})
	case c == '&':
		return f.endField()
	case f.inText: // a = in a text
		return f.appendPiece([]byte{c})
	}
	return f.beginText()
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

// appendPiece appends to the key or the text.
func (f *formReader) appendPiece(piece []byte) error {
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

// beginText starts a text.
func (f *formReader) beginText() error {
	f.inText = true
	if f.left = f.skip != "" && string(f.key) == f.skip; f.left {
		return nil
	}
	return f.to.Begin(f.key)
}

// endField ends a field. A field without = has no text, and an empty field is ignored.
func (f *formReader) endField() error {
	switch {
	case len(f.escape) > 0:
		return errEscape
	case !f.inText && len(f.key) == 0:
		return nil
	case !f.inText:
		if err := f.beginText(); err != nil {
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

// problemOf converts field errors into a Problem, and returns other errors unchanged.
func problemOf(err error) error {
	if !errors.Is(err, fields.ErrInvalid) {
		return err
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidForm, "The request has "+err.Error()+".")
}
