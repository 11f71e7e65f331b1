// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// Keywords of schemas in OpenAPI documents that models and checks need, by the form of their values. Others are left out.
var (
	schemaKeywords = []string{"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
	schemaLists    = []string{"oneOf", "anyOf", "allOf", "prefixItems"}
	schemaMaps     = []string{"properties", "patternProperties", "dependentSchemas"}
	dataKeywords   = []string{
		"type", "enum", "const", "format", "title", "description", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "minContains", "maxContains",
	}
)

// cleanSchema converts a schema of OpenAPI 3.0 or 3.1 without references to JSON Schema 2020-12. It leaves out what only
// documentation needs, properties that only responses have, and patterns that are not RE2.
func cleanSchema(value any) any {
	fields, isMap := value.(map[string]any)
	if !isMap {
		return value
	}
	out := make(map[string]any, len(fields))
	for name, inner := range fields {
		switch {
		case slices.Contains(dataKeywords, name):
			out[name] = inner
		case slices.Contains(schemaKeywords, name):
			out[name] = cleanSchema(inner)
		case slices.Contains(schemaLists, name):
			if list, isList := inner.([]any); isList {
				clean := make([]any, len(list))
				for i, one := range list {
					clean[i] = cleanSchema(one)
				}
				out[name] = clean
			}
		case slices.Contains(schemaMaps, name):
			out[name] = cleanProperties(inner)
		}
	}
	if text, isText := fields["pattern"].(string); isText {
		if _, _, err := pattern.Compile(text); err == nil {
			out["pattern"] = text
		}
	}
	cleanRequired(fields, out)
	cleanBounds(fields, out)
	cleanNullable(fields, out)
	return out
}

// cleanProperties converts the schemas of a map, without properties of responses only.
func cleanProperties(value any) map[string]any {
	properties, _ := value.(map[string]any)
	out := make(map[string]any, len(properties))
	for name, inner := range properties {
		if fields, _ := inner.(map[string]any); fields["readOnly"] != true {
			out[name] = cleanSchema(inner)
		}
	}
	return out
}

// cleanRequired keeps the required properties that requests have.
func cleanRequired(fields, out map[string]any) {
	list, isList := fields["required"].([]any)
	if !isList {
		return
	}
	before, _ := fields["properties"].(map[string]any)
	after, _ := out["properties"].(map[string]any)
	required := slices.DeleteFunc(slices.Clone(list), func(one any) bool {
		name, isText := one.(string)
		return !isText || before[name] != nil && after[name] == nil
	})
	if len(required) > 0 {
		out["required"] = required
	}
}

// cleanBounds converts the exclusive bounds of OpenAPI 3.0, which are bools.
func cleanBounds(fields, out map[string]any) {
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		isExclusive, isBool := fields[exclusive].(bool)
		if !isBool {
			continue
		}
		delete(out, exclusive)
		if value, has := out[bound]; has && isExclusive {
			delete(out, bound)
			out[exclusive] = value
		}
	}
}

// cleanNullable converts nullable of OpenAPI 3.0.
func cleanNullable(fields, out map[string]any) {
	typeName, isText := out["type"].(string)
	if fields["nullable"] != true || !isText {
		return
	}
	out["type"] = []any{typeName, "null"}
	if values, isList := out["enum"].([]any); isList && !slices.Contains(values, nil) {
		out["enum"] = append(slices.Clone(values), nil)
	}
}
