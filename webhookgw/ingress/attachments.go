// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/filetype"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// errEncoding says that the bytes of a file cannot be decoded; what follows it in the
// body can be read on.
var errEncoding = errors.New("the encoding of a file is not valid")

// errOverflow ends the storing of a file that is too large.
var errOverflow = errors.New("the file is too large")

var errManyFiles = httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidForm,
	fmt.Sprintf("The request has more than %d files.", store.MaxNamedFiles))

// attachments takes the files of one request while they come in: each is stored as far
// as it will be accepted, and read to its end in any case.
type attachments struct {
	// put stores a file; it says errNotStored where nothing is.
	put  func(blob uuid.UUID, r io.Reader) error
	drop func(blob uuid.UUID)

	files    []store.File
	accepted int
	total    int64            // bytes of the accepted ones
	overflow store.FileReason // of all files after the first one that was too much
}

// storeError is an error of storing a file, which is none of the body's.
type storeError struct{ error }

// Unwrap is what the store said.
func (e storeError) Unwrap() error { return e.error }

// errNotStored says that files are read and not stored, for the request will be refused or
// is a repetition.
var errNotStored = errors.New("files are not stored")

// add takes the next file and returns its number among all. An error is none of the
// file's own: the request cannot be read on, or not be stored.
func (a *attachments) add(field string, data io.Reader) (int, error) {
	if len(a.files) == store.MaxNamedFiles {
		return 0, errManyFiles
	}
	number := len(a.files)
	a.files = append(a.files, store.File{FieldName: label(field)})
	if a.accepted == store.MaxFiles && a.overflow == "" {
		a.overflow = store.FilesTooMany
	}
	reason, err := a.overflow, error(nil)
	if reason == "" {
		reason, err = a.store(&a.files[number], data)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, data)
	}
	switch {
	case errors.Is(err, errEncoding):
		reason, err = store.FileInvalidEncoding, nil
	case err != nil:
		reason = store.FileInvalidEncoding // the request is refused
	}
	a.omit(number, reason)
	return number, err
}

// omit omits a file for a reason; with none it stays as it is.
func (a *attachments) omit(number int, reason store.FileReason) {
	f := &a.files[number]
	if reason == "" {
		return
	}
	if f.Blob != nil {
		a.drop(*f.Blob)
		a.accepted--
		a.total -= f.Size
	}
	*f = store.File{Name: f.Name, FieldName: f.FieldName, Reason: reason}
}

// store stores a file, or says why it is omitted.
func (a *attachments) store(f *store.File, data io.Reader) (store.FileReason, error) {
	sniffed, body, err := filetype.Sniff(data)
	switch {
	case err != nil:
		return "", err
	case !sniffed.MayBeTaken():
		return store.FileUnsupported, nil
	}
	blob, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	limited := &limited{in: io.TeeReader(body, sniffed), left: maxFilesBytes - a.total}
	f.Blob = &blob
	a.accepted++
	err = a.put(blob, limited)
	f.Size, f.MIMEType = limited.read, sniffed.Kind()
	a.total += f.Size
	switch {
	case errors.Is(err, errOverflow):
		return a.tooLarge(limited)
	case errors.Is(err, errNotStored):
		f.Blob = nil
		return "", nil
	case err != nil && limited.err != nil && !errors.Is(limited.err, io.EOF):
		return "", limited.err
	case err != nil:
		return "", storeError{err}
	case f.MIMEType == "":
		return store.FileUnsupported, nil
	}
	return "", nil
}

// tooLarge says whether a file alone is, or with those before; it reads it to its end.
func (a *attachments) tooLarge(c *limited) (store.FileReason, error) {
	rest, err := io.Copy(io.Discard, c.in)
	if err != nil {
		return "", err
	}
	a.overflow = store.FilesTooLarge
	if c.read+rest > maxFilesBytes {
		return store.FileTooLarge, nil
	}
	return store.FilesTooLarge, nil
}

// describe says what a file is called, and what its sender takes it for, which narrows
// what its content is.
func (a *attachments) describe(number int, name, declared string) {
	f := &a.files[number]
	f.Name = label(name)
	if f.MIMEType != "" {
		f.MIMEType = filetype.Narrowed(f.MIMEType, declared, f.Name)
	}
}

// label is a name as it is kept: without what is no text, and not too long.
func label(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), store.MaxFileName)], "")
}

// limited reads at most so many bytes, and says errOverflow of more.
type limited struct {
	in         io.Reader
	left, read int64
	err        error // with which reading ended
}

// Read implements io.Reader.
func (c *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.in.Read(p)
	c.left -= int64(n)
	c.read += int64(n)
	if c.err = err; c.left < 0 {
		return 0, errOverflow
	}
	return n, err
}
