// SPDX-License-Identifier: Apache-2.0

// Package jsonschema checks JSON values against JSON Schemas (2020-12) of untrusted origin: of
// repositories, of OpenAPI documents and of MCP servers. A schema refers only to itself, its
// references are replaced before it is compiled, and its size is limited. So the time of a check is
// at most proportional to the sizes of the schema and the value.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/pattern"
)

const (
	// MaxSize limits a schema, in bytes of JSON.
	MaxSize = 256 << 10
	// maxPatterns limits the instructions of the patterns of a schema.
	maxPatterns = 10_000
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct {
	// PatternSize is the number of instructions of its patterns.
	PatternSize int
	compiled    *jsonschema.Schema
}

// Compile compiles a schema: decoded JSON, or Go values that encoding/json writes. It checks no
// formats.
func Compile(schema any) (*Schema, error) {
	document, err := decodeSchema(schema)
	if err != nil {
		return nil, err
	}
	if document, err = Inline(document, document); err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	out := &Schema{}
	compiler.UseRegexpEngine(out.compilePattern)
	const name = "urn:schema"
	if err := compiler.AddResource(name, document); err != nil {
		return nil, problemOf(err)
	}
	if out.compiled, err = compiler.Compile(name); err != nil {
		return nil, problemOf(err)
	}
	if out.PatternSize > maxPatterns {
		return nil, errTooManyPatterns
	}
	return out, nil
}

// decodeSchema converts a schema to decoded JSON with json.Number.
func decodeSchema(schema any) (document any, err error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, errors.New("the schema cannot be written as JSON")
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the schema has more than %d bytes", MaxSize)
	}
	if err := jsonscan.Check(text); err != nil {
		return nil, fmt.Errorf("the schema: %w", err)
	}
	if err := exactjson.Decode(text, &document); err != nil {
		return nil, fmt.Errorf("the schema: %w", err)
	}
	return document, nil
}

// problemOf returns an error of the compiler without the name that it gives to the schema.
func problemOf(err error) error {
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &details) {
		if found := problemsIn(details); len(found) > 0 {
			return errors.New("not a JSON Schema: " + found[0])
		}
	}
	return errors.New("not a JSON Schema of draft 2020-12")
}

// noLoader rejects references to other documents.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not supported")
}

var errTooManyPatterns = fmt.Errorf("the patterns of the schema have more than %d instructions together", maxPatterns)

// compilePattern implements jsonschema.RegexpEngine.
func (s *Schema) compilePattern(text string) (jsonschema.Regexp, error) {
	if s.PatternSize > maxPatterns {
		return nil, errTooManyPatterns
	}
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		return nil, err
	}
	s.PatternSize += size
	return compiled, nil
}

// Check returns the problems of a decoded JSON value, each as "path: problem", or "problem" for the
// whole value. It returns nil for a valid value, and at most maxProblems problems. Numbers of the
// value are bounded as jsonscan.Check does.
func (s *Schema) Check(value any) []string {
	err := s.compiled.Validate(value)
	var details *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &details):
		return []string{"it cannot be checked"} // a value that is not JSON
	}
	found := problemsIn(details)
	if len(found) == 0 {
		return []string{"it does not fit the schema"}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(len(found), maxProblems)]
}
