// SPDX-License-Identifier: Apache-2.0

package build

import (
	"io"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// Limits of what a Git server may send. A build needs the memory of some objects
// of maxObject and of the list of maxObjects, whatever is sent.
const (
	// maxRefs is the most bytes of the list of branches and tags.
	maxRefs = 10 << 20
	// maxPreamble is the most bytes of what stands before the objects.
	maxPreamble = 1 << 20
	// maxPack is the most bytes of objects as they are sent, compressed.
	maxPack = 512 << 20
	// maxObjects is the most objects.
	maxObjects = 500_000
	// maxObject is the most bytes of one object: no larger file fits a bundle.
	maxObject = bundle.MaxSize
	// maxFolderObject is the most bytes of a commit or of one folder's list.
	maxFolderObject = 4 << 20
	// maxInflated is the most bytes of all objects, deltas counted with their results.
	maxInflated = 4 << 30
	// maxWork is the most bytes that are inflated again to resolve deltas and to
	// write the files.
	maxWork = 16 << 30
	// objectCache is how many bytes of objects are kept, of which others are deltas.
	objectCache = 32 << 20
	// maxTreeDepth is how deep folders may nest.
	maxTreeDepth = 32
)

// What a repository may hold is what dispatch takes: with limits that differ,
// these are of different types and do not compile.
var (
	_ *[bundle.MaxConfigSize]byte = (*[dispatchapi.MaxAgentConfig]byte)(nil)
	_ *[bundle.MaxConfigs]byte    = (*[dispatchapi.MaxAgentConfigs]byte)(nil)
	_ *[bundle.MaxAgents]byte     = (*[dispatchapi.MaxAgents]byte)(nil)
)

// bounded fails when more is read than allowed, with an error that says what.
type bounded struct {
	r    io.Reader
	left int64
	over error
}

// allow begins another part of the stream.
func (b *bounded) allow(bytes int64, over error) { b.left, b.over = bytes, over }

// exceeded is the error of a reader that was asked for too much, or nil. What
// reads through other packages asks for it, for not all of them wrap errors.
func (b *bounded) exceeded() error {
	if b.left < 0 {
		return b.over
	}
	return nil
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.over
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over
	}
	return n, err
}

var (
	errRefs     = remedy("the repository's list of branches and tags is larger than %d MiB; remove some", maxRefs>>20)
	errPreamble = remedy("the server sends more than %d MiB before the objects; check git.url of the Project", maxPreamble>>20)
	errPack     = remedy("the repository is larger than %d MiB; move large files elsewhere", maxPack>>20)
)
