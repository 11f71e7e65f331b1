// SPDX-License-Identifier: Apache-2.0

package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

func decode(t testing.TB, text string) (value any) {
	t.Helper()
	require.NoError(t, exactjson.Decode([]byte(text), &value), text)
	return value
}

func TestSchema_ReportsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema, value string
		want          []string
	}{
		"valid":            {`{"type":"object","properties":{"id":{"type":"integer"}}}`, `{"id":9007199254740993}`, nil},
		"missing":          {`{"required":["a","b"]}`, `{}`, []string{"a: is missing", "b: is missing"}},
		"unknown":          {`{"properties":{},"additionalProperties":false}`, `{"x":1}`, []string{"x: is unknown; leave it out"}},
		"type":             {`{"properties":{"id":{"type":["integer","null"]}}}`, `{"id":"1"}`, []string{"id: must be of type null or integer, not string"}},
		"fraction":         {`{"properties":{"id":{"type":"integer"}}}`, `{"id":1.5}`, []string{"id: must be of type integer, not number"}},
		"inside":           {`{"properties":{"a":{"items":{"required":["b"]}}}}`, `{"a":[{"b":1},{}]}`, []string{"a.1.b: is missing"}},
		"enum":             {`{"properties":{"a":{"enum":["x","y"]}}}`, `{"a":"z"}`, []string{`a: must be one of "x","y"`}},
		"const":            {`{"const":1}`, `2`, []string{"must be 1"}},
		"pattern":          {`{"properties":{"a":{"pattern":"^[0-9]+$"}}}`, `{"a":"x"}`, []string{"a: must match the pattern ^[0-9]+$"}},
		"minimum":          {`{"properties":{"a":{"minimum":9007199254740993}}}`, `{"a":9007199254740992}`, []string{"a: must be at least 9007199254740993"}},
		"any of":           {`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}`, `{"a":[]}`, []string{"a: must have one of the forms in the schema"}},
		"reference":        {`{"properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"string"}}}`, `{"a":1}`, []string{"a: must be of type string, not number"}},
		"beside reference": {`{"$ref":"#/$defs/t","maxLength":2,"$defs":{"t":{"type":"string"}}}`, `"abc"`, []string{"maxLength: got 3, want 2"}},
		"recursive": {`{"$ref":"#/$defs/n","$defs":{"n":{"required":["v"],"properties":{"next":{"$ref":"#/$defs/n"}}}}}`,
			`{"next":{"anything":1}}`, []string{"v: is missing"}},
		"format is an annotation": {`{"format":"date"}`, `"soon"`, nil},
		"false":                   {`{"properties":{"a":false}}`, `{"a":1}`, []string{"a: false schema"}},
		"property named $ref":     {`{"properties":{"$ref":{"type":"string"}}}`, `{"$ref":1}`, []string{"$ref: must be of type string, not number"}},
		"data named $ref":         {`{"const":{"$ref":"#/nowhere"}}`, `{"$ref":"#/nowhere"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			schema, err := jsonschema.Compile(decode(t, c.schema))
			require.NoError(t, err)
			require.ElementsMatch(t, c.want, schema.Check(decode(t, c.value)))
		})
	}
}

// Texts of a model do not make a problem long, and never give it a second line.
func TestSchema_LimitsProblems(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\n", 1000)
	schema, err := jsonschema.Compile(map[string]any{"additionalProperties": false, "properties": map[string]any{"a": map[string]any{"type": "integer"}}})
	require.NoError(t, err)
	value := map[string]any{"a": long}
	for i := range 100 {
		value[fmt.Sprint(i, long)] = 1
	}
	problems := schema.Check(value)
	require.Len(t, problems, 5)
	for _, problem := range problems {
		require.Less(t, len(problem), 500)
		require.NotContains(t, problem, "\n")
	}
}

func TestCompile_RejectsUnusableSchemas(t *testing.T) {
	t.Parallel()
	// Each definition refers twice to the next, which would need 2^40 checks.
	var doubling strings.Builder
	doubling.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"d40":{}}}`)
	patterns := strings.TrimSuffix(strings.Repeat(`{"pattern":"a{900}"},`, 20), ",")
	for name, c := range map[string]struct{ schema, want string }{
		"many patterns":     {`{"anyOf":[` + patterns + `]}`, "more than 10000 instructions"},
		"type":              {`{"type":"text"}`, "type"},
		"not a schema":      {`5`, "not a JSON Schema"},
		"pattern":           {`{"pattern":"("}`, "not valid regex"},
		"large pattern":     {`{"pattern":"(a{900}){900}"}`, "not valid regex"},
		"file":              {`{"$ref":"file:///etc/passwd"}`, "must name a part of the same document"},
		"address":           {`{"$ref":"http://169.254.169.254/"}`, "must name a part of the same document"},
		"dialect":           {`{"$dynamicRef":"#a"}`, "$dynamicRef is not supported"},
		"missing":           {`{"$ref":"#/$defs/x"}`, "names a part that the document does not have"},
		"doubling":          {doubling.String(), "more than 20000 parts"},
		"too large":         {`{"description":"` + strings.Repeat("x", jsonschema.MaxSize) + `"}`, "more than 262144 bytes"},
		"deep":              {strings.Repeat(`{"not":`, 300) + "{}" + strings.Repeat("}", 300), "nested"},
		"number":            {`{"minimum":1` + strings.Repeat("0", 999) + `}`, "too large"},
		"reference to data": {`{"$ref":"#/x","x":[5]}`, "not a JSON Schema"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jsonschema.Compile(decode(t, c.schema))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "urn:schema")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	document := decode(t, `{"paths":{"/a~b/{id}":{"get":[{"x":1}]}}}`)
	for reference, want := range map[string]string{
		"#/paths/~1a~0b~1{id}/get/0/x": "1", "#/paths/~1a~0b~1%7Bid%7D/get/0/x": "1", "#/paths/x": "", "#/paths/~1a~0b~1{id}/get/1": "",
		"other.yaml#/a": "", "#anchor": "", "#/paths/~1a~0b~1{id}/get/0/x/y": "",
	} {
		t.Run(reference, func(t *testing.T) {
			value, err := jsonschema.Find(document, reference)
			if want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, fmt.Sprint(value))
		})
	}
}

// A compiled schema checks every value without an error of its own.
func FuzzCompile(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":[1]}}}`, `{"a":1}`)
	f.Add(`{"anyOf":[{"$ref":"#"},{"items":{"$ref":"#"}}],"pattern":"a"}`, `[["a"]]`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		var s, v any
		if exactjson.Decode([]byte(schema), &s) != nil || exactjson.Decode([]byte(value), &v) != nil {
			return
		}
		if compiled, err := jsonschema.Compile(s); err == nil {
			require.LessOrEqual(t, len(compiled.Check(v)), 5)
		}
	})
}
