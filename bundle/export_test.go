// SPDX-License-Identifier: Apache-2.0

package bundle

import "reflect"

// FullSchema is Schema with all keys and values that the parser knows, also unsupported ones.
func FullSchema(kind Kind) ([]byte, error) { return schemaBuilder{full: true}.encode(kind) }

// KeysOfVariables returns the tag variables of the fields of a struct and of the structs in it, by Struct.Field.
func KeysOfVariables(t reflect.Type) map[string]string {
	tags := map[string]string{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for _, f := range fieldsOf(t).ordered {
			tags[f.goName(t)] = f.variables
			walk(f.goType)
		}
	}
	walk(t)
	return tags
}

// KindWords replaces the names of lists of package connector in tags.
var KindWords = kindWords
