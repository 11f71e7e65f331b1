// SPDX-License-Identifier: Apache-2.0

// Package source finds the Go files that the checks of this folder read.
package source

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files calls do with the path and the text of each file below root whose name ends so. Hidden folders, bin
// and testdata are left out. The first error ends it.
func Files(root, suffix string, do func(path string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return do(path, text)
	})
}
