// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/connector"
)

// Kind is the kind of a YAML file in a repository.
type Kind string

// Kinds of files.
const (
	KindAgent     Kind = "agent"
	KindDefaults  Kind = "defaults"
	KindConnector Kind = "connector"
	KindModel     Kind = "model"
	KindSuite     Kind = "suite"
	KindTools     Kind = "tools"
)

// Kinds are all kinds, in the order of the layout, each with the pattern of its files.
var Kinds = []struct {
	Kind  Kind
	Files string
}{
	{KindAgent, "agents/**/*.yaml"},
	{KindDefaults, "agents/**/" + defaultsFile},
	{KindConnector, "connectors/*.yaml"},
	{KindModel, "models/*.yaml"},
	{KindSuite, "tests/**/*.yaml"},
	{KindTools, "tools/**/*.yaml"},
}

// KindOf returns the kind of a file in a repository, "" for a file that is not parsed.
func KindOf(file string) Kind {
	folder, _, _ := strings.Cut(file, "/")
	switch {
	case path.Ext(file) != ".yaml" || strings.HasPrefix(file, testFiles):
		return ""
	case folder == "agents" && path.Base(file) == defaultsFile:
		return KindDefaults
	}
	return map[string]Kind{"agents": KindAgent, "connectors": KindConnector, "models": KindModel, "tests": KindSuite, "tools": KindTools}[folder]
}

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// schemaBuilder makes schemas from the tags of structs.
type schemaBuilder struct {
	// full is true for schemas that have all keys and values that the parser knows, also unsupported ones.
	full bool
	// partial is true for files of defaults, in which no key is required.
	partial bool
}

// Schema returns the JSON Schema (2020-12) of the files of a kind, for editors: the keys and values that this release
// supports, their types and bounds. It accepts each file that a build accepts, except for an enum value that is written
// and empty. It cannot check references to other files.
func Schema(kind Kind) ([]byte, error) { return schemaBuilder{}.encode(kind) }

func (b schemaBuilder) encode(kind Kind) ([]byte, error) {
	root, err := b.rootSchema(kind)
	if err != nil {
		return nil, err
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Agent Platform: " + string(kind)
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema of kind %q: %w", kind, err)
	}
	return append(data, '\n'), nil
}

func (b schemaBuilder) rootSchema(kind Kind) (root schema, err error) {
	switch kind {
	case KindAgent:
		root = b.structSchema(reflect.ValueOf(*newAgent("", nil)))
		rules, _ := root["allOf"].([]schema)
		root["allOf"] = append(rules, b.agentTypeRules()...)
	case KindDefaults:
		b.partial = true
		root = b.structSchema(reflect.ValueOf(*newAgent("", nil)))
		for _, f := range agentFields.ordered {
			if f.noDefault {
				delete(root["properties"].(schema), f.name)
			}
		}
	case KindConnector:
		root = b.structSchema(reflect.ValueOf(Connector{Enabled: true}))
		root["allOf"] = connectorRules()
	case KindModel:
		root = b.structSchema(reflect.ValueOf(Script{}))
	case KindSuite:
		root = b.structSchema(reflect.ValueOf(Suite{}))
	case KindTools:
		root = b.structSchema(reflect.ValueOf(newToolFile("", nil)))
	default:
		return nil, fmt.Errorf("unknown kind of file %q; use one of %s", kind, strings.Join(kindNames(), ", "))
	}
	return root, nil
}

func kindNames() (names []string) {
	for _, k := range Kinds {
		names = append(names, string(k.Kind))
	}
	return names
}

// agentTypeRules returns a rule for each type: an agent that names the type cannot have keys of other types. An agent
// without a type may have one from a file of defaults.
func (b schemaBuilder) agentTypeRules() (rules []schema) {
	for _, typeName := range b.allowedValues(agentFields.byName["type"]) {
		others := schema{}
		for _, f := range agentFields.ordered {
			if !f.isForType(typeName) && (b.full || agentFields.isSupported(f)) {
				others[f.name] = schema{"type": "null"}
			}
		}
		rules = append(rules, conditionalRule("type", typeName, schema{"properties": others}))
	}
	return rules
}

