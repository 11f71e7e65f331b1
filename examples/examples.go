// SPDX-License-Identifier: Apache-2.0

// Package examples holds project repositories that somebody would deploy: what the demo
// and the tests deploy, and what `agentctl init` begins with.
package examples

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed all:*/*
var files embed.FS

// Names are the names of all, in order.
func Names() (names []string) {
	entries, _ := fs.ReadDir(files, ".") // which cannot fail: it is part of the program
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Open returns the files of one.
func Open(name string) (fs.FS, error) {
	for _, known := range Names() {
		if name == known {
			return fs.Sub(files, name)
		}
	}
	return nil, fmt.Errorf("there is no example %q; there is %s", name, strings.Join(Names(), ", "))
}

// About is what one is, as its README says first: the first line after the heading.
func About(name string) string {
	readme, _ := fs.ReadFile(files, name+"/README.md") // whose README is missing says nothing; a test holds that none is
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}
