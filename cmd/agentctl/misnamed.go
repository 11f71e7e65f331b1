// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/agentplatform/agentplatform/bundle"
)

// errEnough ends looking through a folder.
var errEnough = errors.New("more files than a repository may have")

// misnamed are warnings about what is not read in a repository and looks as if it were meant to be. What
// cannot be looked at is for those to say who read the repository.
func misnamed(dir string) bundle.Problems {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	top, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range top {
		if !entry.IsDir() || !bundle.InLayout(entry.Name()) && bundle.Meant(entry.Name()) == "" {
			continue
		}
		_ = fs.WalkDir(root.FS(), entry.Name(), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case len(paths) >= bundle.MaxFiles:
				return errEnough
			case entry.Type().IsRegular():
				paths = append(paths, path)
			}
			return nil
		}) // what it has found counts
	}
	return bundle.Misnamed(paths)
}

// warn shows warnings about a repository in a folder, a line for each.
func warn(out io.Writer, dir string, warnings bundle.Problems) {
	for _, w := range placed(dir, warnings) {
		fmt.Fprintf(out, "warning: %s: %s\n", paintAs(out, place, printable(w.Position.String())), printable(w.Message))
	}
}
