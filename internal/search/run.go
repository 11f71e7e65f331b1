// SPDX-License-Identifier: Apache-2.0

// Package search is the search language for runs: a CEL condition or words. It decides whether a
// run matches, and which requirements an index can check before.
package search

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/fields"
)

// Run is the searched data of a run.
type Run struct {
	AgentName, TestName, Status string
	DeploymentID, ConnectorID   string // "" if there is none
	Attempt                     int
	// Duration is 0 for an open run.
	Duration time.Duration
	// Error and ErrorCode describe a failure. Output is the beginning of the output.
	Error, ErrorCode, Output string
	// Input is the beginning of the input with its content type. Truncated JSON counts as text.
	ContentType string
	Input       []byte
	Headers     map[string]string
	// Context is what scripts set in the run's context: a JSON object, or nil.
	Context []byte
}

// shownError returns the error as in the REST API.
func (r Run) shownError() string {
	if r.Error == "" {
		return r.ErrorCode
	}
	return r.Error
}

// inputJSON returns the input as JSON, or false if it is text.
func (r Run) inputJSON() ([]byte, bool) {
	media, _, _ := mime.ParseMediaType(r.ContentType) // "" is text
	switch media {
	case "application/json":
		return r.Input, json.Valid(r.Input)
	case fields.ContentType:
		object, err := fields.Object(r.Input)
		return object, err == nil && json.Valid(object)
	}
	return nil, false
}

// inputValue returns the input for expressions.
func (r Run) inputValue() any {
	if text, isJSON := r.inputJSON(); isJSON {
		if value, err := expr.Input(text); err == nil {
			return value
		}
	}
	return strings.ToValidUTF8(string(r.Input), string(unicode.ReplacementChar))
}

// The names of context that scripts cannot set.
const (
	headersName = "headers"
	inputName   = "input"
)

// contextValues returns what scripts set in the context.
func (r Run) contextValues() map[string]any {
	if len(r.Context) > 0 {
		value, err := expr.Input(r.Context)
		if set, isObject := value.(map[string]any); err == nil && isObject {
			return set
		}
	}
	return map[string]any{}
}

// conditionValues returns the values of a condition's names. It decodes the input and the context only if
// the condition uses them.
func (r Run) conditionValues(looksAt func(name string) bool) map[string]any {
	known := map[string]any{}
	if looksAt("context") {
		known = r.contextValues()
	}
	known[headersName] = r.Headers
	values := map[string]any{
		"output": r.Output, "error": r.shownError(), "status": r.Status, "context": known, "input": nil,
		"agent_name": r.AgentName, "test_name": r.TestName, "error_code": r.ErrorCode, "deployment_id": r.DeploymentID,
		"connector_id": r.ConnectorID, "attempt": r.Attempt, "duration_ms": r.Duration.Milliseconds(),
	}
	if looksAt("input") || looksAt("context") {
		input := r.inputValue()
		values["input"], known[inputName] = input, input
	}
	return values
}

// Words returns the words of the run for the index, without duplicates.
func (r Run) Words() []string {
	all := slices.DeleteFunc(r.sequence(), func(word string) bool { return word == gap })
	slices.Sort(all)
	return slices.Compact(all)
}

// gap separates texts in a sequence of words, so that no phrase crosses it.
const gap = ""

// sequence returns the words of the run in order: the output, the error, the context, and the input. For
// JSON it includes all names, texts and numbers.
func (r Run) sequence() (words []string) {
	for _, text := range []string{r.Output, r.Error, r.ErrorCode} {
		words = append(appendWords(words, text), gap)
	}
	words = appendJSONWords(words, r.Context)
	if input, isJSON := r.inputJSON(); isJSON {
		return appendJSONWords(words, input)
	}
	return appendWords(words, string(r.Input))
}

// appendJSONWords appends the words of all names, texts and numbers in valid JSON.
func appendJSONWords(words []string, text []byte) []string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil { // at the end, because it is valid
			return words
		}
		switch t := token.(type) {
		case string:
			words = append(appendWords(words, t), gap)
		case json.Number:
			words = append(appendWords(words, t.String()), gap)
		}
	}
}

// isWordRune reports whether a character is part of a word. Each character is judged separately, so the
// words inside a part of a text are words of the whole text.
func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || r == '_'
}

// appendWords appends the words of a text in lower case.
func appendWords(words []string, text string) []string {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !isWordRune(r) }) {
		words = append(words, strings.ToLower(word))
	}
	return words
}
