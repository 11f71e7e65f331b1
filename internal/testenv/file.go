// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// files are the originals of prepared files by name.
var files sync.Map // name → *file

type file struct {
	once    sync.Once
	content []byte
	err     error
}

// FilePrepared returns a fresh copy of a file that prepare creates once per test binary and name.
// prepare must close it.
//
// In Ginkgo, call it with GinkgoTB().
func FilePrepared(tb testing.TB, name string, prepare func(path string) error) (path string) {
	tb.Helper()
	entry, _ := files.LoadOrStore(name, &file{})
	f := entry.(*file)
	f.once.Do(func() {
		first := filepath.Join(tb.TempDir(), "first")
		if f.err = prepare(first); f.err == nil {
			f.content, f.err = os.ReadFile(first)
		}
	})
	if f.err != nil {
		tb.Fatalf("testenv: preparing file %q: %v", name, f.err)
	}
	path = filepath.Join(tb.TempDir(), "prepared")
	if err := os.WriteFile(path, f.content, 0o600); err != nil {
		tb.Fatalf("testenv: copying file %q: %v", name, err)
	}
	return path
}
