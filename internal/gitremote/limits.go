// SPDX-License-Identifier: Apache-2.0

package gitremote

import "io"

// Limits of what a Git server may send.
const (
	// MaxRefs is the most bytes of the list of branches and tags.
	MaxRefs = 10 << 20
	// maxPreamble is the most bytes of what stands before the objects.
	maxPreamble = 1 << 20
	// MaxPack is the most bytes of objects as they are sent, compressed.
	MaxPack = 512 << 20
)

// Bounded fails when more is read than allowed, with an error that says what.
type Bounded struct {
	R    io.Reader
	Left int64
	// Over is the error.
	Over error
}

// Allow begins another part of the stream.
func (b *Bounded) Allow(bytes int64, over error) { b.Left, b.Over = bytes, over }

// Exceeded is the error of a reader that was asked for too much, or nil. What
// reads through other packages asks for it, for not all of them wrap errors.
func (b *Bounded) Exceeded() error {
	if b.Left < 0 {
		return b.Over
	}
	return nil
}

// Read implements io.Reader.
func (b *Bounded) Read(p []byte) (int, error) {
	if b.Left < 0 {
		return 0, b.Over
	}
	n, err := b.R.Read(p)
	if b.Left -= int64(n); b.Left < 0 {
		return 0, b.Over
	}
	return n, err
}

var (
	errRefs     = Remedy("the repository's list of branches and tags is larger than %d MiB; remove some", MaxRefs>>20)
	errPreamble = Remedy("the server sends more than %d MiB before the objects; check git.url of the Project", maxPreamble>>20)
	errTrees    = Remedy("the repository's lists of folders are larger than %d MiB", maxTrees>>20)
	errForeign  = Remedy("the server answers without Git's smart HTTP protocol, the only one that is supported over HTTP: it serves the repository as plain files (the dumb protocol), or is no Git server; serve it with git http-backend, use an SSH URL, or correct git.url of the Project")
	errTips     = Remedy("the server's list of branches and tags cannot be read; check git.url of the Project")
	ErrPack     = Remedy("the repository is larger than %d MiB; move large files elsewhere", MaxPack>>20)
)
