// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"strings"

	"go.starlark.net/starlark"
)

const (
	// inputKey is the key of the context with the input of the run, payloadKey the key for it in middleware and hooks.
	inputKey   = "input"
	payloadKey = "payload"
	// filesKey is the key of the attachments in the input, dataKey the key of their data.
	filesKey = "files"
	dataKey  = "data"
)

// addPayload adds the input of the run to the context, with the data of its attachments.
func (m *contextMap) addPayload(c *call, files int) error {
	payload, found, err := m.Get(starlark.String(inputKey))
	if err != nil || !found {
		return err
	}
	if object, isObject := payload.(*starlark.Dict); isObject && files > 0 {
		if payload, err = withData(c, object, files); err != nil {
			return err
		}
	}
	m.readOnly = append(m.readOnly, payloadKey)
	return m.Dict.SetKey(starlark.String(payloadKey), payload)
}

// withData returns a copy of an input whose files have data.
func withData(c *call, input *starlark.Dict, files int) (starlark.Value, error) {
	payload := new(starlark.Dict)
	for key, value := range input.Entries() {
		if list, isList := value.(*starlark.List); isList && key == starlark.String(filesKey) && list.Len() == files {
			entries := make([]starlark.Value, 0, files)
			for i := range files {
				about, isObject := list.Index(i).(*starlark.Dict)
				if !isObject {
					return nil, errors.New("the files of the input are no objects")
				}
				entry, err := newFileMap(c, i, about)
				if err != nil {
					return nil, err
				}
				entries = append(entries, entry)
			}
			value = starlark.NewList(entries)
			value.Freeze()
		}
		if err := payload.SetKey(key, value); err != nil {
			return nil, err
		}
	}
	payload.Freeze()
	return payload, nil
}

// fileMap is an attachment. Its data is requested when the script reads it.
type fileMap struct {
	*starlark.Dict
	call  *call
	index int
	read  bool
}

func newFileMap(c *call, index int, about *starlark.Dict) (*fileMap, error) {
	f := &fileMap{Dict: new(starlark.Dict), call: c, index: index}
	for key, value := range about.Entries() {
		if err := f.Dict.SetKey(key, value); err != nil {
			return nil, err
		}
	}
	return f, f.Dict.SetKey(starlark.String(dataKey), starlark.None)
}

// Type keeps the interpreter from comparing the map with a dict, as for the context.
func (f *fileMap) Type() string { return "file" }

// String returns the metadata.
func (f *fileMap) String() string { return fmt.Sprintf("<file %d>", f.index+1) }

// Freeze does nothing, because scripts cannot change the map.
func (f *fileMap) Freeze() {}

// SetKey rejects changes.
func (f *fileMap) SetKey(starlark.Value, starlark.Value) error {
	return errors.New("an attachment is read-only")
}

// Get requests the data if the script reads it.
func (f *fileMap) Get(key starlark.Value) (starlark.Value, bool, error) {
	if key == starlark.String(dataKey) {
		if err := f.readData(); err != nil {
			return nil, false, err
		}
	}
	return f.Dict.Get(key)
}

// Attr returns the methods of a dict that change nothing.
func (f *fileMap) Attr(name string) (starlark.Value, error) {
	switch name {
	case "keys":
		return f.Dict.Attr(name)
	case "get", "items", "values":
		method, err := f.Dict.Attr(name)
		builtin, ok := method.(*starlark.Builtin)
		if err != nil || !ok {
			return method, err
		}
		return starlark.NewBuiltin(name, func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
			if name != "get" || len(args) > 0 && args[0] == starlark.String(dataKey) {
				if err := f.readData(); err != nil {
					return nil, err
				}
			}
			return builtin.CallInternal(thread, args, kwargs)
		}), nil
	}
	return nil, nil
}

// AttrNames returns the names of the methods.
func (f *fileMap) AttrNames() []string { return []string{"get", "items", "keys", "values"} }

// readData requests the data once, in parts.
func (f *fileMap) readData() error {
	if f.read {
		return nil
	}
	var data strings.Builder
	for offset, more := 0, true; more; {
		answer, err := f.call.askParent(FileData, fmt.Appendf(nil, `{"index":%d,"offset":%d}`, f.index, offset))
		if err != nil {
			return err
		}
		part, isObject := answer.(*starlark.Dict)
		if !isObject {
			return errors.New("the data of an attachment has a wrong type")
		}
		text, _, err := part.Get(starlark.String(dataKey))
		if err != nil {
			return err
		}
		next, _, err := part.Get(starlark.String("more"))
		if err != nil {
			return err
		}
		encoded, _ := starlark.AsString(text)
		data.WriteString(encoded)
		offset += len(encoded) / 4 * 3
		more = next == starlark.True
	}
	f.read = true
	return f.Dict.SetKey(starlark.String(dataKey), starlark.String(data.String()))
}
