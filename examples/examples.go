// SPDX-License-Identifier: Apache-2.0

// Package examples embeds example project repositories. The demo and the tests deploy them, and
// `agentctl init` copies one.
package examples

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed all:*/*
var files embed.FS

// Names returns the names of all examples in alphabetical order.
func Names() (names []string) {
	entries, _ := fs.ReadDir(files, ".") // cannot fail: the files are embedded
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Open returns the files of an example.
func Open(name string) (fs.FS, error) {
	for _, known := range Names() {
		if name == known {
			return fs.Sub(files, name)
		}
	}
	return nil, fmt.Errorf("there is no example %q; there is %s", name, strings.Join(Names(), ", "))
}

// About returns the summary of an example: the first line after the heading of its README.
func About(name string) string {
	readme, _ := fs.ReadFile(files, name+"/README.md") // a test checks that every example has a README
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}
