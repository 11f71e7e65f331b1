// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// jsonPiece is the read size of a JSON body in bytes, and the approximate size of its output
	// parts.
	jsonPiece = 16 << 10
	// maxLabel limits the bytes of a file's name or type as JSON. Longer ones are truncated.
	maxLabel = 6 * store.MaxFileName
)

// inlineFiles reads a JSON body while it arrives, and extracts its files: objects with `data` in a list
// `files`.
type inlineFiles struct {
	in    io.Reader
	text  *contentScanner
	files *attachments
	out   bytes.Buffer
	err   error // the final error of the reader

	began  bool // the first part was read
	buffer []byte
	piece  []byte // the unprocessed part of the buffer
	label  []byte // a name or type as JSON, up to maxLabel
	// described is the field that label belongs to. escaped means that the next character is
	// escaped.
	described value
	escaped   bool
	plain     []string
}

// inlines has closed readers for reuse. Most bodies are short, and a new buffer takes longer than
// reading the body.
var inlines = sync.Pool{New: func() any { return &inlineFiles{text: newContentScanner(), buffer: make([]byte, jsonPiece)} }}

// newInlineFiles returns a reader for a body. Close it when neither the reader nor its text is used any
// more.
func newInlineFiles(in io.Reader, files *attachments) *inlineFiles {
	j := inlines.Get().(*inlineFiles) //nolint:forcetypeassert // the type of New
	j.in, j.files, j.text.ended = in, files, j.endElement
	return j
}

// close returns the reader to the pool.
func (j *inlineFiles) close() {
	j.text.reset()
	j.out.Reset()
	*j = inlineFiles{text: j.text, out: j.out, buffer: j.buffer, label: j.label[:0]}
	inlines.Put(j)
}

// endElement handles the end of an element of `files`. An element without data is no attachment, unless
// the list has attachments.
func (j *inlineFiles) endElement(e *element) {
	switch {
	case e != nil && e.number >= 0:
		j.files.describe(e.number, e.name, e.declared)
	case len(j.plain) > store.MaxNamedFiles:
	case e != nil:
		j.plain = append(j.plain, e.name)
	default:
		j.plain = append(j.plain, "")
	}
}

// finishBody omits the elements without data, if the body has attachments.
func (j *inlineFiles) finishBody() error {
	if len(j.files.files) == 0 {
		return nil
	}
	for _, name := range j.plain {
		if len(j.files.files) == store.MaxNamedFiles {
			return errManyFiles
		}
		j.files.files = append(j.files.files, store.File{Name: fileLabel(name), FieldName: "files", Reason: store.FileInvalidEncoding})
	}
	return nil
}

func (j *inlineFiles) Read(p []byte) (int, error) {
	for j.out.Len() == 0 || len(j.piece) > 0 && j.out.Len() < jsonPiece && j.err == nil {
		if j.err != nil {
			return 0, j.err
		}
		if j.err = j.readMore(); errors.Is(j.err, io.EOF) {
			if err := j.finishBody(); err != nil {
				j.err = err
			}
		}
	}
	return j.out.Read(p)
}

// byteOrderMark can precede a UTF-8 text and is not part of it.
const byteOrderMark = "\ufeff"

// fillBuffer reads the next part if the buffer is empty. It drops a leading byte order mark.
func (j *inlineFiles) fillBuffer() error {
	for len(j.piece) == 0 {
		n, err := j.in.Read(j.buffer)
		for !j.began && err == nil && n < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(j.buffer[:n])) {
			var more int
			more, err = j.in.Read(j.buffer[n:])
			n += more
		}
		j.piece = j.buffer[:n]
		if !j.began {
			j.began, j.piece = true, bytes.TrimPrefix(j.piece, []byte(byteOrderMark))
		}
		if n == 0 && err != nil {
			return err
		}
	}
	return nil
}

// readMore processes the input up to the end of the next string, or one part.
func (j *inlineFiles) readMore() error {
	if err := j.fillBuffer(); err != nil {
		return err
	}
	switch end := bytes.IndexByte(j.piece, '"'); {
	case j.described != nothing:
		j.recordLabel()
	case j.text.wanted != nothing:
		return j.readBefore()
	case end >= 0:
		j.passBytes(end + 1)
	default:
		j.passBytes(len(j.piece))
	}
	return nil
}

// passBytes copies n bytes unchanged.
func (j *inlineFiles) passBytes(n int) {
	_, _ = j.text.Write(j.piece[:n]) // never fails
	j.out.Write(j.piece[:n])
	j.piece = j.piece[n:]
}

