// SPDX-License-Identifier: Apache-2.0

// Package filetype detects the types of files by their content, for attachments of events and of
// test cases.
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
	// sniffedBytes is the number of bytes that decide the type.
	sniffedBytes = 32 << 10
	// oleBytes is the number of bytes of the directory that identify an old Office file.
	oleBytes = 4 << 10
)

const typePlain = "text/plain"

// fileTypes are the accepted types, each with the type for the model.
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

// narrowings are types that a text can declare, because its content does not show them.
var narrowings = []string{"text/markdown", "text/csv", "text/tab-separated-values", "text/html", "application/json", "application/xml"}

// declaredAs are other names and file extensions of these types.
var declaredAs = map[string]string{
	"text/x-markdown": "text/markdown", "text/xml": "application/xml", "text/tsv": "text/tab-separated-values",
	".md": "text/markdown", ".markdown": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
}

// Type detects the type of a file while it is read.
type Type struct {
	found string // "" for a type that is not accepted
	ole   *oleDirectory
}

// Sniff reads the beginning of a file. The returned reader has all of it.
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

// Write adds the next bytes of the file.
func (t *Type) Write(p []byte) (int, error) {
	if t.ole != nil {
		t.ole.takeBytes(p)
	}
	return len(p), nil
}

// MayBeTaken reports whether the type may be accepted, judging by the beginning of the file.
func (t *Type) MayBeTaken() bool { return t.ole != nil || t.found != "" }

// Kind returns the type at the end of the file, or "" if it is not accepted.
func (t *Type) Kind() string {
	if t.ole == nil {
		return t.found
	}
	return t.ole.documentKind()
}

// Narrowed returns the declared type, or the type of the file extension, if it refines a text. No
// other file can be declared as something else.
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

// oleDirectory extracts the directory of an old Office file, which can be anywhere in it and lists
// its contents.
type oleDirectory struct {
	skip int64 // bytes before the directory
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

func (d *oleDirectory) takeBytes(p []byte) {
	if d.skip < 0 || len(d.data) == oleBytes {
		return
	}
	begin := min(d.skip, int64(len(p)))
	d.skip -= begin
	p = p[begin:]
	d.data = append(d.data, p[:min(len(p), oleBytes-len(d.data))]...)
}

// oleStreams are the streams that identify a file.
var oleStreams = map[string]string{
	"WordDocument": "application/msword", "Workbook": "application/vnd.ms-excel", "Book": "application/vnd.ms-excel",
	"PowerPoint Document": "application/vnd.ms-powerpoint",
}

// documentKind returns the type of the first identifying stream. Streams of embedded files come later.
func (d *oleDirectory) documentKind() string {
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

// Of returns the type of a complete file, refined by its extension, or "" if it is not accepted.
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
