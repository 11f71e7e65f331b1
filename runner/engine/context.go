// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// runContext holds the values of a run that prompts, expressions and scripts see. Scripts change only values that no
// event brought along. Parallel calls use it at the same time.
type runContext struct {
	from    *runContext // of the steps before, if steps that run at the same time have a copy each
	mu      sync.Mutex
	values  map[string]any   // nil for a copy before begin
	changed map[string]bool  // keys that scripts set
	changes []map[string]any // of a copy since begin
}

// RunContext returns the values of the run's context. The caller may change the map, but not the values.
func (s *Scope) RunContext() map[string]any { return s.values.copyValues() }

func (c *runContext) copyValues() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil && c.from != nil {
		return c.from.copyValues()
	}
	return maps.Clone(c.values)
}

// splitValues returns the changeable values and the read-only values for scripts.
func (c *runContext) splitValues() (changeable, readOnly map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.split()
}

// split is splitValues with the lock held.
func (c *runContext) split() (changeable, readOnly map[string]any) {
	changeable, readOnly = map[string]any{}, make(map[string]any, len(c.values))
	for key, value := range c.values {
		if c.changed[key] {
			changeable[key] = value
		} else {
			readOnly[key] = value
		}
	}
	return changeable, readOnly
}

// applyChanges changes values; a nil deletes one. Values of the run's event stay. If the changed values would be too large
// together, it changes nothing and returns the failure of the run.
func (c *runContext) applyChanges(changes map[string]any) error {
	if len(changes) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changeable, readOnly := c.split()
	for key, value := range changes {
		if _, isOfEvent := readOnly[key]; isOfEvent {
			continue
		}
		changeable[key] = value
		if value == nil {
			delete(changeable, key)
		}
	}
	if _, err := encodeContext(changeable); err != nil {
		return err
	}
	if c.from != nil {
		c.changes = append(c.changes, changes)
	}
	for key := range c.changed {
		delete(c.values, key)
	}
	clear(c.changed)
	for key, value := range changeable {
		c.values[key], c.changed[key] = value, true
	}
	return nil
}

// encodeChanged returns the values that scripts set, as JSON, or nil if there are none.
func (c *runContext) encodeChanged() (json.RawMessage, error) {
	changed, _ := c.splitValues()
	if len(changed) == 0 {
		return nil, nil
	}
	return encodeContext(changed)
}

// encodeContext returns what scripts set in a context as JSON. Its size is the size that the limit of a script counts.
func encodeContext(values map[string]any) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values); err != nil {
		return nil, fmt.Errorf("encoding the context: %w", err)
	}
	text := unescapeSeparators(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
	if len(text) > dispatchapi.MaxContext {
		return nil, &failure{code: runerror.ContextTooLarge, message: fmt.Sprintf(
			"the scripts of the run set a context of %d bytes, the limit is %d; set less", len(text), dispatchapi.MaxContext)}
	}
	return text, nil
}

// unescapeSeparators writes U+2028 and U+2029 as they are. The encoder escapes them for JavaScript, in twice the size.
func unescapeSeparators(text []byte) []byte {
	const escape = `\u2028`
	if !bytes.Contains(text, []byte(`\u202`)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case text[i] != '\\':
			out = append(out, text[i])
		case len(rest) >= len(escape) && (string(rest[:len(escape)]) == escape || string(rest[:len(escape)]) == `\u2029`):
			out = utf8.AppendRune(out, '\u2028'+rune(rest[len(escape)-1]-'8'))
			i += len(escape) - 1
		default:
			out = append(out, rest[:2]...)
			i++
		}
	}
	return out
}

// ContextParts returns the changeable and the read-only values of the run's context for scripts.
func (s *Scope) ContextParts() (changeable, readOnly map[string]any) { return s.values.splitValues() }

// fork returns a copy for a step that runs at the same time as others, so that none sees the changes of another one.
func (c *runContext) fork() *runContext { return &runContext{from: c} }

// begin takes over the values of the steps before. Without a copy it does nothing.
func (c *runContext) begin() {
	if c.from == nil {
		return
	}
	c.from.mu.Lock()
	defer c.from.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values, c.changed, c.changes = maps.Clone(c.from.values), maps.Clone(c.from.changed), nil
}

// join applies the changes of a copy to the original, after all steps that ran at the same time.
// Its error is that of applyChanges.
func (c *runContext) join() error {
	if c.from == nil {
		return nil
	}
	for _, changes := range c.changes {
		if err := c.from.applyChanges(changes); err != nil {
			return err
		}
	}
	return nil
}
