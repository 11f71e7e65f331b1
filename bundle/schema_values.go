// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"reflect"
	"regexp"
	"strings"
)

// forms are the forms of text that fields name in the tag form.
var forms = map[string]struct {
	pattern *regexp.Regexp
	longest int
}{
	"name":  {agentName, maxName},
	"model": {modelName, MaxYAMLSize},
}

// allowed are the words that a key of a struct may have, from its field's tag enum.
func allowed[T any](key string) []string {
	t := reflect.TypeFor[T]()
	i, ok := fieldsOf(t)[key]
	if !ok {
		return nil
	}
	return strings.Split(t.Field(i).Tag.Get("enum"), ",")
}

// words are a schema with those of the tag enum.
func words(s schema, tag reflect.StructTag) schema {
	text, ok := tag.Lookup("enum")
	if !ok {
		return s
	}
	var all []any
	for word := range strings.SplitSeq(text, ",") {
		all = append(all, word)
	}
	s["enum"] = all
	return s
}

// durationText is how text says how long something takes, as time.ParseDuration reads it.
const durationText = `^\+?(0|([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

func (*Duration) schemaOf(tag reflect.StructTag) schema {
	number := bounds(schema{"type": "number", "minimum": 0, "maximum": maxDurationSeconds}, tag)
	text := schema{"type": "string", "pattern": durationText}
	if _, over := tag.Lookup("over"); over {
		text["allOf"] = []schema{{"pattern": "[1-9]"}}
	}
	return schema{"anyOf": []schema{number, text}}
}

func (*Pattern) schemaOf(reflect.StructTag) schema { return schema{"type": "string"} }

func (*Tool) schemaOf(reflect.StructTag) schema {
	conditional := schema{"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": schema{"type": "string"}}
	return schema{"anyOf": []schema{{"type": "string"}, conditional}}
}

func (*ModelMock) schemaOf(reflect.StructTag) schema {
	return schema{"anyOf": []schema{{"type": "string"}, structSchema(reflect.ValueOf(Script{}))}}
}
