// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// testFiles is the folder of attachments of tests. Attachments do not count as code.
const testFiles = "tests/files/"

// Files are the files of a repository, by their paths with slashes.
type Files map[string][]byte

// Paths returns the paths in order.
func (f Files) Paths() []string { return slices.Sorted(maps.Keys(f)) }

// ReadFiles reads the folders of the layout from the root of a repository. The error is Problems if the repository has
// links, invalid paths, too many files or too many bytes.
func ReadFiles(root fs.FS) (Files, error) {
	r := reader{root: root, files: Files{}}
	for _, folder := range folderNames() {
		if err := r.readFolder(folder); err != nil {
			return nil, err
		}
	}
	r.files.checkSizes(&r.problems)
	if err := r.problems.errorOrNil(); err != nil {
		return nil, err
	}
	return r.files, nil
}

type reader struct {
	root     fs.FS
	files    Files
	size     int64
	problems Problems
}

var errFull = errors.New("too much to read")

func (r *reader) readFolder(folder string) error {
	info, err := fs.Lstat(r.root, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading folder %q: %w", folder, err)
	}
	if !info.IsDir() {
		r.problems.add(Position{File: folder}, "must be a folder; replace the link or file by a folder")
		return nil
	}
	err = fs.WalkDir(r.root, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %q: %w", name, err)
		}
		switch {
		case IsHidden(name) && entry.IsDir():
			return fs.SkipDir
		case IsHidden(name) || entry.IsDir():
			return nil
		}
		return r.readFile(name, entry)
	})
	if errors.Is(err, errFull) {
		return nil // Reported as a problem.
	}
	return err
}

func (r *reader) readFile(name string, entry fs.DirEntry) error {
	at := Position{File: escapePath(name)}
	if !entry.Type().IsRegular() {
		r.problems.add(at, "is a link or a special file; replace it by a regular file")
		return nil
	}
	if msg := checkPath(name); msg != "" {
		r.problems.add(at, "%s", msg)
		return nil
	}
	if len(r.files) >= MaxFiles {
		r.problems.add(Position{File: path.Dir(name)}, "more than %d files; remove what agents do not need", MaxFiles)
		return errFull
	}
	f, err := r.root.Open(name)
	if err != nil {
		return fmt.Errorf("opening %q: %w", name, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize-r.size+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	r.size += int64(len(data))
	if r.size > MaxSize {
		r.problems.add(at, "the files of agents, connectors, tools and tests are more than %d MiB together; remove large files", MaxSize>>20)
		return errFull
	}
	r.files[name] = data
	return nil
}

// checkSizes reports code that is larger than MaxCodeSize.
func (f Files) checkSizes(problems *Problems) {
	var code int
	var largest string
	for _, name := range f.Paths() {
		if strings.HasPrefix(name, testFiles) {
			continue
		}
		code += len(f[name])
		if len(f[name]) > len(f[largest]) {
			largest = name
		}
	}
	if code > MaxCodeSize {
		problems.add(Position{File: largest},
			"all files outside of tests/files have %d bytes together; at most %d are allowed, and this file is the largest", code, MaxCodeSize)
	}
}

// checkPath returns the problem of a path, or "".
func checkPath(name string) string {
	switch {
	case !fs.ValidPath(name) || name == ".":
		return "is not a path inside the repository"
	case len(name) > maxPathLength:
		return fmt.Sprintf("path is longer than %d bytes; shorten it", maxPathLength)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' || r == ':' }):
		return `path has a control character, a backslash or a colon; rename the file`
	case !isInLayout(name):
		return "is outside the folders of the layout"
	}
	return ""
}

func isInLayout(name string) bool {
	folder, _, nested := strings.Cut(name, "/")
	return name == LockFile || nested && IsLayoutFolder(folder)
}

// escapePath returns a path that is safe to show in one line.
func escapePath(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
}

// IsHidden reports whether a file is ignored because its name, or the name of a folder above it, begins with a dot. macOS
// puts ._a.yaml beside a.yaml into archives, and editors write .#a.yaml and .idea/.
func IsHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}