// allowedValues returns the allowed values of a field.
func (b schemaBuilder) allowedValues(f *field) []string {
	if b.full {
		return f.enum
	}
	return f.supportedEnum()
}

// connectorRules returns a rule for each type and mode with the keys of config.
func connectorRules() (rules []schema) {
	for _, kind := range slices.Sorted(slices.Values(connector.Kinds())) {
		none, keys := schema{}, configKeys(kind)
		for _, f := range fieldsOf(configType).ordered {
			if !slices.Contains(keys, f.name) {
				none[f.name] = false
			}
		}
		rule := schema{"properties": schema{"config": schema{"properties": none}}}
		if kind.HasFixedMode() {
			rule["properties"].(schema)["mode"] = schema{"enum": []any{kind.Mode(), nil}}
			rules = append(rules, conditionalRule("type", kind.Type(), rule))
			continue
		}
		rules = append(rules, conditionalRule("type", kind.Type(), conditionalRule("mode", kind.Mode(), rule)))
	}
	needsMode := schema{"required": []string{"mode"}, "properties": schema{"mode": schema{"type": "string"}}}
	return append(rules, conditionalRule("type", connector.TypeWebhook, needsMode))
}

// conditionalRule returns a rule for maps whose key has the value.
func conditionalRule(key, value string, then schema) schema {
	return schema{"if": schema{"properties": schema{key: schema{"const": value}}, "required": []string{key}}, "then": then}
}

// structSchema returns the schema of a struct. The defaults are the values of its fields without their keys.
func (b schemaBuilder) structSchema(defaults reflect.Value) schema {
	properties, required := schema{}, []string{}
	fields := fieldsOf(defaults.Type())
	for _, f := range fields.ordered {
		if !b.full && !fields.isSupported(f) {
			continue
		}
		s := b.fieldSchema(defaults.FieldByIndex(f.index), f)
		if f.required && f.choice == "" {
			required = append(required, f.name)
		} else {
			s = allowNull(s)
		}
		s["description"] = f.doc
		properties[f.name] = s
	}
	out := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 && !b.partial {
		out["required"] = required
	}
	if choices := fields.choiceRules(); len(choices) > 0 && !b.partial {
		out["allOf"] = choices
	}
	return out
}

// choiceRules returns a rule for each choice: exactly one of its keys is written, or at most one if they are not required.
func (s *structFields) choiceRules() (rules []schema) {
	seen := map[string]bool{"": true}
	for _, f := range s.ordered {
		if seen[f.choice] {
			continue
		}
		seen[f.choice] = true
		null := schema{}
		var one []schema
		for _, name := range append([]string{f.name}, s.excluded(f)...) {
			null[name] = schema{"type": "null"}
			one = append(one, schema{"required": []string{name}, "properties": schema{name: schema{"not": schema{"type": "null"}}}})
		}
		if !f.required {
			one = append(one, schema{"properties": null})
		}
		rules = append(rules, schema{"oneOf": one})
	}
	return rules
}

// fieldSchema returns the schema of a field from its type and tags.
func (b schemaBuilder) fieldSchema(v reflect.Value, f *field) schema {
	t := v.Type()
	if t == reflect.TypeFor[json.RawMessage]() {
		return schema{}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		v = reflect.Zero(t)
	}
	if t == reflect.TypeFor[Case]() {
		v = reflect.ValueOf(newCase())
	}
	s := b.valueSchema(v, f)
	switch t.Kind() {
	case reflect.String:
		b.addEnum(s, f)
		if f.required {
			s["minLength"] = 1
		}
		if form := textForms[f.form]; form.pattern != nil {
			s["pattern"], s["maxLength"] = form.pattern.String(), form.maxLength
		}
		if f.maxLength > 0 {
			s["maxLength"] = f.maxLength
		}
	case reflect.Slice:
		if f.required {
			s["minItems"] = 1
		}
		if f.maxItems > 0 {
			s["maxItems"] = f.maxItems
		}
		b.addEnum(s["items"].(schema), f)
	}
	if value := defaultOf(v); value != nil {
		s["default"] = value
	}
	return s
}

