// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
)

// upload is a body as it comes in: whoever reads it, it is judged, and hashed where
// its hash is wanted.
type upload struct {
	in      io.Reader
	content inspector
	sum     hash.Hash // nil where none is wanted
	err     error     // with which reading ended
}

// inspector says whether a body is an input, by what is written to it.
type inspector interface {
	io.Writer
	// refused says whether the body will be refused, whatever comes yet.
	refused() bool
	// problem says at the end of the body why it is no input.
	problem() error
}

// formed judges what is made of a form: whoever makes it has said what is wrong with it.
type formed struct{}

func (formed) Write(piece []byte) (int, error) { return len(piece), nil }
func (formed) refused() bool                   { return false }
func (formed) problem() error                  { return nil }

func newUpload(in io.Reader, by inspector, hashed bool) *upload {
	u := &upload{in: in, content: by}
	if hashed {
		u.sum = sha256.New()
	}
	return u
}

// Read implements io.Reader.
func (u *upload) Read(piece []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.in.Read(piece)
	u.err = err
	_, _ = u.content.Write(piece[:n]) // which does not fail, and a hash does not either
	if u.sum != nil {
		_, _ = u.sum.Write(piece[:n])
	}
	return n, err
}

// refused says whether the body will be refused, whatever comes yet.
func (u *upload) refused() bool {
	return u.err != nil && !errors.Is(u.err, io.EOF) || u.content.refused()
}

// errRefused ends the storing of a body that will be refused.
var errRefused = errors.New("the body will be refused")

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
