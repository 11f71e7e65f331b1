// SPDX-License-Identifier: Apache-2.0

// Package search is the language by which runs are looked for: a condition in CEL, or words. It
// says whether a run is meant, and what an index can tell of that beforehand.
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

// Run is a run with what of it is searched.
type Run struct {
	AgentName, TestName, Status string
	DeploymentID, ConnectorID   string // "" without any
	Attempt                     int
	// Duration is 0 of what has not ended.
	Duration time.Duration
	// Error and ErrorCode say why it failed; Output is the beginning of what it answered.
	Error, ErrorCode, Output string
	// Input is the beginning of its input, of that type. What of JSON is cut off is text.
	ContentType string
	Input       []byte
	Headers     map[string]string
}

// shownError is why the run failed as the REST API has it.
func (r Run) shownError() string {
	if r.Error == "" {
		return r.ErrorCode
	}
	return r.Error
}

// json is the input as JSON; false where it is text.
func (r Run) json() ([]byte, bool) {
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

// input is the input as expressions have it.
func (r Run) input() any {
	if text, isJSON := r.json(); isJSON {
		if value, err := expr.Input(text); err == nil {
			return value
		}
	}
	return strings.ToValidUTF8(string(r.Input), string(unicode.ReplacementChar))
}

// values are those of the names of a condition; the input, which is read for it, only where the
// condition looks at it.
func (r Run) values(looksAt func(name string) bool) map[string]any {
	known := map[string]any{"headers": r.Headers}
	values := map[string]any{
		"output": r.Output, "error": r.shownError(), "status": r.Status, "context": known, "input": nil,
		"agent_name": r.AgentName, "test_name": r.TestName, "error_code": r.ErrorCode, "deployment_id": r.DeploymentID,
		"connector_id": r.ConnectorID, "attempt": r.Attempt, "duration_ms": r.Duration.Milliseconds(),
	}
	if looksAt("input") || looksAt("context") {
		input := r.input()
		values["input"], known["input"] = input, input
	}
	return values
}

// Words are the words of the run's text, each once: what an index has of it.
func (r Run) Words() []string {
	all := slices.DeleteFunc(r.sequence(), func(word string) bool { return word == gap })
	slices.Sort(all)
	return slices.Compact(all)
}

// gap stands between texts in a sequence of words: no phrase goes over it.
const gap = ""

// sequence are the words of the run's text in order: of the output, of why it failed, and of the
// input, of whose JSON all names, texts and numbers.
func (r Run) sequence() (words []string) {
	for _, text := range []string{r.Output, r.Error, r.ErrorCode} {
		words = append(appendWords(words, text), gap)
	}
	input, isJSON := r.json()
	if !isJSON {
		return appendWords(words, string(r.Input))
	}
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil { // at its end, for it is valid
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

// inWord says whether words may have a character. What a text is split into depends on each of
// its characters alone: so the words of a part of a text, but those at its ends, are words of the
// whole.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || r == '_'
}

// appendWords appends the words of a text, in lower case.
func appendWords(words []string, text string) []string {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !inWord(r) }) {
		words = append(words, strings.ToLower(word))
	}
	return words
}
