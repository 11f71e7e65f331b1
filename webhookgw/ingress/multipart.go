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
	errMultipart  = fmt.Errorf("%w: it is no multipart body", fields.ErrInvalid)
	errPartHeader = fmt.Errorf("%w: the header of a part has more than %d KiB", fields.ErrInvalid, maxPartHeader>>10)
	errPartName   = fmt.Errorf("%w: a part has no name", fields.ErrInvalid)
	errPartText   = fmt.Errorf("%w: a part is not text in UTF-8", fields.ErrInvalid)
	errReserved   = fmt.Errorf("%w: `files` and `file_issues` are no names of fields where there are files", fields.ErrInvalid)
)

// parts reads a multipart body while it comes in: its texts as pairs of fields, its files
// as attachments.
type parts struct {
	in    *bounded
	body  *multipart.Reader
	files *attachments
	sum   hash.Hash // of what the parts say, whatever stands between them; or nil
	out   bytes.Buffer
	to    *fields.Writer
	text  io.Reader // of the part that is being read
	err   error     // with which reading ends

	reserved bool // a field has a name that is wanted for files
	piece    []byte
}

func newParts(in io.Reader, boundary string, files *attachments, sum hash.Hash) *parts {
	p := &parts{in: &bounded{in: in, left: -1}, files: files, sum: sum, piece: make([]byte, formPiece)}
	p.body = multipart.NewReader(p.in, boundary)
	p.to = fields.NewWriter(&p.out)
	return p
}

// Read implements io.Reader. An error of what the body is like is a Problem.
func (p *parts) Read(to []byte) (int, error) {
	for p.out.Len() == 0 {
		if p.err != nil {
			return 0, p.err
		}
		if p.err = problemOf(p.more()); p.in.err != nil && !errors.Is(p.in.err, io.EOF) {
			p.err = problemOf(p.in.err) // whatever was made of it
		}
	}
	return p.out.Read(to)
}

// more reads a piece of a text, or begins the next part.
func (p *parts) more() error {
	if p.text == nil {
		return p.next()
	}
	n, err := p.text.Read(p.piece)
	if _, wrong := p.to.Write(p.piece[:n]); wrong != nil {
		return wrong
	}
	p.hash(p.piece[:n])
	if err == nil {
		return nil
	}
	p.text = nil
	if !errors.Is(err, io.EOF) {
		return errMultipart
	}
	return p.to.End()
}

// next begins a part. A file is read whole.
func (p *parts) next() error {
	p.in.left = maxPartHeader
	part, err := p.body.NextRawPart()
	p.in.left = -1
	switch {
	case err == io.EOF: //nolint:errorlint // wrapped, it is that of a body which breaks off
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
	data, coded := decoded(part, part.Header)
	if _, ok := parameters["filename"]; ok {
		return p.file(part, name, data, coded)
	}
	_, kind, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
	if !coded || err == nil && !httpserver.IsUTF8(kind["charset"]) {
		return errPartText
	}
	p.reserved = p.reserved || name == "files" || name == "file_issues"
	p.frame("text", name)
	p.text = data
	return p.to.Begin([]byte(name))
}

// decoded is what a part says, and whether it is encoded as is known.
func decoded(part io.Reader, header textproto.MIMEHeader) (io.Reader, bool) {
	switch strings.ToLower(header.Get("Content-Transfer-Encoding")) {
	case "", "7bit", "8bit", "binary":
		return part, true
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, part), true
	}
	return part, false
}

// file takes a part with a file. One without a name and without bytes is the field of a form
// in which no file was chosen.
func (p *parts) file(raw *multipart.Part, field string, data io.Reader, coded bool) error {
	name, declared := raw.FileName(), raw.Header.Get("Content-Type")
	first := make([]byte, 1)
	if n, err := io.ReadFull(data, first); name == "" && n == 0 && errors.Is(err, io.EOF) {
		return nil
	} else if data = io.MultiReader(bytes.NewReader(first[:n]), failing{err}, data); !coded {
		data = failing{errEncoding}
	}
	p.frame("file", field, name, declared)
	number, err := p.files.add(field, &partData{p, data, raw})
	if err != nil {
		return err
	}
	p.files.describe(number, name, declared)
	return nil
}

// failing says an error, unless it is none or the end.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) {
	if f.err == nil || errors.Is(f.err, io.ErrUnexpectedEOF) {
		return 0, io.EOF
	}
	return 0, f.err
}

// partData reads the bytes of a file, which are hashed.
type partData struct {
	parts *parts
	data  io.Reader
	raw   io.Reader // as it came
}

// Read implements io.Reader.
func (d *partData) Read(to []byte) (int, error) {
	n, err := d.data.Read(to)
	d.parts.hash(to[:n])
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if _, broken := io.Copy(io.Discard, d.raw); broken != nil { // what comes after it is read on
		return n, errMultipart
	}
	return n, errEncoding
}

// frame hashes what stands before the bytes of a part.
func (p *parts) frame(texts ...string) {
	for _, text := range texts {
		p.hash(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) //nolint:gosec // a header's
		p.hash([]byte(text))
	}
}

func (p *parts) hash(piece []byte) {
	if p.sum != nil {
		_, _ = p.sum.Write(piece) // which does not fail
	}
}

// bounded reads so many bytes, unless left is negative, and keeps its error.
type bounded struct {
	in   io.Reader
	left int
	err  error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
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
