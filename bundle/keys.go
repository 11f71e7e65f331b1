// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// agentFields are the keys of an agent.
var agentFields = fieldsOf(reflect.TypeFor[Agent]())

// Key describes a key of a file, from the tags of its field. See type field for their meaning.
type Key struct {
	// Path is the name of the key after the keys above it, such as retry_options.attempts. [] follows the name of a list.
	Path string
	// Field is the Go field, as Struct.Field.
	Field string
	// Types are the values of the key "type" that have the key, nil if there is no such key or the key is for all.
	Types []string
	// Kinds are the kinds of connectors that have the key of config.
	Kinds []string
	Doc   string
	// Default is the value without the key, "" for none.
	Default string
	// Example is a valid value in YAML, on one line.
	Example string
	// File is the file of the repository that the example names, "" for none.
	File string
	// Bounds are the bounds of a number as a phrase, such as "between 0 and 2".
	Bounds string
	// Enum are the allowed values. UnsupportedValues are the values that this release rejects.
	Enum, UnsupportedValues []string
	Required                bool
	// Excludes are the keys beside it that cannot be written together with it. One of all is required if it is required.
	Excludes []string
	// Unsupported is true if this release rejects the key.
	Unsupported bool
}

// Keys returns the keys of the files of a kind, each followed by the keys inside it.
func Keys(kind Kind) []Key {
	roots := map[Kind]reflect.Value{
		KindAgent: reflect.ValueOf(*newAgent("", nil)), KindConnector: reflect.ValueOf(Connector{Enabled: true}),
		KindModel: reflect.ValueOf(Script{}), KindSuite: reflect.ValueOf(Suite{}),
		KindTools: reflect.ValueOf(newToolFile("", nil)),
	}
	root, ok := roots[kind]
	if !ok {
		return nil
	}
	return listKeys(root, "")
}

// listKeys lists the keys of a struct. The defaults are the values of its fields without their keys.
func listKeys(defaults reflect.Value, prefix string) (keys []Key) {
	fields := fieldsOf(defaults.Type())
	for _, f := range fields.ordered {
		v := defaults.FieldByIndex(f.index)
		key := Key{
			Path: prefix + f.name, Field: f.goName(defaults.Type()),
			Types: f.types, Kinds: f.kinds, Doc: f.doc,
			Default: defaultText(v, f), Example: exampleOf(f), Bounds: f.describeBounds(), Enum: f.enum, UnsupportedValues: f.unsupportedValues,
			Required: f.required || f.needed != "" || len(f.requiredFor) > 0, Unsupported: !fields.isSupported(f),
			Excludes: fields.excluded(f),
		}
		if f.isList() {
			key.Path += "[]"
		}
		if f.folder != "" {
			key.File = f.folder + f.example + f.extension
		}
		keys = append(keys, key)
		inner, path := f.goType, key.Path+"."
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			if inner.Kind() == reflect.Map {
				path = key.Path + ".*."
			}
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() != reflect.Struct:
		case inner == f.goType:
			keys = append(keys, listKeys(v, path)...)
		case inner == reflect.TypeFor[Case]():
			keys = append(keys, listKeys(reflect.ValueOf(newCase()), path)...)
		default:
			keys = append(keys, listKeys(reflect.Zero(inner), path)...)
		}
	}
	return keys
}

// goName returns the name of the Go field of a key, as Struct.Field.
func (f *field) goName(t reflect.Type) string {
	outer := t
	if len(f.index) > 1 {
		outer = t.FieldByIndex(f.index[:len(f.index)-1]).Type
	}
	return outer.Name() + "." + t.FieldByIndex(f.index).Name
}

// defaultText returns the default of a field for people.
func defaultText(v reflect.Value, f *field) string {
	if f.without != "" {
		return f.without
	}
	switch value := defaultOf(v).(type) {
	case nil:
		return ""
	default:
		if d, ok := v.Interface().(Duration); ok {
			return d.Std().String()
		}
		return fmt.Sprint(value)
	}
}

// exampleOf returns the example of a field, composed of the examples inside it if the field is a struct or a list of structs.
func exampleOf(f *field) string {
	t, format := f.goType, "%s"
	if t.Kind() == reflect.Slice {
		t, format = t.Elem(), "[%s]"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || len(fieldsOf(t).ordered) == 0 {
		return f.example
	}
	var parts []string
	written := map[string]bool{} // choices
	for _, inner := range fieldsOf(t).ordered {
		if example := exampleOf(inner); example != "" && !written[inner.choice] {
			written[inner.choice] = inner.choice != ""
			parts = append(parts, inner.name+": "+example)
		}
	}
	return fmt.Sprintf(format, "{"+strings.Join(parts, ", ")+"}")
}

// AgentTypes returns the types of agents that this release supports.
func AgentTypes() []string { return slices.Clone(agentFields.byName["type"].supportedEnum()) }
