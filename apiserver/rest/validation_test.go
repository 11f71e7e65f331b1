// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// constrained has a field for each rule of a schema.
type constrained struct {
	Required string         `json:"required"`
	Boolean  bool           `json:"boolean,omitempty"`
	Integer  int            `json:"integer,omitempty" minimum:"2" maximum:"9" multipleOf:"2"`
	Between  float64        `json:"between,omitempty" exclusiveMinimum:"2" exclusiveMaximum:"9"`
	Text     string         `json:"text,omitempty" minLength:"2" maxLength:"3"`
	Filled   string         `json:"filled,omitempty" minLength:"1"`
	Pattern  string         `json:"pattern,omitempty" pattern:"^a+$"`
	Slug     string         `json:"slug,omitempty" pattern:"^a+$" patternDescription:"a slug"`
	Enum     string         `json:"enum,omitempty" enum:"a,b"`
	List     []string       `json:"list,omitempty" minItems:"2" maxItems:"3" uniqueItems:"true"`
	Object   map[string]any `json:"object,omitempty" minProperties:"2" maxProperties:"2"`
	ID       string         `json:"id,omitempty" format:"uuid"`
	Time     string         `json:"time,omitempty" format:"date-time"`
	URI      string         `json:"uri,omitempty" format:"uri"`
	Bytes    []byte         `json:"bytes,omitempty"`
}

// Each message begins with the rule and leaves the value out.
func TestValidation_NamesFieldAndRule(t *testing.T) {
	t.Parallel()
	ConfigureHuma()
	registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	schema := huma.SchemaFromType(registry, reflect.TypeFor[constrained]())
	for name, c := range map[string]struct {
		body map[string]any
		want FieldError
	}{
		"missing":           {map[string]any{}, fieldAt("body.required", "is required")},
		"unknown":           {map[string]any{"CANARY": 1}, fieldAt("body.CANARY", "is not a field of this call: remove it")},
		"boolean":           {map[string]any{"boolean": "CANARY"}, fieldAt("body.boolean", "must be true or false")},
		"integer":           {map[string]any{"integer": "CANARY"}, fieldAt("body.integer", "must be an integer")},
		"minimum":           {map[string]any{"integer": 0.0}, fieldAt("body.integer", "must be at least 2")},
		"maximum":           {map[string]any{"integer": 10.0}, fieldAt("body.integer", "must be at most 9")},
		"multiple":          {map[string]any{"integer": 3.0}, fieldAt("body.integer", "must be a multiple of 2")},
		"number":            {map[string]any{"between": "CANARY"}, fieldAt("body.between", "must be a number")},
		"exclusive minimum": {map[string]any{"between": 2.0}, fieldAt("body.between", "must be greater than 2")},
		"exclusive maximum": {map[string]any{"between": 9.0}, fieldAt("body.between", "must be less than 9")},
		"string":            {map[string]any{"text": 1.0}, fieldAt("body.text", "must be a string")},
		"short":             {map[string]any{"text": "a"}, fieldAt("body.text", "must have at least 2 characters")},
		"long":              {map[string]any{"text": "CANARY"}, fieldAt("body.text", "must have at most 3 characters")},
		"empty":             {map[string]any{"filled": ""}, fieldAt("body.filled", "must not be empty")},
		"pattern":           {map[string]any{"pattern": "CANARY"}, fieldAt("body.pattern", "must match the pattern ^a+$")},
		"described pattern": {map[string]any{"slug": "CANARY"}, fieldAt("body.slug", "must be a slug")},
		"enum":              {map[string]any{"enum": "CANARY"}, fieldAt("body.enum", "must be one of a, b")},
		"list":              {map[string]any{"list": "CANARY"}, fieldAt("body.list", "must be a list")},
		"few items":         {map[string]any{"list": []any{"a"}}, fieldAt("body.list", "must have at least 2 items")},
		"many items":        {map[string]any{"list": []any{"a", "b", "c", "d"}}, fieldAt("body.list", "must have at most 3 items")},
		"repeated item":     {map[string]any{"list": []any{"a", "a"}}, fieldAt("body.list", "must not have an item twice")},
		"object":            {map[string]any{"object": "CANARY"}, fieldAt("body.object", "must be an object")},
		"few fields":        {map[string]any{"object": map[string]any{"a": 1}}, fieldAt("body.object", "must have at least 2 fields")},
		"UUID":              {map[string]any{"id": "CANARY"}, fieldAt("body.id", "must be a UUID")},
		"time":              {map[string]any{"time": "CANARY"}, fieldAt("body.time", "must be a time such as 2026-07-01T00:00:00Z")},
		"URI":               {map[string]any{"uri": "%zz"}, fieldAt("body.uri", "must be a URI")},
		"bytes":             {map[string]any{"bytes": "!CANARY"}, fieldAt("body.bytes", "must be base64")},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "missing" {
				c.body["required"] = "a"
			}
			path, result := huma.NewPathBuffer([]byte("body"), 4), &huma.ValidateResult{}
			huma.Validate(registry, schema, path, huma.ModeWriteToServer, c.body, result)
			require.Equal(t, httpserver.Fields{c.want}, problemOf(t, result.Errors...).Errors)
		})
	}
}

// Messages without a variable in huma are replaced, and messages of UnmarshalText lose huma's prefix.
func TestValidation_ReplacesMessagesOfParameters(t *testing.T) {
	t.Parallel()
	ConfigureHuma()
	for message, want := range map[string]string{
		"invalid boolean": "must be true or false", "invalid integer": "must be an integer", "invalid float": "must be a number",
		"required query parameter is missing": "is required", "request body is required": "is required",
		"invalid value: must be a UUID": "must be a UUID",
	} {
		t.Run(message, func(t *testing.T) {
			p := problemOf(t, &huma.ErrorDetail{Location: "query.limit", Message: message})
			require.Equal(t, httpserver.Fields{fieldAt("query.limit", want)}, p.Errors)
		})
	}
}

func problemOf(t *testing.T, errs ...error) (p httpserver.Problem) {
	t.Helper()
	require.True(t, errors.As(huma.NewError(http.StatusUnprocessableEntity, "", errs...), &p))
	return p
}
