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

// errEnough ends the walk through a folder.
var errEnough = errors.New("more files than a repository may have")

// findMisnamed returns warnings about files that no build reads, but whose names look as if it should. It ignores errors,
// because reading the repository reports them.
func findMisnamed(dir string) bundle.Problems {
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
		if !entry.IsDir() || !bundle.IsLayoutFolder(entry.Name()) && bundle.SuggestFolder(entry.Name()) == "" {
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
		}) // A partial result is fine.
	}
	return bundle.MisnamedFolders(paths)
}

// printWarnings prints warnings about a repository in a folder, one per line.
func printWarnings(out io.Writer, dir string, warnings bundle.Problems) {
	for _, w := range inFolder(dir, warnings) {
		fmt.Fprintf(out, "warning: %s: %s\n", paintAs(out, bold, printable(w.Position.String())), printable(w.Message))
	}
}
