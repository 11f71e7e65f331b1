// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Kind is what a YAML file of a repository describes.
type Kind string

// Kinds of files.
const (
	KindAgent     Kind = "agent"
	KindDefaults  Kind = "defaults"
	KindConnector Kind = "connector"
	KindModel     Kind = "model"
	KindSuite     Kind = "suite"
)

// Kinds are all, in the order of the layout, each with the files that are of it.
var Kinds = []struct {
	Kind  Kind
	Files string
}{
	{KindAgent, "agents/**/*.yaml"},
	{KindDefaults, "agents/**/" + defaultsFile},
	{KindConnector, "connectors/*.yaml"},
	{KindModel, "models/*.yaml"},
	{KindSuite, "tests/**/*.yaml"},
}

// KindOf is what a file of a repository describes; "" of one that is read as it is.
func KindOf(file string) Kind {
	folder, _, _ := strings.Cut(file, "/")
	switch {
	case path.Ext(file) != ".yaml" || strings.HasPrefix(file, testFiles):
		return ""
	case folder == "agents" && path.Base(file) == defaultsFile:
		return KindDefaults
	}
	return map[string]Kind{"agents": KindAgent, "connectors": KindConnector, "models": KindModel, "tests": KindSuite}[folder]
}

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// Schema is the JSON Schema (2020-12) of files of a kind: the keys that the parser knows, their
// types, bounds and words, without those that this release does not do, by which an editor completes and checks. It refuses no file that a
// build takes, but for a word that is written and empty; what needs another file is the build's
// to refuse.
func Schema(kind Kind) ([]byte, error) {
	root, err := fullSchema(kind)
	if err != nil {
		return nil, err
	}
	removeUnsupported(kind, root)
	return root.encoded(kind)
}

// fullSchema has what the parser knows, also of what this release does not do.
func fullSchema(kind Kind) (root schema, err error) {
	switch kind {
	case KindAgent:
		root = structSchema(reflect.ValueOf(*newAgent("", nil)))
		root["allOf"] = agentTypeRules()
	case KindDefaults:
		root = structSchema(reflect.ValueOf(*newAgent("", nil)))
		delete(root["properties"].(schema), "name")
		delete(root, "required")
	case KindConnector:
		root = structSchema(reflect.ValueOf(Connector{Enabled: true}))
		root["allOf"] = connectorRules()
	case KindModel:
		root = structSchema(reflect.ValueOf(Script{}))
	case KindSuite:
		root = structSchema(reflect.ValueOf(Suite{}))
	default:
		return nil, fmt.Errorf("there is no kind of file %q; there is %s", kind, strings.Join(kindNames(), ", "))
	}
	return root, nil
}

// encoded is the text of the schema of a kind of files.
func (s schema) encoded(kind Kind) ([]byte, error) {
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Agent Platform: " + string(kind)
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema of kind %q: %w", kind, err)
	}
	return append(data, '\n'), nil
}

func kindNames() (names []string) {
	for _, k := range Kinds {
		names = append(names, string(k.Kind))
	}
	return names
}

// agentTypeRules say which keys are not for the type that an agent names. One that names none
// may have it from a file of defaults.
func agentTypeRules() (rules []schema) {
	for _, t := range everyType {
		others := schema{}
		for key := range agentKeys {
			if !slices.Contains(typesOf[key], t) {
				others[key] = schema{"type": "null"}
			}
		}
		rules = append(rules, when("type", string(t), schema{"properties": others}))
	}
	return rules
}

// connectorRules say which keys of config are for a type and mode.
func connectorRules() (rules []schema) {
	config := func(keys []string) schema {
		none := schema{}
		for key := range fieldsOf(configType) {
			if !slices.Contains(keys, key) {
				none[key] = false
			}
		}
		return schema{"properties": schema{"config": schema{"properties": none}}}
	}
	for _, mode := range slices.Sorted(maps.Keys(webhookKeys)) {
		rule := when("type", ConnectorWebhook, when("mode", mode, config(webhookKeys[mode])))
		rules = append(rules, rule)
	}
	cron := config(cronKeys)
	cron["properties"].(schema)["mode"] = schema{"enum": []any{ModeInbound, nil}}
	needsMode := schema{"required": []string{"mode"}, "properties": schema{"mode": schema{"type": "string"}}}
	return append(rules, when("type", ConnectorCron, cron), when("type", ConnectorWebhook, needsMode))
}

// when is a rule for values of which a key has that value.
func when(key, value string, then schema) schema {
	return schema{"if": schema{"properties": schema{key: schema{"const": value}}, "required": []string{key}}, "then": then}
}

// structSchema is that of a struct, with what its fields are without their keys.
func structSchema(defaults reflect.Value) schema {
	properties, required := schema{}, []string{}
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		s := fieldSchema(defaults.Field(i), field.Tag)
		if field.Tag.Get("required") != "" {
			required = append(required, key)
		} else {
			s = orNull(s)
		}
		s["description"] = field.Tag.Get("doc")
		properties[key] = s
	}
	out := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// fieldSchema is that of a field by its type and tags.
func fieldSchema(v reflect.Value, tag reflect.StructTag) schema {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		v = reflect.Zero(t)
	}
	if t == reflect.TypeFor[Case]() {
		v = reflect.ValueOf(newCase())
	}
	s := valueSchema(v, tag)
	least := tag.Get("required") != ""
	switch t.Kind() {
	case reflect.String:
		s = words(s, tag)
		if least {
			s["minLength"] = 1
		}
		if form, ok := forms[tag.Get("form")]; ok {
			s["pattern"], s["maxLength"] = form.pattern.String(), form.longest
		}
	case reflect.Slice:
		if least {
			s["minItems"] = 1
		}
		if _, named := tag.Lookup("enum"); named {
			s["items"] = words(s["items"].(schema), tag)
		}
	}
	if text := defaultOf(v); text != nil {
		s["default"] = text
	}
	return s
}

// valueSchema is that of a type.
func valueSchema(v reflect.Value, tag reflect.StructTag) schema {
	t := v.Type()
	if own, ok := reflect.New(t).Interface().(interface {
		schemaOf(tag reflect.StructTag) schema
	}); ok {
		return own.schemaOf(tag)
	}
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(v)
	case reflect.Slice:
		return schema{"type": "array", "items": fieldSchema(reflect.Zero(t.Elem()), "")}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": orNull(fieldSchema(reflect.Zero(t.Elem()), ""))}
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
	return bounds(s, tag)
}

// bounds are those of a number, as checkNumber reads them.
func bounds(s schema, tag reflect.StructTag) schema {
	for key, name := range map[string]string{"min": "minimum", "max": "maximum", "over": "exclusiveMinimum"} {
		if _, ok := tag.Lookup(key); ok {
			s[name] = bound(tag, key, 0)
		}
	}
	return s
}

// orNull is a schema that takes null too, which is an absent key.
func orNull(s schema) schema {
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

// defaultOf is what holds without a key, nil where that is nothing.
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
