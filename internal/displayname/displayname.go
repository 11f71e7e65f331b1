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
// invisible ones. Joiners are allowed, because some scripts and emoji need them.
const control = blankLetters + `\x{034F}\p{Cc}\p{Zl}\p{Zp}\x{00AD}\x{061C}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}\x{FFF9}-\x{FFFB}\x{E0000}-\x{E007F}`

// blankLetters are letters and symbols that show nothing: fillers of Hangul, vowels of Khmer and the blank of Braille.
const blankLetters = `\x{115F}\x{1160}\x{17B4}\x{17B5}\x{2800}\x{3164}\x{FFA0}`

// selectors are the variation selectors, which show nothing alone.
const selectors = `\x{180B}-\x{180D}\x{180F}\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}`

// selected matches the characters that can have a variation selector, with it: emoji and symbols, keycaps and Mongolian letters.
// After another character a selector can be invisible, so that two names look the same.
const selected = `[\x{00A9}\x{00AE}\x{203C}\x{2049}\x{2122}\x{2139}\x{2190}-\x{23FF}\x{24C2}\x{25A0}-\x{27BF}\x{2900}-\x{297F}\x{2B00}-\x{2BFF}` +
	`\x{3030}\x{303D}\x{3297}\x{3299}\x{1F000}-\x{1FAFF}][\x{FE0E}\x{FE0F}]|[0-9#*]\x{FE0F}\x{20E3}|[\x{1820}-\x{18AA}][\x{180B}-\x{180D}\x{180F}]`

// inner and outer match a character of a name. outer matches the ones that can be first or last.
const (
	inner = `(?:` + selected + `|[^` + control + selectors + `])`
	outer = `(?:` + selected + `|[^\pZ\p{Cf}` + control + selectors + `])`
)

// Pattern matches valid names in RE2 syntax, for CEL and Go. It does not limit their length.
const Pattern = `^` + outer + `(` + inner + `*` + outer + `)?$`

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
var invisible = regexp.MustCompile(`^[\pZ\p{Cf}` + control + selectors + `]$`)

// isInvisible reports whether a character shows nothing alone.
func isInvisible(r rune) bool { return invisible.MatchString(string(r)) }
