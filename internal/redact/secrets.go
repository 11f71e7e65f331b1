// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// SecretMask replaces a secret in a text.
const SecretMask = "[REDACTED]"

const (
	// minSecret is the length of the shortest value that is replaced, in bytes. Shorter values would
	// make most texts unreadable and can be guessed anyway.
	minSecret = 4
	// minFragment is the length of the shortest part of a value that is replaced: a line, or the part of
	// a base64 text that only the value determines.
	minFragment = 12
)

// Secrets are values that must not leave a request, such as sensitive variables. The zero value has
// none. It finds a value as it is, and in the encodings that services return: escaped for URLs, HTML
// and JSON, and in base64 also as a part of a longer text. It does not find other encodings, values
// that are encoded twice, and parts of a value except whole lines.
type Secrets struct {
	forms    []string
	replacer *strings.Replacer
}

// Add adds values and their encoded forms. It ignores white space around a value.
func (s *Secrets) Add(values ...string) {
	before := len(s.forms)
	for _, value := range values {
		value = strings.TrimSpace(value)
		if len(value) < minSecret {
			continue
		}
		s.addForms(value)
		if lines := strings.Split(value, "\n"); len(lines) > 1 {
			for _, line := range lines {
				if line = strings.TrimSpace(line); len(line) >= minFragment {
					s.addForms(line)
				}
			}
		}
	}
	if len(s.forms) == before {
		return
	}
	slices.SortFunc(s.forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(s.forms))
	for _, form := range s.forms {
		pairs = append(pairs, form, SecretMask)
	}
	s.replacer = strings.NewReplacer(pairs...)
}

func (s *Secrets) addForms(value string) {
	for _, form := range slices.Concat([]string{value, html.EscapeString(value)}, urlForms(value), jsonForms(value), base64Forms(value)) {
		if !slices.Contains(s.forms, form) {
			s.forms = append(s.forms, form)
		}
	}
}

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// urlForms returns a value escaped for URLs, with upper and lower hexadecimal digits.
func urlForms(value string) []string {
	query, path := url.QueryEscape(value), url.PathEscape(value)
	return []string{query, path, percent.ReplaceAllStringFunc(query, strings.ToLower), percent.ReplaceAllStringFunc(path, strings.ToLower)}
}

// jsonForms returns a value as a JSON string without its quotes: escaped for HTML, as few characters
// as possible, and in ASCII only.
func jsonForms(value string) (forms []string) {
	for _, escapeHTML := range []bool{true, false} {
		var out strings.Builder
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(escapeHTML)
		if err := encoder.Encode(value); err != nil {
			return nil // Impossible: the value is a text.
		}
		inner := strings.TrimSuffix(out.String(), "\n")
		inner = inner[1 : len(inner)-1]
		forms = append(forms, inner, asciiJSON(inner))
	}
	return forms
}

// asciiJSON escapes all characters of a JSON string that are not ASCII.
func asciiJSON(text string) string {
	var out strings.Builder
	for _, r := range text {
		if r < 0x80 {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// base64Forms returns a value in base64, and the characters that a longer text with the value has in base64 at each of the
// three alignments.
func base64Forms(value string) (forms []string) {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := encoding.EncodeToString([]byte(value))
		forms = append(forms, whole, strings.TrimRight(whole, "="))
		for before := range 3 {
			text := encoding.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, before), value...))
			end := len(text)
			if (before+len(value))%3 != 0 {
				end-- // The next byte determines a part of the last character.
			}
			start := (before*8 + 5) / 6
			if end-start >= minFragment {
				forms = append(forms, text[start:end])
			}
		}
	}
	return forms
}

// RedactText returns a text without secrets.
func (s *Secrets) RedactText(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// Overlaps reports whether a text has a secret, or is a part of one.
func (s *Secrets) Overlaps(text string) bool {
	return s.RedactText(text) != text || s != nil && slices.ContainsFunc(s.forms, func(form string) bool { return strings.Contains(form, text) })
}

// RedactValue returns a decoded JSON value without secrets. It changes lists and maps in place. A number with a secret
// becomes a text.
func (s *Secrets) RedactValue(value any) any {
	if s == nil || s.replacer == nil {
		return value
	}
	switch v := value.(type) {
	case string:
		return s.RedactText(v)
	case json.Number:
		if text := s.RedactText(string(v)); text != string(v) {
			return text
		}
	case []any:
		for i := range v {
			v[i] = s.RedactValue(v[i])
		}
	case map[string]any:
		for name, inner := range v {
			clean := s.RedactText(name)
			if clean != name {
				delete(v, name)
			}
			v[clean] = s.RedactValue(inner)
		}
	}
	return value
}
