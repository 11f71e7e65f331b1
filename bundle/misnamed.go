// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"slices"
	"strings"
)

// Misnamed are warnings about files of a repository, by their slash-separated paths from its root, that
// are not read and look as if they were meant to be: those in a folder whose name is almost one of the
// layout's, a warning for each folder. What is not read on purpose, such as docs/ or src/, is none of
// them. A build does not fail for them, as it does for a file of the layout with another ending.
func Misnamed(paths []string) (warnings Problems) {
	for _, name := range paths {
		folder, _, nested := strings.Cut(name, "/")
		switch meant := Meant(folder); {
		case !nested || Hidden(name) || strings.HasPrefix(name, testFiles):
		case meant != "" && hasEnding(name, meant):
			warnings.add(Position{File: printable(folder)}, "is not read, for the folder is called %s; rename it where that is meant", meant)
		}
	}
	warnings.sort()
	return warnings
}

// Meant is the folder of the layout whose name that of another folder at the root of a repository almost
// is: another case, the singular, or a letter that is missing, too many or swapped with the next one. ""
// of any other folder, and of those of the layout.
func Meant(folder string) string {
	lower := strings.ToLower(folder)
	if InLayout(folder) || len(lower) < 4 {
		return ""
	}
	for _, known := range layout {
		if lower == known || oneLetterMore(lower, known) || oneLetterMore(known, lower) || swapped(lower, known) {
			return known
		}
	}
	return ""
}

// oneLetterMore says whether a word is another one with a letter put in somewhere.
func oneLetterMore(long, short string) bool {
	if len(long) != len(short)+1 {
		return false
	}
	for i := range len(long) {
		if long[:i]+long[i+1:] == short {
			return 'a' <= long[i] && long[i] <= 'z'
		}
	}
	return false
}

// swapped says whether two letters beside each other make the difference.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) - 1 {
		if a[:i]+a[i+1:i+2]+a[i:i+1]+a[i+2:] == b {
			return true
		}
	}
	return false
}

// endings are those of the files that folders hold; the others hold YAML.
var endings = map[string][]string{
	"guardrails": {".star"}, "hooks": {".star"}, "middleware": {".star"}, "tools": {".star"}, "schemas": {".json"},
}

// hasEnding says whether a file has an ending of those that a folder of the layout holds.
func hasEnding(name, folder string) bool {
	known := endings[folder]
	if known == nil {
		known = []string{".yaml", ".yml"}
	}
	return slices.Contains(known, strings.ToLower(path.Ext(name)))
}
