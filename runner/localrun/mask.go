// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
	"sync"
)

const (
	// masked replaces a secret, as in results of HTTP tools.
	masked = "[REDACTED]"
	// minSecret is the length of the shortest secret, in bytes. Shorter values are part of many words.
	minSecret = 4
)

// mask replaces secrets in texts. It is safe for concurrent use.
type mask struct {
	mu       sync.Mutex
	forms    []string
	replacer *strings.Replacer
}

// addSecret adds a value and its encoded forms.
func (m *mask) addSecret(value string) {
	value = strings.TrimSpace(value)
	if len(value) < minSecret {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	quoted, err := json.Marshal(value)
	if err != nil {
		quoted = nil // Impossible: the value is a text.
	}
	for _, form := range []string{
		value, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value), strings.Trim(string(quoted), `"`),
		base64.StdEncoding.EncodeToString([]byte(value)),
	} {
		if form != "" && !slices.Contains(m.forms, form) {
			m.forms = append(m.forms, form)
		}
	}
	slices.SortFunc(m.forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(m.forms))
	for _, form := range m.forms {
		pairs = append(pairs, form, masked)
	}
	m.replacer = strings.NewReplacer(pairs...)
}

// redactText returns a text without secrets.
func (m *mask) redactText(text string) string {
	m.mu.Lock()
	replacer := m.replacer
	m.mu.Unlock()
	if replacer == nil {
		return text
	}
	return replacer.Replace(text)
}

// hasSecret reports whether a text contains a secret.
func (m *mask) hasSecret(text string) bool { return m.redactText(text) != text }

// redactValue returns a copy of a JSON value without secrets.
func (m *mask) redactValue(value any) any {
	switch v := value.(type) {
	case string:
		return m.redactText(v)
	case json.Number:
		if text := m.redactText(string(v)); text != string(v) {
			return text
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.redactValue(v[i])
		}
		return out
	case map[string]any:
		return m.redactObject(v)
	}
	return value
}

// redactObject returns a copy of an object without secrets.
func (m *mask) redactObject(v map[string]any) map[string]any {
	if v == nil {
		return nil
	}
	out := make(map[string]any, len(v))
	for name, inner := range v {
		out[m.redactText(name)] = m.redactValue(inner)
	}
	return out
}
