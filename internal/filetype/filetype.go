// SPDX-License-Identifier: Apache-2.0

// Package filetype decides the types of files by their content, as attachments of events and
// of test cases are judged alike.
package filetype

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

const (
	// sniffedBytes is how many bytes of a file its type is decided by.
	sniffedBytes = 32 << 10
	// oleBytes is how many bytes of its directory tell what an old Office file is.
	oleBytes = 4 << 10
)

const typePlain = "text/plain"

// fileTypes are the types of files that are taken, each with the one that the model is told.
var fileTypes = map[string]string{}

func init() { //nolint:gochecknoinits // a table that is made of others
	for _, t := range []string{
		"image/jpeg", "image/png", "image/gif", "image/webp", "image/heic", "image/heic-sequence", "image/heif", "image/heif-sequence",
		"application/pdf", "application/epub+zip", "application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation",
		"application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text-template",
		"application/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet-template",
		"application/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation-template",
		"application/vnd.oasis.opendocument.graphics", "application/vnd.oasis.opendocument.graphics-template",
		"application/vnd.oasis.opendocument.formula", "application/vnd.oasis.opendocument.chart",
		typePlain, "text/html", "text/markdown", "text/csv", "text/tab-separated-values", "application/json",
	} {
		fileTypes[t] = t
	}
	mimetype.SetLimit(sniffedBytes)
	fileTypes["text/rtf"], fileTypes["text/xml"] = "application/rtf", "application/xml"
}

// narrowings are the types that a text may be declared as, for its content does not tell.
var narrowings = []string{"text/markdown", "text/csv", "text/tab-separated-values", "text/html", "application/json", "application/xml"}

// declaredAs are other names of these types, and the endings of their files.
var declaredAs = map[string]string{
	"text/x-markdown": "text/markdown", "text/xml": "application/xml", "text/tsv": "text/tab-separated-values",
	".md": "text/markdown", ".markdown": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
}

// Type decides the type of a file by its content while it is read.
type Type struct {
	found string // "" of one that is not taken
	ole   *oleDirectory
}

// Sniff looks at the beginning of a file; the reader has all of it.
func Sniff(data io.Reader) (*Type, io.Reader, error) {
	head := make([]byte, sniffedBytes)
	n, err := io.ReadFull(data, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, err
	}
	head = head[:n]
	t := &Type{}
	found := mimetype.Detect(head)
	if bytes.HasPrefix(head, oleMagic) {
		t.ole = newOLEDirectory(head)
	} else {
		for m := found; m != nil && t.found == ""; m = m.Parent() {
			kind, _, _ := strings.Cut(m.String(), ";")
			t.found = fileTypes[kind]
		}
	}
	return t, io.MultiReader(bytes.NewReader(head), data), nil
}

// Write takes the next bytes of the file.
func (t *Type) Write(p []byte) (int, error) {
	if t.ole != nil {
		t.ole.take(p)
	}
	return len(p), nil
}

// MayBeTaken says whether the file is of a type that is taken, as far as its beginning tells.
func (t *Type) MayBeTaken() bool { return t.ole != nil || t.found != "" }

// Kind is the type at the end of the file, "" of one that is not taken.
func (t *Type) Kind() string {
	if t.ole == nil {
		return t.found
	}
	return t.ole.kind()
}

// Narrowed is a file's type where it is declared as a narrower one, or has such an ending: a
// text may be Markdown, and nothing else may be what it is not.
func Narrowed(found, declared, name string) string {
	if found != typePlain {
		return found
	}
	kind, _, err := mime.ParseMediaType(declared)
	if err != nil || kind == "application/octet-stream" || kind == typePlain {
		kind = strings.ToLower(path.Ext(name))
	}
	if other, ok := declaredAs[kind]; ok {
		kind = other
	}
	if slices.Contains(narrowings, kind) {
		return kind
	}
	return found
}

var oleMagic = []byte{0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1}

// oleDirectory picks the directory out of an old Office file, which may lie anywhere in it:
// what is in the file stands there.
type oleDirectory struct {
	skip int64 // bytes before it
	data []byte
}

func newOLEDirectory(head []byte) *oleDirectory {
	const directoryAt, shiftAt = 48, 30
	d := &oleDirectory{skip: -1}
	if len(head) < directoryAt+4 {
		return d
	}
	if shift := binary.LittleEndian.Uint16(head[shiftAt:]); shift >= 9 && shift <= 12 {
		d.skip = (int64(binary.LittleEndian.Uint32(head[directoryAt:])) + 1) << shift
	}
	return d
}

func (d *oleDirectory) take(p []byte) {
	if d.skip < 0 || len(d.data) == oleBytes {
		return
	}
	begin := min(d.skip, int64(len(p)))
	d.skip -= begin
	p = p[begin:]
	d.data = append(d.data, p[:min(len(p), oleBytes-len(d.data))]...)
}

// oleStreams are the streams that tell what a file is.
var oleStreams = map[string]string{
	"WordDocument": "application/msword", "Workbook": "application/vnd.ms-excel", "Book": "application/vnd.ms-excel",
	"PowerPoint Document": "application/vnd.ms-powerpoint",
}

// kind is that of the first stream which tells one: those of what is embedded come later.
func (d *oleDirectory) kind() string {
	const entry, nameBytes = 128, 64
	for at := 0; at+entry <= len(d.data); at += entry {
		var name strings.Builder
		for i := 0; i < nameBytes && (d.data[at+i] != 0 || d.data[at+i+1] != 0); i += 2 {
			name.WriteByte(d.data[at+i])
		}
		if kind, ok := oleStreams[name.String()]; ok {
			return kind
		}
	}
	return ""
}

// Of is the type of a file that is held whole, narrowed by the ending of its name; "" of one
// that is not taken.
func Of(name string, data []byte) string {
	t, _, err := Sniff(bytes.NewReader(data))
	if err != nil || !t.MayBeTaken() {
		return ""
	}
	_, _ = t.Write(data)
	if kind := t.Kind(); kind != "" {
		return Narrowed(kind, "", name)
	}
	return ""
}
