// SPDX-License-Identifier: Apache-2.0

// Package displayname defines the valid display names, for objects, the REST API and a project's
// repository.
package displayname

import (
	"regexp"
	"strings"
)

// MaxLength limits a name, in characters.
const MaxLength = 63

// control are characters that are invisible or change the display of other characters: control
// characters, line and paragraph separators, characters that change the direction of text, and
// invisible ones. Joiners and variation selectors are allowed, because some scripts and emoji need them.
const control = blankLetters + `\p{Cc}\p{Zl}\p{Zp}\x{00AD}\x{061C}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}\x{FFF9}-\x{FFFB}\x{E0000}-\x{E007F}`

// blankLetters are letters and symbols that show nothing: fillers of Hangul, vowels of Khmer and the blank of Braille.
const blankLetters = `\x{115F}\x{1160}\x{17B4}\x{17B5}\x{2800}\x{3164}\x{FFA0}`

// modifiers show nothing alone: the grapheme joiner and variation selectors.
const modifiers = `\x{034F}\x{180B}-\x{180D}\x{180F}\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}`

// Pattern matches valid names in RE2 syntax, for CEL and Go. It does not limit their length.
const Pattern = `^[^\pZ\p{Cf}` + control + modifiers + `]([^` + control + `]*[^\pZ\p{Cf}` + control + `])?$`

// Message describes Pattern.
const Message = "must not be blank, and have no white space around it, control characters, line breaks, invisible characters or characters that change the direction of text"

var pattern = regexp.MustCompile(Pattern)

// Problem returns the problem of a name except its length, or "".
func Problem(name string) string {
	switch trimmed := strings.TrimSpace(name); {
	case pattern.MatchString(name):
		return ""
	case strings.TrimFunc(name, isInvisible) == "":
		return "must not be blank"
	case pattern.MatchString(trimmed):
		return "must have no white space around it"
	default:
		return "must not have control characters, line breaks, invisible characters or characters that change the direction of text"
	}
}

// invisible matches a character that shows nothing alone.
var invisible = regexp.MustCompile(`^[\pZ\p{Cf}` + control + modifiers + `]$`)

// isInvisible reports whether a character shows nothing alone.
func isInvisible(r rune) bool { return invisible.MatchString(string(r)) }
