// SPDX-License-Identifier: Apache-2.0

// Package displayname declares the names for people that the platform takes, wherever they are given:
// in objects, in the REST API and in a project's repository.
package displayname

import (
	"regexp"
	"strings"
)

// MaxLength is the most characters of a name.
const MaxLength = 63

// control are characters that change how others are shown, instead of being shown: control
// characters, those that separate lines or paragraphs, and those that change the direction of text.
const control = `\p{Cc}\p{Zl}\p{Zp}\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}\x{FEFF}`

// Pattern matches names in the syntax RE2, which CEL and Go share. It does not bound their length.
const Pattern = `^[^\pZ` + control + `]([^` + control + `]*[^\pZ` + control + `])?$`

// Message says what Pattern demands.
const Message = "must not be blank, and have no white space around it, control characters, line breaks or characters that change the direction of text"

var pattern = regexp.MustCompile(Pattern)

// Problem says what is wrong with a name, beside its length; "" if nothing is.
func Problem(name string) string {
	switch trimmed := strings.TrimSpace(name); {
	case pattern.MatchString(name):
		return ""
	case trimmed == "":
		return "must not be blank"
	case pattern.MatchString(trimmed):
		return "must have no white space around it"
	default:
		return "must not have control characters, line breaks or characters that change the direction of text"
	}
}
