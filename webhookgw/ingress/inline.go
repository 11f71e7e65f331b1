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
	// jsonPiece is how many bytes of a JSON body are read at a time, and about how many are
	// passed on at a time.
	jsonPiece = 16 << 10
	// maxLabel is the most bytes of a file's name or type as JSON; the rest is cut.
	maxLabel = 6 * store.MaxFileName
)

// inline reads a JSON body while it comes in, without the bytes of the files that are in
// it: objects with `data` in a list `files`.
type inline struct {
	in    io.Reader
	text  *content
	files *attachments
	out   bytes.Buffer
	err   error // with which reading ends

	began  bool // the first piece was read
	buffer []byte
	piece  []byte // of the buffer, what is to be taken
	label  []byte // of a name or type, as JSON
	plain  []string
}

// inlines are those that were closed. Most bodies are short: making a buffer for each takes
// longer than reading it.
var inlines = sync.Pool{New: func() any { return &inline{text: newContent(), buffer: make([]byte, jsonPiece)} }}

// newInline begins to read a body. It is closed once neither it nor its text is used any more.
func newInline(in io.Reader, files *attachments) *inline {
	j := inlines.Get().(*inline) //nolint:forcetypeassert // as New makes them
	j.in, j.files, j.text.ended = in, files, j.ended
	return j
}

// close lets another body use the memory of this one.
func (j *inline) close() {
	j.text.reset()
	j.out.Reset()
	*j = inline{text: j.text, out: j.out, buffer: j.buffer, label: j.label[:0]}
	inlines.Put(j)
}

// ended takes an element of `files`. One without data is no attachment, unless others are.
func (j *inline) ended(e *element) {
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

// finish omits at the end of a body with attachments the elements that are none.
func (j *inline) finish() error {
	if len(j.files.files) == 0 {
		return nil
	}
	for _, name := range j.plain {
		if len(j.files.files) == store.MaxNamedFiles {
			return errManyFiles
		}
		j.files.files = append(j.files.files, store.File{Name: label(name), FieldName: "files", Reason: store.FileInvalidEncoding})
	}
	return nil
}

// Read implements io.Reader.
func (j *inline) Read(p []byte) (int, error) {
	for j.out.Len() == 0 || len(j.piece) > 0 && j.out.Len() < jsonPiece && j.err == nil {
		if j.err != nil {
			return 0, j.err
		}
		if j.err = j.more(); errors.Is(j.err, io.EOF) {
			if err := j.finish(); err != nil {
				j.err = err
			}
		}
	}
	return j.out.Read(p)
}

// byteOrderMark may stand before a text in UTF-8, and is no part of it.
const byteOrderMark = "\ufeff"

// fill reads the next piece where there is none. A byte order mark before the text is left out.
func (j *inline) fill() error {
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

// more takes what is up to the end of the next string, or a piece.
func (j *inline) more() error {
	if err := j.fill(); err != nil {
		return err
	}
	switch end := bytes.IndexByte(j.piece, '"'); {
	case j.text.wanted != nothing:
		return j.before()
	case end >= 0:
		j.pass(end + 1)
	default:
		j.pass(len(j.piece))
	}
	return nil
}

// pass takes so many bytes as they are.
func (j *inline) pass(n int) {
	_, _ = j.text.Write(j.piece[:n]) // never fails
	j.out.Write(j.piece[:n])
	j.piece = j.piece[n:]
}

// before takes the byte before a value that is wanted, or its first one.
func (j *inline) before() error {
	wanted, first := j.text.wanted, j.piece[0]
	j.pass(1)
	switch first {
	case ' ', '\t', '\r', '\n', ':':
		return nil
	}
	j.text.wanted = nothing
	switch {
	case first != '"': // no text
		return nil
	case wanted == fileData:
		return j.data()
	}
	return j.describe(wanted)
}

// data takes a file.
func (j *inline) data() error {
	element := j.text.file
	number, err := j.files.add("files", &encoded{body: j})
	if err != nil {
		return err
	}
	element.number = number
	j.out.WriteByte('"')
	return nil
}

// describe takes the name or the type of a file.
func (j *inline) describe(wanted value) error {
	j.label = append(j.label[:0], '"')
	for escaped := false; ; {
		if err := j.fill(); err != nil {
			return err
		}
		c := j.piece[0]
		j.pass(1)
		if c == '"' && !escaped || j.text.failed {
			break
		}
		if escaped = !escaped && c == '\\'; len(j.label) < maxLabel {
			j.label = append(j.label, c)
		}
	}
	text := unquoted(j.label)
	if wanted == fileName {
		j.text.file.name = text
	} else {
		j.text.file.declared = text
	}
	return nil
}

// unquoted is what a JSON string without its end says, which may be cut inside an escape.
func unquoted(begun []byte) (text string) {
	for cut := 0; cut < len(`\u0000`) && cut < len(begun); cut++ {
		if json.Unmarshal(append(bytes.Clone(begun[:len(begun)-cut]), '"'), &text) == nil {
			break
		}
	}
	return text
}

// encoded reads the base64 of a JSON string, up to its closing quote, and takes it from the
// body. Of what is no base64 it says errEncoding when it has read it whole.
type encoded struct {
	body    *inline
	escape  []byte
	quantum []byte // characters that are not decoded yet
	padded  bool
	wrong   bool
	ended   bool
	out     bytes.Buffer
}

// Read implements io.Reader.
func (e *encoded) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.ended {
			if e.wrong {
				return 0, errEncoding
			}
			return 0, io.EOF
		}
		if err := e.body.fill(); err != nil {
			if errors.Is(err, io.EOF) { // the text is no JSON, which is said at its end
				e.ended, e.wrong = true, true
				continue
			}
			return 0, err
		}
		e.take()
	}
	return e.out.Read(p)
}

// take takes the piece up to the closing quote.
func (e *encoded) take() {
	n := 0
	for ; n < len(e.body.piece) && !e.ended; n++ {
		e.step(e.body.piece[n])
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

func (e *encoded) step(c byte) {
	switch {
	case len(e.escape) > 0:
		e.escape = append(e.escape, c)
		switch {
		case e.escape[1] != 'u':
			e.escape = e.escape[:0]
			if c == '/' {
				e.add(c)
			} else if c != 'n' && c != 'r' {
				e.wrong = true
			}
		case len(e.escape) == len(`\u0000`):
			code, err := strconv.ParseUint(string(e.escape[2:]), 16, 16)
			e.escape = e.escape[:0]
			if err != nil || code > '~' {
				e.wrong = true
			} else {
				e.add(byte(code))
			}
		}
	case c == '\\':
		e.escape = append(e.escape, c)
	case c == '"':
		e.ended = true
	default:
		e.add(c)
	}
}

// add takes a character of the string; line breaks are none of base64's, and let through.
func (e *encoded) add(c byte) {
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
