// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"sync"

	"github.com/agentplatform/agentplatform/internal/redact"
)

// mask replaces secrets in texts. It is safe for concurrent use.
type mask struct {
	mu      sync.Mutex
	secrets redact.Secrets
}

// addSecret adds a value and its encoded forms.
func (m *mask) addSecret(value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.secrets.Add(value)
}

// redactText returns a text without secrets.
func (m *mask) redactText(text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secrets.RedactText(text)
}

// hasSecret reports whether a text contains a secret.
func (m *mask) hasSecret(text string) bool { return m.redactText(text) != text }

// redactObject returns a copy of an object of JSON values without secrets.
func (m *mask) redactObject(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	clean, _ := m.secrets.RedactValue(copyValue(object)).(map[string]any)
	return clean
}

// copyValue copies the lists and maps of a JSON value.
func copyValue(value any) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copyValue(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			out[name] = copyValue(inner)
		}
		return out
	}
	return value
}
