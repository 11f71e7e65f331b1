// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// maxTrees is the most bytes of the answer to Trees.
const maxTrees = 8 << 20

// treeBounds bound what is read of that answer: folders alone.
var treeBounds = Bounds{Objects: 20_000, Object: 4 << 20, Folder: 4 << 20, Inflated: 64 << 20, Work: 128 << 20, Cache: 8 << 20}

// ErrFilter says that a server has no filters: it would send whole commits.
var ErrFilter = errors.New("the server does not filter what it sends")

// Trees names what a folder of each commit holds: the same name is the same files.
// It takes the lists of the folders above alone. A commit without the folder has no
// name. The session must have been asked for refs, and is used up.
func Trees(ctx context.Context, s Session, refs *packp.AdvRefs, folder string, commits ...plumbing.Hash) (map[plumbing.Hash]string, error) {
	if !refs.Capabilities.Supports(capability.Filter) || !refs.Capabilities.Supports(capability.Shallow) {
		return nil, ErrFilter
	}
	folder = strings.Trim(path.Clean("/"+folder), "/")
	req := Request(refs, commits...)
	req.Depth, req.Filter = packp.DepthCommits(1), packp.FilterTreeDepth(uint64(strings.Count(folder, "/"))+1) //nolint:gosec // a count
	if err := errors.Join(req.Capabilities.Set(capability.Shallow), req.Capabilities.Set(capability.Filter)); err != nil {
		return nil, fmt.Errorf("asking for folders: %w", err)
	}
	answer, err := s.Pack(ctx, req)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	var pack bytes.Buffer
	if _, err := io.Copy(&pack, &Bounded{R: Demultiplexed(req, answer), Left: maxTrees, Over: ErrPack}); err != nil {
		return nil, fmt.Errorf("receiving folders: %w", err)
	}
	objects, err := OpenObjects(ctx, held{bytes.NewReader(pack.Bytes())}, treeBounds)
	if err != nil {
		return nil, err
	}
	names := map[plumbing.Hash]string{}
	for _, hash := range commits {
		if names[hash], err = treeOf(objects, hash, folder); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// treeOf is the name of a folder of a commit, "" where it has none.
func treeOf(objects *Objects, hash plumbing.Hash, folder string) (string, error) {
	commit, err := object.GetCommit(objects, hash)
	if err != nil {
		return "", fmt.Errorf("reading commit %s: %w", hash, err)
	}
	tree, err := commit.Tree()
	if err != nil {
		return "", fmt.Errorf("reading the folders of commit %s: %w", hash, err)
	}
	if folder == "" {
		return tree.Hash.String(), nil
	}
	entry, err := tree.FindEntry(folder)
	if errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for folder %q of commit %s: %w", Clip(folder, 200), hash, err)
	}
	return entry.Hash.String(), nil
}

// held is a pack in memory.
type held struct{ *bytes.Reader }

// Close implements io.Closer.
func (held) Close() error { return nil }
