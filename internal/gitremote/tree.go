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

// maxTrees is the most bytes of the answer to Trees.
const maxTrees = 8 << 20

// treesPatience bounds one answer: others wait for it.
const treesPatience = 10 * time.Second

// treeBounds bound what is read of that answer: folders alone.
var treeBounds = Bounds{Objects: 20_000, Object: 2 << 20, Folder: 2 << 20, Inflated: 16 << 20, Work: 64 << 20, Cache: 2 << 20}

// The process may have little memory, and much else to do.
var (
	// receiving has a place for each answer that is held at a time: a server that sends slowly
	// has one of them.
	receiving = make(chan struct{}, 4)
	// reading has a place for the one that is unpacked at a time, which waits for nobody.
	reading = make(chan struct{}, 1)
)

// ErrBusy says that it was never this one's turn.
var ErrBusy = errors.New("folders of other repositories are being read")

// ErrFilter says that a server has no filters: it would send whole commits.
var ErrFilter = errors.New("the server does not filter what it sends")

// Trees names what a folder of each commit holds: the same name is the same files.
// It takes the lists of the folders above alone. A commit without the folder has no
// name. The session must have been asked for refs, and is used
// up. Four answers are held at a time: ErrBusy where the others took all of ctx.
// hold is called when the server takes up one of the four places, and what it returns
// when the answer has been received, or will not be.
func Trees(
	ctx context.Context, s Session, refs *packp.AdvRefs, folder string, hold func() (received func()), commits ...plumbing.Hash,
) (map[plumbing.Hash]string, error) {
	if !refs.Capabilities.Supports(capability.Filter) || !refs.Capabilities.Supports(capability.Shallow) {
		return nil, ErrFilter
	}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	req := Request(refs, commits...)
	req.Depth, req.Filter = packp.DepthCommits(1), packp.FilterTreeDepth(uint64(strings.Count(folder, "/"))+1) //nolint:gosec // a count
	if err := errors.Join(req.Capabilities.Set(capability.Shallow), req.Capabilities.Set(capability.Filter)); err != nil {
		return nil, fmt.Errorf("asking for folders: %w", err)
	}
	leave, err := enter(ctx, receiving)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, treesPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // SSH knows no contexts
	received := hold()
	pack, err := receive(ctx, s, req)
	received()
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if leave, err = enter(ctx, reading); err != nil {
		return nil, err
	}
	defer leave()
	return treesOf(ctx, pack, folder, commits)
}

// enter takes a place and returns what gives it back; ErrBusy where there was none in ctx.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}

// treesOf are the names of a folder in what was received.
func treesOf(ctx context.Context, pack []byte, folder string, commits []plumbing.Hash) (names map[plumbing.Hash]string, err error) {
	objects, err := OpenObjects(ctx, held{bytes.NewReader(pack)}, treeBounds)
	if err != nil {
		return nil, err
	}
	names = map[plumbing.Hash]string{}
	for _, hash := range commits {
		if names[hash], err = treeOf(objects, hash, folder); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// receive is the pack of an answer.
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

// treeOf is the name of a folder of a commit, "" where it has none.
func treeOf(objects *Objects, hash plumbing.Hash, folder string) (string, error) {
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
