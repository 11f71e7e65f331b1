// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// maxTrees limits the response to Trees, in bytes.
const maxTrees = 8 << 20

// treesPatience limits one response, because other requests wait for it.
const treesPatience = 10 * time.Second

// treeBounds limit the objects of that response, which contains only folders.
var treeBounds = Bounds{Objects: 20_000, Object: 2 << 20, Folder: 2 << 20, Inflated: 16 << 20, Work: 128 << 20, Cache: 2 << 20}

// The process can have little memory and other work.
var (
	// receiving has a slot for each response in memory. A slow server uses one of them.
	receiving = make(chan struct{}, 4)
	// reading has one slot, for the response that is unpacked. It waits for nothing else.
	reading = make(chan struct{}, 1)
)

// ErrBusy means that no slot became free in time.
var ErrBusy = errors.New("folders of other repositories are being read")

// ErrFilter means that a server does not support filters and would send whole commits.
var ErrFilter = errors.New("the server does not support filters")

// Trees returns an identifier of a folder's content for each commit. Equal identifiers mean equal
// files. It receives only the lists of the parent folders. A commit without the folder has no
// identifier. The session must have called Refs, and Trees uses it up. At most four responses are
// in memory; it returns ErrBusy if no slot becomes free before ctx ends. It calls hold when it
// begins to receive the response and when it begins to read it, and hold's result at the end of each.
func Trees(
	ctx context.Context, s Session, refs *packp.AdvRefs, folder string, hold func() (release func()), commits ...plumbing.Hash,
) (map[plumbing.Hash]string, error) {
	if !refs.Capabilities.Supports(capability.Filter) || !refs.Capabilities.Supports(capability.Shallow) {
		return nil, ErrFilter
	}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	req := Request(refs, commits...)
	req.Depth, req.Filter = packp.DepthCommits(1), packp.FilterTreeDepth(uint64(strings.Count(folder, "/"))+1) //nolint:gosec // a count
	if err := errors.Join(req.Capabilities.Set(capability.Shallow), req.Capabilities.Set(capability.Filter)); err != nil {
		return nil, fmt.Errorf("requesting folders: %w", err)
	}
	leave, err := acquireSlot(ctx, receiving)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, treesPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // SSH does not support contexts
	release := hold()
	pack, err := receive(ctx, s, req)
	release()
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if leave, err = acquireSlot(ctx, reading); err != nil {
		return nil, err
	}
	defer leave()
	defer hold()()
	return treesOf(ctx, pack, folder, commits)
}

// acquireSlot takes a slot and returns the function that frees it, or ErrBusy at the end of ctx.
func acquireSlot(ctx context.Context, slots chan struct{}) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}

// treesOf returns the identifiers of a folder in a received pack.
func treesOf(ctx context.Context, pack []byte, folder string, commits []plumbing.Hash) (names map[plumbing.Hash]string, err error) {
	objects, err := OpenObjects(ctx, held{bytes.NewReader(pack)}, treeBounds)
	if err != nil {
		return nil, err
	}
	names = map[plumbing.Hash]string{}
	for _, hash := range commits {
		if names[hash], err = treeHash(objects, hash, folder); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// receive returns the pack of a response.
func receive(ctx context.Context, s Session, req *packp.UploadPackRequest) ([]byte, error) {
	answer, err := s.Pack(ctx, req)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var pack bytes.Buffer
	bounded := &Bounded{R: Demultiplexed(req, answer), Left: maxTrees, Over: errTrees}
	if _, err := io.Copy(&pack, bounded); err != nil {
		return nil, fmt.Errorf("receiving folders: %w", err)
	}
	return pack.Bytes(), nil
}

// treeHash returns the identifier of a folder of a commit, or "" without the folder.
func treeHash(objects *Objects, hash plumbing.Hash, folder string) (string, error) {
	commit, err := object.GetCommit(objects, hash)
	if err != nil {
		return "", fmt.Errorf("reading commit %s: %w", hash, err)
	}
	at := object.TreeEntry{Hash: commit.TreeHash, Mode: filemode.Dir}
	for name := range strings.SplitSeq(folder, "/") {
		if folder == "" {
			break
		}
		if at.Mode != filemode.Dir {
			return "", nil
		}
		tree, err := object.GetTree(objects, at.Hash)
		if err != nil {
			return "", fmt.Errorf("reading the folders of commit %s: %w", hash, err)
		}
		i := slices.IndexFunc(tree.Entries, func(e object.TreeEntry) bool { return e.Name == name })
		if i < 0 {
			return "", nil
		}
		at = tree.Entries[i]
	}
	return at.Hash.String(), nil
}

// held is a pack in memory.
type held struct{ *bytes.Reader }

// Close implements io.Closer.
func (held) Close() error { return nil }
