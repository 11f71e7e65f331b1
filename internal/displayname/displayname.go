// SPDX-License-Identifier: Apache-2.0

// Package displayname defines the valid display names, for objects, the REST API and a project's
// repository.
package displayname

import (
	"regexp"
	"strings"
	"unicode"
)

// MaxLength limits a name, in characters.
const MaxLength = 63

// control are characters that are invisible or change the display of other characters: control
// characters, line and paragraph separators, characters that change the direction of text, and
// invisible ones. Joiners are allowed, because some scripts and emoji need them.
const control = `\p{Cc}\p{Zl}\p{Zp}\x{00AD}\x{061C}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}\x{FFF9}-\x{FFFB}\x{E0000}-\x{E007F}`

// Pattern matches valid names in RE2 syntax, for CEL and Go. It does not limit their length.
const Pattern = `^[^\pZ\p{Cf}` + control + `]([^` + control + `]*[^\pZ\p{Cf}` + control + `])?$`

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

// isInvisible reports whether a character is invisible.
func isInvisible(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }
