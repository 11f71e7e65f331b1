// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
)

// configField is a field of a config. The REST API has fields that the other forms of a config do not have.
type configField struct {
	connector.Field
	// inputDoc is the documentation in requests, "" for the same as in responses.
	inputDoc string
}

// configFields returns the fields of a config of a kind.
func configFields(kind connector.Kind) (fields []configField) {
	for _, f := range kind.Fields() {
		field := configField{Field: f}
		if f.Name == "headers" {
			field.inputDoc = f.Doc + " An empty or masked value keeps the stored value; an omitted header is removed."
			field.Doc = "The connector's own request headers; each value is ********."
		}
		fields = append(fields, field)
	}
	text := reflect.TypeFor[*string]()
	switch {
	case kind.HasCallers():
		fields = append(fields, configField{connector.Field{
			Name: "secret", Type: text, Doc: "******** if the project set its own secret with the REST API; else null.",
		}, "The project's own secret of at most 4096 bytes, as Slack and Stripe issue it. Default: a generated secret. " +
			"In an update, an empty, masked or omitted value keeps the stored secret. If the update changes authentication, an omitted secret is generated."})
	case kind.Sends():
		fields = append(fields, configField{connector.Field{
			Name: "headers_secret", Type: text, MaxLength: 253,
			Doc: "The Secret in the project's namespace that holds the headers instead of headers; null if there is none.",
		}, "The connector's current value: only the Kubernetes object can change it."})
	}
	return fields
}

// anyConfig returns a reference to a component that describeConfigs describes. huma validates requests against the
// component, an object with any fields.
func anyConfig(r huma.Registry, name string) *huma.Schema {
	for _, kind := range connector.Kinds() {
		for _, f := range kind.Fields() {
			if f.Enum != nil {
				rest.Enumeration(r, componentName(f.Name), describeCode(f.Doc), f.Enum...)
			}
		}
	}
	if _, there := r.Map()[name]; !there {
		s := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: rest.SchemaPrefix + name}
}

// describeConfigs describes the config of each kind, in requests and in responses.
func describeConfigs(all rest.Node) {
	var shown, set []any
	var names, inputs, limited []string
	for _, kind := range connector.Kinds() {
		name := strings.ToUpper(string(kind[:1])) + string(kind[1:]) + "Config"
		all[name], all[name+"Input"] = configSchema(kind, false), configSchema(kind, true)
		shown, set = append(shown, rest.RefNode("schemas", name)), append(set, rest.RefNode("schemas", name+"Input"))
		names, inputs = append(names, name+" for a "+kind.Noun()), append(inputs, name+"Input for a "+kind.Noun())
		if kind.DefaultTimeout() > 0 {
			limited = append(limited, name)
		}
		if hasNullTimeout(kind) { // This makes the schemas exclusive, although responses can get new fields.
			of := all[name].(rest.Node)
			of["properties"].(rest.Node)["timeout_seconds"] = rest.Node{
				"type": "null", "description": "Always null: an " + kind.String() + " responds at once.",
			}
			of["required"] = append(of["required"].([]any), "timeout_seconds")
		}
	}
	for _, input := range []bool{false, true} {
		var fields []configField
		for _, f := range connector.RetryFields() {
			fields = append(fields, configField{Field: f})
		}
		all[schemaName("DeliveryRetry", input)] = schemaOf("The retry policy of deliveries.", fields, input)
	}
	all["ConnectorConfig"] = rest.Node{
		"description": "The configuration of a connector: " + strings.Join(names, ", ") + ". Only " + strings.Join(limited, " and ") + " have a number as timeout_seconds.",
		"oneOf":       shown,
	}
	all["ConnectorConfigInput"] = rest.Node{
		"description": "The configuration of a connector to set: " + strings.Join(inputs, ", ") + ".",
		"anyOf":       set,
	}
	all["ConnectorType"].(rest.Node)["description"] = "The type of a connector: " + connector.DescribeTypes("") + "."
	all["ConnectorMode"].(rest.Node)["description"] = "The direction of a connector: " + connector.DescribeModes("") + "."
}

// hasNullTimeout reports whether the config of a kind has a timeout that is always null.
func hasNullTimeout(kind connector.Kind) bool { return kind.HasCallers() && kind.DefaultTimeout() == 0 }

func schemaName(name string, input bool) string {
	if input {
		return name + "Input"
	}
	return name
}

// configSchema describes the config of a kind.
func configSchema(kind connector.Kind, input bool) rest.Node {
	doc := "The configuration of a " + kind.Noun()
	if input {
		doc += " to set"
	}
	return schemaOf(doc+".", configFields(kind), input)
}

// schemaOf describes an object with these fields. Responses have all of them.
func schemaOf(doc string, fields []configField, input bool) rest.Node {
	properties, required := rest.Node{}, []any{}
	for _, f := range fields {
		properties[f.Name] = f.describe(input)
		if !input || f.Required {
			required = append(required, f.Name)
		}
	}
	out := rest.Node{"type": "object", "description": doc, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	if input {
		out["additionalProperties"] = false
	}
	return out
}

// quoted matches code in the documentation of a setting.
var quoted = regexp.MustCompile(`'([^' ]+)'`)

// describeCode marks the code in the documentation of a setting.
func describeCode(doc string) string { return quoted.ReplaceAllString(doc, "`$1`") }

// componentName returns the name of the component for the enum values of a field.
func componentName(field string) (name string) {
	for _, word := range strings.Split(field, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// describe returns the schema of the field.
func (f configField) describe(input bool) rest.Node {
	out := f.typeSchema(input)
	doc := f.Doc
	if input {
		if f.inputDoc != "" {
			doc = f.inputDoc
		}
		if f.Default != "" {
			doc += " Default: " + f.Default + "."
		}
	}
	out["description"] = describeCode(doc)
	if example := f.example(input); example != nil {
		out["examples"] = []any{example}
	}
	if !input {
		return out
	}
	if f.Required {
		out["minLength"] = 1
	}
	for name, limit := range map[string]int{"minimum": f.Min, "maximum": f.Max, "maxLength": f.MaxLength, "maxItems": f.MaxItems} {
		if limit > 0 {
			out[name] = limit
		}
	}
	return out
}

// example returns a value of the field, nil without one. In responses it is the default of a number.
func (f configField) example(input bool) any {
	number, err := strconv.Atoi(f.Default)
	switch {
	case err == nil && !input:
		return number
	case f.Example == "" || f.Type.Kind() == reflect.Slice && input:
		return nil
	case f.Type.Kind() == reflect.Slice:
		return strings.Split(strings.Trim(f.Example, "[]"), ", ")
	}
	return f.Example
}

// typeSchema describes the type of the field.
func (f configField) typeSchema(input bool) rest.Node {
	number := rest.Node{"type": "integer", "format": "int64"}
	if input {
		number["format"] = "int32"
	}
	switch t := f.Type; {
	case f.Enum != nil:
		return rest.RefNode("schemas", componentName(f.Name))
	case t == reflect.TypeFor[*connector.Retry]():
		return rest.RefNode("schemas", schemaName("DeliveryRetry", input))
	case t == reflect.TypeFor[*bool]():
		return rest.Node{"type": "boolean"}
	case t == reflect.TypeFor[*int]():
		return number
	case t == reflect.TypeFor[[]int]():
		return rest.Node{"type": "array", "items": number}
	case t == reflect.TypeFor[[]string]():
		return rest.Node{"type": "array", "items": rest.Node{"type": "string"}}
	case t.Kind() == reflect.Map:
		return rest.Node{"type": "object", "additionalProperties": rest.Node{"type": "string"}}
	case t.Kind() == reflect.Slice: // JSON
		return rest.Node{"type": []any{"object", "null"}, "additionalProperties": true}
	case t.Kind() == reflect.Pointer && !input:
		return rest.Node{"type": []any{"string", "null"}}
	}
	return rest.Node{"type": "string"}
}
