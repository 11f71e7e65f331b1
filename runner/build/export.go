// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/gitremote"
)

// exportFiles writes the files of a commit's layout. It writes links as links, so that Pack can name
// them, and never follows one.
func (f *fetcher) exportFiles(ctx context.Context, commit *object.Commit) error {
	tree, err := commit.Tree()
	if err != nil {
		return fmt.Errorf("reading the commit's files: %w", err)
	}
	if folder := strings.Trim(path.Clean("/"+f.Path), "/"); folder != "" {
		if tree, err = tree.Tree(folder); err != nil {
			return gitremote.Remedy("commit %s has no folder %q; correct git.path of the Project", commit.Hash, folder)
		}
	}
	target := filepath.Join(f.Dir, sourceFolder)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("clearing the folder: %w", err)
	}
	if err := os.Mkdir(target, 0o750); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	x := exporter{root: root, objects: f.objects, left: bundle.MaxSize + 1}
	if err := x.exportTree(ctx, tree, "", 0); err != nil {
		return err
	}
	f.result.addLine(f.Now(), "%d files", x.files)
	for _, warning := range bundle.MisnamedFolders(almostOfLayout(ctx, tree)) {
		f.result.addLine(f.Now(), "warning: %s", warning)
	}
	return nil
}

// mostAlmost limits the files that are checked for misspelled folders.
const mostAlmost = 1000

// almostOfLayout returns files in folders with misspelled names, up to mostAlmost. The build only
// warns about them.
func almostOfLayout(ctx context.Context, tree *object.Tree) (paths []string) {
	for _, entry := range tree.Entries {
		if entry.Mode != filemode.Dir || bundle.SuggestFolder(entry.Name) == "" {
			continue
		}
		folder, err := tree.Tree(entry.Name)
		if err != nil {
			continue
		}
		walker := object.NewTreeWalker(folder, true, nil)
		for range mostAlmost {
			name, below, err := walker.Next()
			if err != nil || ctx.Err() != nil {
				break
			}
			if below.Mode.IsFile() {
				paths = append(paths, path.Join(entry.Name, name))
			}
		}
		walker.Close()
	}
	return paths
}

// sizer returns the size of a file without reading it.
type sizer interface {
	EncodedObjectSize(hash plumbing.Hash) (int64, error)
}

type exporter struct {
	root    *os.Root
	objects sizer
	files   int
	entries int   // files and folders
	left    int64 // bytes; Pack checks the exact limit
}

// errEnough ends the export of a repository that is too large.
var errEnough = errors.New("more than a bundle can hold")

// exportTree writes a folder. It skips folders without files, because Git does not have them.
func (x *exporter) exportTree(ctx context.Context, tree *object.Tree, folder string, depth int) error {
	if depth > maxTreeDepth {
		return gitremote.Remedy("folders nest deeper than %d levels at %q", maxTreeDepth, gitremote.Clip(folder, 200))
	}
	if depth > 0 { // counted before its content, at any depth
		if err := x.countEntries(len(tree.Entries)); err != nil {
			return err
		}
	}
	seen := make(map[string]bool)
	for _, entry := range tree.Entries {
		name := path.Join(folder, entry.Name)
		if strings.ContainsAny(entry.Name, "/\x00") || entry.Name == "" || !filepath.IsLocal(name) {
			return gitremote.Remedy("the commit has a file with the invalid name %q", gitremote.Clip(entry.Name, 200))
		}
		if bundle.IsHidden(entry.Name) || depth == 0 && (!bundle.IsLayoutFolder(entry.Name) || entry.Mode == filemode.Submodule) {
			continue
		}
		if seen[entry.Name] {
			return gitremote.Remedy("the commit has %q twice", gitremote.Clip(name, 200))
		}
		seen[entry.Name] = true
		if err := x.exportEntry(ctx, tree, entry, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// countEntries adds files and folders to the total.
func (x *exporter) countEntries(entries int) error {
	if x.entries += entries; x.entries > bundle.MaxFiles {
		return gitremote.Remedy("the commit has more than %d files and folders in agents, connectors, tools and tests; remove unneeded files", bundle.MaxFiles)
	}
	return nil
}

func (x *exporter) exportEntry(ctx context.Context, tree *object.Tree, entry object.TreeEntry, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if entry.Mode == filemode.Dir {
		child, err := tree.Tree(entry.Name)
		if err != nil {
			return fmt.Errorf("reading folder %q: %w", gitremote.Clip(name, 200), err)
		}
		return x.exportTree(ctx, child, name, depth+1)
	}
	x.files++
	if err := x.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return gitremote.Remedy("the commit has %q in a way that cannot be written: %v", gitremote.Clip(name, 200), err)
	}
	if entry.Mode == filemode.Symlink || entry.Mode == filemode.Submodule {
		// The target does not matter, because links are rejected.
		if err := x.root.Symlink("refused", name); err != nil {
			return fmt.Errorf("writing %q: %w", name, err)
		}
		return nil
	}
	return x.exportFile(tree, entry, name)
}

func (x *exporter) exportFile(tree *object.Tree, entry object.TreeEntry, name string) error {
	size, err := x.objects.EncodedObjectSize(entry.Hash)
	if err != nil {
		return fmt.Errorf("reading %q: %w", gitremote.Clip(name, 200), err)
	}
	if x.left -= size; x.left < 0 {
		return gitremote.Remedy("%q: %v (%d MiB); remove large files", gitremote.Clip(name, 200), errEnough, bundle.MaxSize>>20)
	}
	blob, err := tree.TreeEntryFile(&entry)
	if err != nil {
		return fmt.Errorf("reading %q: %w", gitremote.Clip(name, 200), err)
	}
	in, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	defer in.Close()
	out, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return gitremote.Remedy("the commit has %q twice, or in a way that cannot be written: %v", gitremote.Clip(name, 200), err)
	}
	_, err = io.Copy(out, io.LimitReader(in, blob.Size))
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("writing %q: %w", name, err)
	}
	return nil
}
