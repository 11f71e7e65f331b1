// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
	"github.com/stretchr/testify/require"
)

// forest is a commit of nested folders with this width.
func forest(t *testing.T, width, depth int, leaf ...object.TreeEntry) *object.Commit {
	t.Helper()
	st := memory.NewStorage()
	put := func(o interface {
		Encode(plumbing.EncodedObject) error
	}) plumbing.Hash {
		e := st.NewEncodedObject()
		require.NoError(t, o.Encode(e))
		hash, err := st.SetEncodedObject(e)
		require.NoError(t, err)
		return hash
	}
	hash := put(&object.Tree{Entries: leaf})
	for range depth {
		tree := &object.Tree{}
		for i := range width {
			tree.Entries = append(tree.Entries, object.TreeEntry{Name: fmt.Sprintf("%05d", i), Mode: filemode.Dir, Hash: hash})
		}
		hash = put(tree)
	}
	root := put(&object.Tree{Entries: []object.TreeEntry{{Name: "agents", Mode: filemode.Dir, Hash: hash}}})
	commit, err := object.GetCommit(st, put(&object.Commit{TreeHash: root, Message: "x"}))
	require.NoError(t, err)
	return commit
}

// A few Git objects can represent any number of folders.
func TestFetch_CountsFolders(t *testing.T) {
	t.Parallel()
	link := object.TreeEntry{Name: "link.yaml", Mode: filemode.Symlink, Hash: plumbing.ComputeHash(plumbing.BlobObject, nil)}
	for name, tt := range map[string]struct {
		commit *object.Commit
		want   string
		dirs   int // upper limit
	}{
		"bomb":        {forest(t, 10, 5), "more than 10000 files and folders", 0},
		"deeper bomb": {forest(t, 100, 6, link), "more than 10000 files and folders", 10_000},
		"wide":        {forest(t, 10_001, 1, link), "more than 10000 files and folders", 0},
		"deep":        {forest(t, 1, 40, link), "nest deeper than 32 levels", 0},
		"empty":       {forest(t, 5, 3), "", 0},
		"files":       {forest(t, 5, 3, link), "", 1 + 5 + 25 + 125},
		"hidden":      {forest(t, 1, 1, object.TreeEntry{Name: ".#a.yaml", Mode: filemode.Symlink, Hash: link.Hash}), "", 0},
		"twice":       {forest(t, 1, 1, link, link), `has "agents/00000/link.yaml" twice`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fetcher{FetchOptions: FetchOptions{Dir: t.TempDir(), Now: time.Now}}
			err := f.exportFiles(t.Context(), tt.commit)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			dirs := -1 // the folder itself
			require.NoError(t, filepath.WalkDir(filepath.Join(f.Dir, sourceFolder), func(_ string, d fs.DirEntry, err error) error {
				if d.IsDir() {
					dirs++
				}
				return err
			}))
			require.LessOrEqual(t, dirs, tt.dirs)
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	f := &fetcher{FetchOptions: FetchOptions{Dir: t.TempDir(), Now: time.Now}}
	require.ErrorIs(t, f.exportFiles(ended, forest(t, 3, 3, link)), context.Canceled)
}
