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

// layout are the folders of a repository that are read and packed.
var layout = []string{
	"agents", "connectors", "guardrails", "hooks", "middleware", "models", "schemas", "tests", "tools",
}

// testFiles is the folder of attachments, which do not count as code.
const testFiles = "tests/files/"

// Files are the files of a repository's layout by slash-separated path.
type Files map[string][]byte

// Paths returns the paths in order.
func (f Files) Paths() []string { return slices.Sorted(maps.Keys(f)) }

// ReadFiles reads the folders of the layout from the root of a repository. The
// error is Problems when the repository is at fault: links, unusual paths, too
// many files or bytes.
func ReadFiles(root fs.FS) (Files, error) {
	r := reader{root: root, files: Files{}}
	for _, folder := range layout {
		if err := r.readFolder(folder); err != nil {
			return nil, err
		}
	}
	r.files.checkSizes(&r.problems)
	if err := r.problems.err(); err != nil {
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
		r.problems.add(Position{File: folder}, "must be a folder; a link or a file of that name is not followed")
		return nil
	}
	err = fs.WalkDir(r.root, folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %q: %w", name, err)
		}
		switch {
		case Hidden(name) && entry.IsDir():
			return fs.SkipDir
		case Hidden(name) || entry.IsDir():
			return nil
		}
		return r.readFile(name, entry)
	})
	if errors.Is(err, errFull) {
		return nil // Said as a problem.
	}
	return err
}

func (r *reader) readFile(name string, entry fs.DirEntry) error {
	at := Position{File: printable(name)}
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

// checkSizes reports when code is more than allowed.
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
		problems.add(Position{File: largest}, "all files but those in tests/files are %d bytes together, at most %d are allowed; this is the largest", code, MaxCodeSize)
	}
}

// checkPath says what is wrong with a path, or nothing.
func checkPath(name string) string {
	switch {
	case !fs.ValidPath(name) || name == ".":
		return "is not a path inside the repository"
	case len(name) > maxPathLength:
		return fmt.Sprintf("path is longer than %d bytes; shorten it", maxPathLength)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' || r == ':' }):
		return `path has a control character, a backslash or a colon; rename the file`
	case !inLayout(name):
		return "is outside the folders of the layout"
	}
	return ""
}

func inLayout(name string) bool {
	folder, _, nested := strings.Cut(name, "/")
	return nested && slices.Contains(layout, folder)
}

// printable makes a path safe to show in one line.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
}

// Hidden reports whether a file is passed over because its name, or that of a folder that it is in, begins
// with a dot: macOS puts ._a.yaml beside a.yaml into archives, and editors write .#a.yaml and .idea/.
func Hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

// InLayout says whether a name at the root of a repository is a folder that is
// read and packed.
func InLayout(folder string) bool { return slices.Contains(layout, folder) }
