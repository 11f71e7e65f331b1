// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"hash"
	"io"
)

// upload is a body as it comes in: whoever reads it, it is judged, and hashed where
// its hash is wanted.
type upload struct {
	in      io.Reader
	content inspector
	hash    hash.Hash // of what is read; nil where none is wanted, or others hash it
	sum     hash.Hash // by which the request is told from another under its key
	files   *attachments
	err     error // with which reading ended
}

// close ends the use of a body; what was read of it stays.
func (u *upload) close() {
	if j, ok := u.in.(*inline); ok {
		j.close()
		u.in, u.content = nil, formed{}
	}
}

// inspector says whether a body is an input.
type inspector interface {
	// refused says whether the body will be refused, whatever comes yet.
	refused() bool
	// problem says at the end of the body why it is no input.
	problem() error
}

// formed judges what is made of a form: whoever makes it has said what is wrong with it.
type formed struct{}

func (formed) refused() bool  { return false }
func (formed) problem() error { return nil }

// Read implements io.Reader.
func (u *upload) Read(piece []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.in.Read(piece)
	u.err = err
	if u.hash != nil {
		_, _ = u.hash.Write(piece[:n]) // which does not fail
	}
	return n, err
}

// refused says whether the body will be refused, whatever comes yet.
func (u *upload) refused() bool {
	return u.err != nil && !errors.Is(u.err, io.EOF) || u.content.refused()
}

// unrefused reads an upload for as long as it will not be refused. Its only other
// error is io.EOF: a body that breaks off is not taken for one that has ended.
type unrefused struct{ *upload }

// Read implements io.Reader.
func (a unrefused) Read(piece []byte) (int, error) {
	n, err := a.upload.Read(piece)
	if a.refused() {
		return 0, errRefused
	}
	return n, err
}
