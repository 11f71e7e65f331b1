// SPDX-License-Identifier: Apache-2.0

// Package excerpt shortens texts to a size in bytes without cutting a character.
package excerpt

import (
	"fmt"
	"math"
	"unicode/utf8"
)

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

// middleMark stands for the middle of a shortened text.
const middleMark = "\n[… %d bytes left out …]\n"

// Ends returns the text if it has at most size bytes. Otherwise it returns a third of size from the beginning of the text and two
// thirds from its end, with a mark between that has the number of bytes in the middle. width returns the bytes that count for a
// character; nil counts the bytes of the text. If the mark alone is longer, the result is only the beginning of the text.
func Ends(text string, size int, width func(r rune) int) string {
	if width == nil {
		width = runeLen
	}
	begin := prefixLen(text, size, width)
	if begin == len(text) {
		return text
	}
	size -= widthOf(fmt.Sprintf(middleMark, math.MaxInt), width)
	if size < 0 {
		return text[:begin]
	}
	begin = prefixLen(text, size/3, width)
	end := len(text)
	for rest := size - size/3; end > begin; {
		r, length := utf8.DecodeLastRuneInString(text[:end])
		if rest -= width(r); rest < 0 {
			break
		}
		end -= length
	}
	return text[:begin] + fmt.Sprintf(middleMark, end-begin) + text[end:]
}

// prefixLen returns the length of the longest beginning of a text that counts at most size bytes.
func prefixLen(text string, size int, width func(r rune) int) (length int) {
	for length < len(text) {
		r, bytes := utf8.DecodeRuneInString(text[length:])
		if size -= width(r); size < 0 {
			break
		}
		length += bytes
	}
	return length
}

func widthOf(text string, width func(r rune) int) (sum int) {
	for _, r := range text {
		sum += width(r)
	}
	return sum
}

// runeLen returns the bytes of a character. An invalid byte decodes to RuneError and counts more than it has.
func runeLen(r rune) int { return max(utf8.RuneLen(r), 1) }
