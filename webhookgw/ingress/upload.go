// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"hash"
	"io"
)

// bodyUpload is an arriving body. While it is read, it is checked, and hashed if a digest is needed.
type bodyUpload struct {
	in      io.Reader
	content inspector
	hash    hash.Hash // digest of the read bytes; nil if not needed or computed elsewhere
	sum     hash.Hash // digest that distinguishes requests with the same key
	files   *attachments
	err     error // the final error of the reader
}

// closeBody ends the use of a body. The data read from it stays valid.
func (u *bodyUpload) closeBody() {
	if j, ok := u.in.(*inlineFiles); ok {
		j.close()
		u.in, u.content = nil, formedInput{}
	}
}

// inspector checks whether a body is a valid input.
type inspector interface {
	// refused reports whether the body will be rejected in any case.
	refused() bool
	// problem returns at the end of the body why it is no valid input.
	problem() error
}

// formedInput accepts the result of a form, because the form reader has already reported its errors.
type formedInput struct{}

func (formedInput) refused() bool  { return false }
func (formedInput) problem() error { return nil }

func (u *bodyUpload) Read(piece []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.in.Read(piece)
	u.err = err
	if u.hash != nil {
		_, _ = u.hash.Write(piece[:n]) // never fails
	}
	return n, err
}

// refused reports whether the body will be rejected in any case.
func (u *bodyUpload) refused() bool {
	return u.err != nil && !errors.Is(u.err, io.EOF) || u.content.refused()
}

// unrefusedUpload reads an upload until it will be rejected. Its only other error is io.EOF, so that an
// incomplete body does not look complete.
type unrefusedUpload struct{ *bodyUpload }

func (a unrefusedUpload) Read(piece []byte) (int, error) {
	n, err := a.bodyUpload.Read(piece)
	if a.refused() {
		return 0, errRefused
	}
	return n, err
}
