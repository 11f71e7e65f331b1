// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"

	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

// optionalKey makes a parameter of the short form optional. It is no keyword of JSON Schema.
const optionalKey = "optional"

// ToolParameters is the JSON Schema of the arguments of a tool.
type ToolParameters struct {
	// Schema is nil without parameters.
	Schema map[string]any
	// Defaults are the values of missing arguments.
	Defaults map[string]any
}

func (t *ToolParameters) unmarshalNode(d *decoder, n *node, path string) {
	switch {
	case n.isNull():
		return
	case n.kind != kindMap:
		d.reportMismatch(n, path, "keys and values")
		return
	}
	t.Defaults = map[string]any{}
	if typeName := n.findNode("type"); typeName != nil && typeName.kind == kindScalar {
		t.readSchema(d, n, path)
		return
	}
	properties, required := map[string]any{}, []any{}
	for _, e := range n.entries {
		value, isOptional, ok := t.readProperty(d, e, joinPath(path, e.key))
		if properties[e.key] = value; ok && !isOptional {
			required = append(required, e.key)
		}
	}
	t.Schema = map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		t.Schema["required"] = required
	}
}

// readSchema reads one JSON Schema for all arguments.
func (t *ToolParameters) readSchema(d *decoder, n *node, path string) {
	if n.findNode("type").scalar != "object" {
		d.report(n.findNode("type").pos, `%q must be "object", because arguments have names`, joinPath(path, "type"))
		return
	}
	schema := n.toValue().(map[string]any)
	if !checkSchema(d, n, path, schema) {
		return
	}
	inlined, err := jsonschema.Inline(schema, schema)
	if err != nil {
		d.report(n.pos, "%q: %v", path, err)
		return
	}
	t.Schema = inlined.(map[string]any)
	if _, open := t.Schema["additionalProperties"]; !open {
		t.Schema["additionalProperties"] = false
	}
	properties, _ := t.Schema["properties"].(map[string]any)
	required, _ := t.Schema["required"].([]any)
	for name, property := range properties {
		if fields, isMap := property.(map[string]any); isMap && !slices.Contains(required, any(name)) {
			t.addDefault(name, fields)
		}
	}
}

// readProperty reads a parameter of the short form.
func (t *ToolParameters) readProperty(d *decoder, e entry, path string) (schema map[string]any, isOptional, ok bool) {
	if !argumentName.MatchString(e.key) {
		d.report(e.pos, "%q: the name of a parameter has at most 64 letters, digits, _ and -, and no digit first", path)
		return nil, false, false
	}
	if e.value.kind != kindMap {
		d.reportMismatch(e.value, path, "a JSON Schema, such as {type: string}")
		return nil, false, false
	}
	schema = e.value.toValue().(map[string]any)
	if written := e.value.findNode(optionalKey); written != nil {
		if isOptional, ok = written.scalar.(bool); !ok && !written.isNull() {
			d.reportMismatch(written, joinPath(path, optionalKey), "true or false")
			return nil, false, false
		}
		delete(schema, optionalKey)
	}
	if !checkSchema(d, e.value, path, schema) {
		return nil, false, false
	}
	return schema, t.addDefault(e.key, schema) || isOptional, true
}

// addDefault records the default of a parameter, and reports whether it has one.
func (t *ToolParameters) addDefault(name string, schema map[string]any) bool {
	value, has := schema["default"]
	if has {
		t.Defaults[name] = value
	}
	return has
}

// checkSchema reports a schema that cannot be compiled.
func checkSchema(d *decoder, n *node, path string, schema map[string]any) bool {
	compiled, err := jsonschema.Compile(schema)
	if err != nil {
		d.report(n.pos, "%q: %v", path, err)
		return false
	}
	if value, has := schema["default"]; has {
		if problems := compiled.Check(value); len(problems) > 0 {
			d.report(n.findNode("default").pos, "%q does not fit its schema: %s", joinPath(path, "default"), problems[0])
			return false
		}
	}
	return d.countPatterns(n, compiled.PatternSize, path)
}

func (*ToolParameters) schemaOf(schemaBuilder, *field) schema {
	each := schema{"type": "object", "properties": schema{optionalKey: schema{"type": []string{"boolean", "null"}}}}
	rule := conditionalRule("type", "object", schema{})
	rule["else"] = schema{"additionalProperties": each}
	return schema{"type": "object", "allOf": []schema{rule}}
}