// addEnum adds the allowed values of a field to the schema of a text.
func (b schemaBuilder) addEnum(s schema, f *field) {
	if f.enum == nil {
		return
	}
	var values []any
	for _, value := range b.allowedValues(f) {
		values = append(values, value)
	}
	s["enum"] = values
}

// valueSchema returns the schema of a type.
func (b schemaBuilder) valueSchema(v reflect.Value, f *field) schema {
	t := v.Type()
	if own, ok := reflect.New(t).Interface().(interface {
		schemaOf(b schemaBuilder, f *field) schema
	}); ok {
		return own.schemaOf(b, f)
	}
	switch t.Kind() {
	case reflect.Struct:
		return b.structSchema(v)
	case reflect.Slice:
		return schema{"type": "array", "items": b.fieldSchema(reflect.Zero(t.Elem()), &field{})}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": allowNull(b.fieldSchema(reflect.Zero(t.Elem()), &field{}))}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Interface:
		return schema{}
	}
	s := schema{"type": "number"}
	if v.CanInt() {
		s["type"] = "integer"
	}
	return addBounds(s, f)
}

// addBounds adds the bounds of a number, which checkNumber enforces.
func addBounds(s schema, f *field) schema {
	for name, bound := range map[string]*float64{"minimum": f.min, "maximum": f.max, "exclusiveMinimum": f.over} {
		if bound != nil {
			s[name] = *bound
		}
	}
	return s
}

// allowNull returns a schema that accepts null too, which means a missing key.
func allowNull(s schema) schema {
	switch {
	case s["enum"] != nil:
		s["enum"] = append(s["enum"].([]any), nil)
	case s["anyOf"] != nil:
		s["anyOf"] = append(s["anyOf"].([]schema), schema{"type": "null"})
		return s
	}
	if one, ok := s["type"].(string); ok {
		s["type"] = []string{one, "null"}
	}
	return s
}

// defaultOf returns the default value of a field, nil for none.
func defaultOf(v reflect.Value) any {
	switch value := v.Interface().(type) {
	case Duration:
		if value == 0 {
			return nil
		}
		return value.Std().Seconds()
	case bool, int, float64:
		if v.IsZero() {
			return nil
		}
		return value
	}
	return nil
}

// durationText is the form of a duration as text that time.ParseDuration reads.
const durationText = `^\+?(0|([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

func (*Duration) schemaOf(_ schemaBuilder, f *field) schema {
	number := addBounds(schema{"type": "number", "minimum": 0, "maximum": maxDurationSeconds}, f)
	text := schema{"type": "string", "pattern": durationText}
	if f.over != nil {
		text["allOf"] = []schema{{"pattern": "[1-9]"}}
	}
	return schema{"anyOf": []schema{number, text}}
}

func (*Pattern) schemaOf(schemaBuilder, *field) schema { return schema{"type": "string"} }

func (*Expression) schemaOf(schemaBuilder, *field) schema {
	return schema{"anyOf": []schema{{"type": "string"}, {"type": "number"}, {"type": "boolean"}}}
}

func (*StepInput) schemaOf(b schemaBuilder, f *field) schema {
	var one Expression
	whole := one.schemaOf(b, f)
	return schema{"anyOf": append(whole["anyOf"].([]schema), schema{"type": "object", "additionalProperties": one.schemaOf(b, f)})}
}

func (*Tool) schemaOf(b schemaBuilder, f *field) schema {
	var condition Expression
	conditional := schema{"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": condition.schemaOf(b, f)}
	return schema{"anyOf": []schema{{"type": "string"}, conditional}}
}

func (*ModelMock) schemaOf(b schemaBuilder, _ *field) schema {
	return schema{"anyOf": []schema{{"type": "string"}, b.structSchema(reflect.ValueOf(Script{}))}}
}
