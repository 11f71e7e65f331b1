// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/agentplatform/agentplatform/bundle"
)

// maxTreeDepth is how deep folders may nest.
const maxTreeDepth = 32

// export writes the files of a commit's layout. Links are written as links, for
// Pack to name them; nothing ever follows one.
func (f *fetcher) export(commit *object.Commit) error {
	tree, err := commit.Tree()
	if err != nil {
		return fmt.Errorf("reading the commit's files: %w", err)
	}
	if folder := strings.Trim(path.Clean("/"+f.Path), "/"); folder != "" {
		if tree, err = tree.Tree(folder); err != nil {
			return remedy("commit %s has no folder %q; correct git.path of the Project", commit.Hash, folder)
		}
	}
	target := filepath.Join(f.Dir, sourceFolder)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("clearing the folder: %w", err)
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return fmt.Errorf("opening the folder: %w", err)
	}
	defer root.Close()
	x := exporter{root: root, left: bundle.MaxSize + 1}
	if err := x.tree(tree, "", 0); err != nil {
		return err
	}
	f.result.say(f.Now(), "%d files", x.files)
	return nil
}

type exporter struct {
	root  *os.Root
	files int
	left  int64 // bytes; Pack says the exact limit
}

// errEnough ends the export of a repository that is too large anyway.
var errEnough = errors.New("more than a bundle can hold")

func (x *exporter) tree(tree *object.Tree, folder string, depth int) error {
	if depth > maxTreeDepth {
		return remedy("folders nest deeper than %d levels at %q", maxTreeDepth, clip(folder, 200))
	}
	for _, entry := range tree.Entries {
		name := path.Join(folder, entry.Name)
		if strings.ContainsAny(entry.Name, "/\x00") || entry.Name == "" || !filepath.IsLocal(name) {
			return remedy("the commit has a file with the impossible name %q", clip(entry.Name, 200))
		}
		if depth == 0 && (!bundle.InLayout(entry.Name) || entry.Mode == filemode.Submodule) {
			continue
		}
		if err := x.entry(tree, entry, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) entry(tree *object.Tree, entry object.TreeEntry, name string, depth int) error {
	if entry.Mode == filemode.Dir {
		child, err := tree.Tree(entry.Name)
		if err != nil {
			return fmt.Errorf("reading folder %q: %w", name, err)
		}
		if err := x.root.Mkdir(name, 0o755); err != nil {
			return remedy("the commit has %q twice, or in a way that cannot be written: %v", clip(name, 200), err)
		}
		return x.tree(child, name, depth+1)
	}
	if x.files++; x.files > bundle.MaxFiles+1 {
		return remedy("the commit has more than %d files in agents, connectors, tools and tests; remove what agents do not need", bundle.MaxFiles)
	}
	if entry.Mode == filemode.Symlink || entry.Mode == filemode.Submodule {
		// The target does not matter: a link is refused.
		if err := x.root.Symlink("refused", name); err != nil {
			return fmt.Errorf("writing %q: %w", name, err)
		}
		return nil
	}
	return x.file(tree, entry, name)
}

func (x *exporter) file(tree *object.Tree, entry object.TreeEntry, name string) error {
	blob, err := tree.TreeEntryFile(&entry)
	if err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	if x.left -= blob.Size; x.left < 0 {
		return remedy("%q: %v (%d MiB); remove large files", clip(name, 200), errEnough, bundle.MaxSize>>20)
	}
	in, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	defer in.Close()
	out, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return remedy("the commit has %q twice, or in a way that cannot be written: %v", clip(name, 200), err)
	}
	_, err = io.Copy(out, io.LimitReader(in, blob.Size))
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("writing %q: %w", name, err)
	}
	return nil
}
