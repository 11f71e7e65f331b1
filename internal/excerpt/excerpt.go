// SPDX-License-Identifier: Apache-2.0

// Package excerpt shortens texts to a size in bytes without cutting a character.
package excerpt

import "unicode/utf8"

// Ellipsis is the mark at the end of a shortened text that people read.
const Ellipsis = "…"

// Of returns the text if it has at most size bytes. Otherwise it returns the beginning of the text with the mark, together at
// most size bytes. If the mark alone is longer, the result is only the beginning of the text.
func Of(text string, size int, mark string) string {
	if len(text) <= size {
		return text
	}
	end := max(size, 0) - len(mark)
	if end < 0 {
		end, mark = max(size, 0), ""
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
