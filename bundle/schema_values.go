// SPDX-License-Identifier: Apache-2.0

package bundle

import "reflect"

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
