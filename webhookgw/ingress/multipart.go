// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

var (
	errMultipart  = fmt.Errorf("%w: not a multipart body", fields.ErrInvalid)
	errPartHeader = fmt.Errorf("%w: the header of a part has more than %d KiB", fields.ErrInvalid, maxPartHeader>>10)
	errPartName   = fmt.Errorf("%w: a part has no name", fields.ErrInvalid)
	errPartText   = fmt.Errorf("%w: a part is not text in UTF-8", fields.ErrInvalid)
	errReserved   = fmt.Errorf("%w: in a request with files, fields must not have the names `files` and `file_issues`", fields.ErrInvalid)
)

// multipartReader reads a multipart body while it arrives: texts as pairs of fields, files as attachments.
type multipartReader struct {
	in    *boundedReader
	body  *multipart.Reader
	files *attachments
	sum   hash.Hash // digest of the parts without the boundaries, or nil
	out   bytes.Buffer
	to    *fields.Writer
	text  io.Reader // the current part
	err   error     // the final error of the reader

	reserved bool // a field has a name that is reserved for files
	piece    []byte
}

func newMultipartReader(in io.Reader, boundary string, files *attachments, sum hash.Hash) *multipartReader {
	p := &multipartReader{in: &boundedReader{in: in, left: -1}, files: files, sum: sum, piece: make([]byte, formPiece)}
	p.body = multipart.NewReader(p.in, boundary)
	p.to = fields.NewWriter(&p.out)
	return p
}

// Read implements io.Reader. Errors in the body are Problems.
func (p *multipartReader) Read(to []byte) (int, error) {
	for p.out.Len() == 0 {
		if p.err != nil {
			return 0, p.err
		}
		if p.err = problemOf(p.readPiece()); p.in.err != nil && !errors.Is(p.in.err, io.EOF) {
			p.err = problemOf(p.in.err) // even if it led to another error
		}
	}
	return p.out.Read(to)
}

// readPiece reads the next piece of a text, or starts the next part.
func (p *multipartReader) readPiece() error {
	if p.text == nil {
		return p.nextPart()
	}
	n, err := p.text.Read(p.piece)
	if _, wrong := p.to.Write(p.piece[:n]); wrong != nil {
		return wrong
	}
	p.hashBytes(p.piece[:n])
	if err == nil {
		return nil
	}
	p.text = nil
	if !errors.Is(err, io.EOF) {
		return errMultipart
	}
	return p.to.End()
}

// nextPart starts a part. It reads a file completely.
func (p *multipartReader) nextPart() error {
	p.in.left = maxPartHeader
	part, err := p.body.NextRawPart()
	p.in.left = -1
	switch {
	case err == io.EOF: //nolint:errorlint // a wrapped io.EOF means that the body is incomplete
		if p.reserved && len(p.files.files) > 0 {
			return errReserved
		}
		p.to.Close()
		return io.EOF
	case err != nil:
		return errMultipart
	}
	disposition, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := parameters["name"]
	switch {
	case err != nil || disposition != "form-data" || name == "":
		return errPartName
	case len(name) > fields.MaxKey:
		return fields.ErrKey
	}
	data, coded := decodePart(part, part.Header)
	if _, ok := parameters["filename"]; ok {
		return p.readFile(part, name, data, coded)
	}
	_, kind, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
	if !coded || err == nil && !httpserver.IsUTF8(kind["charset"]) {
		return errPartText
	}
	p.reserved = p.reserved || name == "files" || name == "file_issues"
	p.hashFrame("text", name)
	p.text = data
	return p.to.Begin([]byte(name))
}

// decodePart returns the decoded content of a part, and whether its encoding is known.
func decodePart(part io.Reader, header textproto.MIMEHeader) (io.Reader, bool) {
	switch strings.ToLower(header.Get("Content-Transfer-Encoding")) {
	case "", "7bit", "8bit", "binary":
		return part, true
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, part), true
	}
	return part, false
}

// readFile handles a part with a file. A part without a file name and content is a form field without a
// selected file.
func (p *multipartReader) readFile(raw *multipart.Part, field string, data io.Reader, coded bool) error {
	name, declared := raw.FileName(), raw.Header.Get("Content-Type")
	first := make([]byte, 1)
	if n, err := io.ReadFull(data, first); name == "" && n == 0 && errors.Is(err, io.EOF) {
		return nil
	} else if data = io.MultiReader(bytes.NewReader(first[:n]), failingReader{err}, data); !coded {
		data = failingReader{errEncoding}
	}
	p.hashFrame("file", field, name, declared)
	number, err := p.files.addFile(field, &partData{p, data, raw})
	if err != nil {
		return err
	}
	p.files.describe(number, name, declared)
	return nil
}

// failingReader returns its error after the last byte, except io.EOF.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) {
	if f.err == nil || errors.Is(f.err, io.ErrUnexpectedEOF) {
		return 0, io.EOF
	}
	return 0, f.err
}

// partData reads the bytes of a file and hashes them.
type partData struct {
	parts *multipartReader
	data  io.Reader
	raw   io.Reader // the encoded bytes
}

func (d *partData) Read(to []byte) (int, error) {
	n, err := d.data.Read(to)
	d.parts.hashBytes(to[:n])
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if _, broken := io.Copy(io.Discard, d.raw); broken != nil { // read the rest of the part
		return n, errMultipart
	}
	return n, errEncoding
}

// hashFrame hashes the header of a part.
func (p *multipartReader) hashFrame(texts ...string) {
	for _, text := range texts {
		p.hashBytes(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) //nolint:gosec // the length of a header
		p.hashBytes([]byte(text))
	}
}

func (p *multipartReader) hashBytes(piece []byte) {
	if p.sum != nil {
		_, _ = p.sum.Write(piece) // never fails
	}
}

// boundedReader reads a limited number of bytes, or all if left is negative, and keeps its error.
type boundedReader struct {
	in   io.Reader
	left int
	err  error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.left == 0 {
		b.err = errPartHeader
		return 0, b.err
	}
	if b.left > 0 {
		p = p[:min(len(p), b.left)]
	}
	n, err := b.in.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	b.err = err
	return n, err
}
