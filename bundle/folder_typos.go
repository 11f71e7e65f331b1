// SPDX-License-Identifier: Apache-2.0

package bundle

import "strings"

// MisnamedFolders returns a warning for each folder that is not read and whose name is almost that of a folder of the
// layout. The paths have slashes and start at the root. Folders with other names, such as
// docs/ or src/, cause no warning. A build does not fail for a misnamed folder.
func MisnamedFolders(paths []string) (warnings Problems) {
	for _, name := range paths {
		root, _, nested := strings.Cut(name, "/")
		suggested := SuggestFolder(root)
		if nested && suggested != "" && !IsHidden(name) && folderOf(suggested).hasExtension(name) {
			warnings.add(Position{File: escapePath(root)},
				"is not read: the name of the folder is %s; rename it if you meant that folder", suggested)
		}
	}
	warnings.sort()
	return warnings
}

// SuggestFolder returns the folder of the layout whose name is almost the given name: in another case, in the singular,
// or with one letter missing, added, or swapped with the next letter. It returns "" for any other name, and for the names
// of the layout.
func SuggestFolder(name string) string {
	lower := strings.ToLower(name)
	if IsLayoutFolder(name) || len(lower) < 4 {
		return ""
	}
	for _, known := range folderNames() {
		if lower == known || isOneLetterLonger(lower, known) || isOneLetterLonger(known, lower) || isSwapped(lower, known) {
			return known
		}
	}
	return ""
}

// isOneLetterLonger reports whether a word is another word with one letter added.
func isOneLetterLonger(long, short string) bool {
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

// isSwapped reports whether two words differ by two adjacent letters only.
func isSwapped(a, b string) bool {
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