// readBefore processes the byte before a wanted value, or the first byte of the value.
func (j *inlineFiles) readBefore() error {
	wanted, first := j.text.wanted, j.piece[0]
	j.passBytes(1)
	switch first {
	case ' ', '\t', '\r', '\n', ':':
		return nil
	}
	j.text.wanted = nothing
	switch {
	case first != '"': // not a string
		return nil
	case wanted == fileData:
		return j.readData()
	}
	j.describe(wanted)
	return nil
}

// readData extracts a file.
func (j *inlineFiles) readData() error {
	element := j.text.file
	number, err := j.files.addFile("files", &base64Text{body: j})
	if err != nil {
		return err
	}
	element.number = number
	j.out.WriteByte('"')
	return nil
}

// describe starts to record the name or the type of a file.
func (j *inlineFiles) describe(wanted value) {
	j.described, j.escaped, j.label = wanted, false, append(j.label[:0], '"')
}

// recordLabel records the next part of that name or type, up to its closing quote.
func (j *inlineFiles) recordLabel() {
	n, closed := 0, false
	for ; n < len(j.piece) && !closed; n++ {
		c := j.piece[n]
		if closed = c == '"' && !j.escaped; closed {
			continue
		}
		if j.escaped = !j.escaped && c == '\\'; len(j.label) < maxLabel {
			j.label = append(j.label, c)
		}
	}
	j.passBytes(n)
	if !closed && !j.text.failed {
		return
	}
	text := decodeString(j.label)
	if j.described == fileName {
		j.text.file.name = text
	} else {
		j.text.file.declared = text
	}
	j.described = nothing
}

// decodeString decodes a JSON string without its end, which may be cut inside an escape sequence.
func decodeString(begun []byte) (text string) {
	for cut := 0; cut < len(`\u0000`) && cut < len(begun); cut++ {
		if json.Unmarshal(append(bytes.Clone(begun[:len(begun)-cut]), '"'), &text) == nil {
			break
		}
	}
	return text
}

// base64Text reads the base64 data of a JSON string up to its closing quote, and removes it from the
// body. For invalid base64 it returns errEncoding after the whole string.
type base64Text struct {
	body    *inlineFiles
	escape  []byte
	quantum []byte // characters to decode
	padded  bool
	wrong   bool
	ended   bool
	out     bytes.Buffer
}

func (e *base64Text) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.ended {
			if e.wrong {
				return 0, errEncoding
			}
			return 0, io.EOF
		}
		if err := e.body.fillBuffer(); err != nil {
			if errors.Is(err, io.EOF) { // the text is no JSON, which is reported at its end
				e.ended, e.wrong = true, true
				continue
			}
			return 0, err
		}
		e.takePiece()
	}
	return e.out.Read(p)
}

// takePiece processes the part up to the closing quote.
func (e *base64Text) takePiece() {
	n := 0
	for ; n < len(e.body.piece) && !e.ended; n++ {
		e.decodeByte(e.body.piece[n])
	}
	_, _ = e.body.text.Write(e.body.piece[:n]) // never fails
	e.body.piece = e.body.piece[n:]
	whole := len(e.quantum) / 4 * 4
	if e.ended {
		whole = len(e.quantum)
	}
	if e.wrong = e.wrong || e.body.text.failed; !e.wrong {
		decoded, err := base64.RawStdEncoding.AppendDecode(nil, e.quantum[:whole])
		e.wrong = err != nil
		e.out.Write(decoded)
	}
	e.quantum = append(e.quantum[:0], e.quantum[whole:]...)
}

func (e *base64Text) decodeByte(c byte) {
	switch {
	case len(e.escape) > 0:
		e.escape = append(e.escape, c)
		switch {
		case e.escape[1] != 'u':
			e.escape = e.escape[:0]
			if c == '/' {
				e.addCharacter(c)
			} else if c != 'n' && c != 'r' {
				e.wrong = true
			}
		case len(e.escape) == len(`\u0000`):
			code, err := strconv.ParseUint(string(e.escape[2:]), 16, 16)
			e.escape = e.escape[:0]
			if err != nil || code > '~' {
				e.wrong = true
			} else {
				e.addCharacter(byte(code))
			}
		}
	case c == '\\':
		e.escape = append(e.escape, c)
	case c == '"':
		e.ended = true
	default:
		e.addCharacter(c)
	}
}

// addCharacter adds a character of the string. It ignores line breaks.
func (e *base64Text) addCharacter(c byte) {
	switch {
	case c == '\n' || c == '\r':
	case c == '=':
		e.padded = true
	case e.padded:
		e.wrong = true
	case c == '-':
		e.quantum = append(e.quantum, '+')
	case c == '_':
		e.quantum = append(e.quantum, '/')
	default:
		e.quantum = append(e.quantum, c)
	}
}
