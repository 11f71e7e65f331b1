// SPDX-License-Identifier: Apache-2.0

package gitremote

import "io"

// Limits of the data of a Git server.
const (
	// MaxRefs limits the list of branches and tags, in bytes.
	MaxRefs = 10 << 20
	// maxPreamble limits the data before the objects, in bytes.
	maxPreamble = 1 << 20
	// MaxPack limits the compressed objects, in bytes.
	MaxPack = 512 << 20
)

// Bounded is a reader that returns an error beyond a limit.
type Bounded struct {
	R    io.Reader
	Left int64
	// Over is the error beyond the limit.
	Over error
}

// Allow begins another part of the stream with its own limit.
func (b *Bounded) Allow(bytes int64, over error) { b.Left, b.Over = bytes, over }

// Exceeded returns the error if the limit was exceeded, or nil. Callers check it because not all
// packages wrap errors.
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
	errForeign  = Remedy("the server does not use Git's smart HTTP protocol, which is required: it serves the repository as plain files (the dumb protocol), or is not a Git server; serve it with git http-backend, use an SSH URL, or correct git.url of the Project")
	errTips     = Remedy("the server's list of branches and tags cannot be read; check git.url of the Project")
	ErrPack     = Remedy("the repository is larger than %d MiB; move large files elsewhere", MaxPack>>20)
)
