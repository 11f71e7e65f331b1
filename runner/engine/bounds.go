// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// maxBatch is the most bytes of entries that one request appends, well below
// dispatchapi.MaxRequest.
const maxBatch = 4 << 20

// checkOutput fails a run whose output is too large to be stored.
func checkOutput(output string) error {
	if len(output) <= dispatchapi.MaxOutput {
		return nil
	}
	return &failure{code: CodeOutputTooLarge, message: fmt.Sprintf(
		"the output has %d bytes, at most %d are stored; have the agent answer with less", len(output), dispatchapi.MaxOutput)}
}

// checkJournal fails a run whose journal would be too large to be stored.
func checkJournal(size int) error {
	if size <= dispatchapi.MaxJournal {
		return nil
	}
	return &failure{code: CodeJournalTooLarge, message: fmt.Sprintf(
		"the answers of models and the results of tools have more than %d bytes together, which is the most that is stored of a run; "+
			"have tools return less, or divide the work into several runs", dispatchapi.MaxJournal)}
}

// boundedResult encodes a tool's result. One that is too large is cut and says
// so, to the model as to the journal: its beginning stands as text under
// "beginning".
func boundedResult(t toolResult) ([]byte, error) {
	data, err := json.Marshal(t)
	if err != nil {
		t.Result, t.Error = nil, "the tool's result is no JSON"
		data, err = json.Marshal(t)
	}
	if err != nil || len(data) <= dispatchapi.MaxToolResult {
		return data, wrapped(err)
	}
	if t.Error != "" {
		whole := t.Error
		t.Error = ""
		t.Error = cutEncoded(whole, room(t))
		data, err = json.Marshal(t)
		return data, wrapped(err)
	}
	whole, err := json.Marshal(t.Result)
	if err != nil {
		return nil, wrapped(err)
	}
	cut := map[string]any{"truncated": fmt.Sprintf("The result has %d bytes of JSON, at most %d are kept; this is its beginning. Ask for less at once.",
		len(whole), dispatchapi.MaxToolResult), "beginning": ""}
	t.Result = cut
	cut["beginning"] = cutEncoded(string(whole), room(t))
	data, err = json.Marshal(t)
	return data, wrapped(err)
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("encoding a tool's result: %w", err)
}

// room is how many encoded bytes a result has left.
func room(t toolResult) int {
	data, err := json.Marshal(t)
	if err != nil {
		return 0
	}
	return dispatchapi.MaxToolResult - len(data) - len(`,"error":""`)
}

// cutMark ends a text that was cut.
const cutMark = "… (cut)"

// cutEncoded is the longest beginning of text, with a mark, that takes at most so
// many bytes inside a JSON string.
func cutEncoded(text string, most int) string {
	most -= len(cutMark)
	for i, r := range text {
		if most -= encodedLen(r); most < 0 {
			return text[:i] + cutMark
		}
	}
	return text
}

// encodedLen is at least what encoding/json writes for a character.
func encodedLen(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r < ' ' || r == utf8.RuneError || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
		return 6
	default:
		return utf8.RuneLen(r)
	}
}

// cut shortens text to at most so many bytes, whole characters and a mark.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(cutMark)], "") + cutMark
}

// batch is the beginning of entries that goes into one request.
func batch(entries []dispatchapi.JournalEntry) []dispatchapi.JournalEntry {
	size := 0
	for i, e := range entries {
		if size += len(e.Data); size > maxBatch && i > 0 || i == dispatchapi.MaxEntries {
			return entries[:i]
		}
	}
	return entries
}
