// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"
)

// maxContext limits the part of a run's context that scripts can change, as JSON in bytes.
const maxContext = 64 << 10

// contextMap is the context of a run. Scripts see one map. Some of its keys are read-only.
type contextMap struct {
	*starlark.Dict
	readOnly []string
}

// newContextMap joins the parts of a context, which are JSON objects. A read-only key hides a changeable one.
func newContextMap(changeable, readOnly []byte) (*contextMap, error) {
	m := &contextMap{Dict: new(starlark.Dict)}
	for i, text := range [][]byte{changeable, readOnly} {
		if len(text) == 0 {
			continue
		}
		value, err := decodeValue(text)
		if err != nil {
			return nil, err
		}
		part, ok := value.(*starlark.Dict)
		if !ok {
			return nil, fmt.Errorf("the context is a %s", value.Type())
		}
		for key, value := range part.Entries() {
			if i > 0 {
				value.Freeze()
				name, _ := starlark.AsString(key)
				m.readOnly = append(m.readOnly, name)
			}
			if err := m.Dict.SetKey(key, value); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// Type keeps the interpreter from comparing the map with a dict, which it would do by the type of its Go value.
func (m *contextMap) Type() string { return "context" }

// SetKey rejects read-only keys.
func (m *contextMap) SetKey(key, value starlark.Value) error {
	if name, ok := starlark.AsString(key); ok && slices.Contains(m.readOnly, name) {
		return fmt.Errorf("context[%q] is read-only", name)
	}
	return m.Dict.SetKey(key, value)
}

// Attr returns the methods of a dict. Methods that change the map leave read-only keys alone.
func (m *contextMap) Attr(name string) (starlark.Value, error) {
	method, err := m.Dict.Attr(name)
	builtin, ok := method.(*starlark.Builtin)
	if err != nil || !ok {
		return method, err
	}
	switch name {
	case "clear", "pop", "popitem", "setdefault", "update":
		return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			before := m.readOnlyValues()
			result, err := builtin.CallInternal(thread, args, kwargs)
			if err == nil && !slices.Equal(before, m.readOnlyValues()) {
				return nil, fmt.Errorf("context.%s changes a read-only key", name)
			}
			return result, err
		}), nil
	}
	return method, nil
}

func (m *contextMap) readOnlyValues() []starlark.Value {
	values := make([]starlark.Value, len(m.readOnly))
	for i, name := range m.readOnly {
		values[i], _, _ = m.Get(starlark.String(name))
	}
	return values
}

// encode returns the part that scripts can change.
func (m *contextMap) encode() ([]byte, error) {
	var changeable starlark.Dict
	for key, value := range m.Entries() {
		if name, ok := starlark.AsString(key); ok && slices.Contains(m.readOnly, name) {
			continue
		}
		if err := changeable.SetKey(key, value); err != nil {
			return nil, err
		}
	}
	return encodeValue(&changeable, maxContext)
}
