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

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/filetype"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// errEncoding means that a file cannot be decoded. The rest of the body can still be read.
var errEncoding = errors.New("the encoding of a file is not valid")

// errOverflow stops storing a file that is too large.
var errOverflow = errors.New("the file is too large")

var errManyFiles = httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalidForm,
	fmt.Sprintf("The request has more than %d files.", store.MaxNamedFiles))

// attachments stores the files of one request while they arrive. It stores a file as far as it can
// be accepted, and always reads it to its end.
type attachments struct {
	// put stores a file. It returns errNotStored if nothing is stored.
	put  func(blob uuid.UUID, r io.Reader) error
	drop func(blob uuid.UUID)

	files    []store.File
	accepted int
	total    int64            // bytes of the accepted files
	overflow store.FileReason // for all files after the first one beyond a limit
}

// storeError is an error of the store, and not of the body.
type storeError struct{ error }

// Unwrap returns the error of the store.
func (e storeError) Unwrap() error { return e.error }

// errNotStored means that files are read but not stored, because the request will be rejected or is
// a duplicate.
var errNotStored = errors.New("files are not stored")

// addFile reads the next file and returns its index. An error means that the request cannot be read any
// further or cannot be stored. Errors of the file itself are not returned.
func (a *attachments) addFile(field string, data io.Reader) (int, error) {
	if len(a.files) == store.MaxNamedFiles {
		return 0, errManyFiles
	}
	number := len(a.files)
	a.files = append(a.files, store.File{FieldName: fileLabel(field)})
	if a.accepted == store.MaxFiles && a.overflow == "" {
		a.overflow = store.FilesTooMany
	}
	reason, err := a.overflow, error(nil)
	if reason == "" {
		reason, err = a.storeFile(&a.files[number], data)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, data)
	}
	switch {
	case errors.Is(err, errEncoding):
		reason, err = store.FileInvalidEncoding, nil
	case err != nil:
		reason = store.FileInvalidEncoding // the request is rejected
	}
	a.omitFile(number, reason)
	return number, err
}

// omitFile omits a file for a reason. Without a reason it does nothing.
func (a *attachments) omitFile(number int, reason store.FileReason) {
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

// storeFile stores a file, or returns the reason why it is omitted.
func (a *attachments) storeFile(f *store.File, data io.Reader) (store.FileReason, error) {
	sniffed, body, err := filetype.Sniff(data)
	switch {
	case err != nil:
		return "", err
	case !sniffed.MayBeTaken():
		return store.FileUnsupported, nil
	}
	blob, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("generating an ID: %w", err)
	}
	limited := &limitedReader{in: io.TeeReader(body, sniffed), left: maxFilesBytes - a.total}
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

// tooLarge reads a file to its end and reports whether it exceeds a limit, alone or together with
// the previous files.
func (a *attachments) tooLarge(c *limitedReader) (store.FileReason, error) {
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

// describe sets the name of a file and its declared type. The declared type restricts the type that
// is detected from the content.
func (a *attachments) describe(number int, name, declared string) {
	f := &a.files[number]
	f.Name = fileLabel(name)
	if f.MIMEType != "" {
		f.MIMEType = filetype.Narrowed(f.MIMEType, declared, f.Name)
	}
}

// fileLabel returns a name without invalid UTF-8, and not longer than allowed.
func fileLabel(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, name)
	return excerpt.Of(name, store.MaxFileName, "")
}

// limitedReader reads a limited number of bytes, and returns errOverflow for more.
type limitedReader struct {
	in         io.Reader
	left, read int64
	err        error // the final error of the reader
}

func (c *limitedReader) Read(p []byte) (int, error) {
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
