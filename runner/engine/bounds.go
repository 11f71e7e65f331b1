// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// maxBatch limits the entries in one append request, in bytes. It is well below
// dispatchapi.MaxRequest.
const maxBatch = 4 << 20

// checkOutput fails a run whose output is too large to store.
func checkOutput(output string) error {
	if len(output) <= dispatchapi.MaxOutput {
		return nil
	}
	return &failure{code: runerror.OutputTooLarge, message: fmt.Sprintf(
		"the output has %d bytes, the limit is %d; make the agent answer with less", len(output), dispatchapi.MaxOutput)}
}

// checkJournal fails a run whose journal would be too large to store.
func checkJournal(size int) error {
	if size <= dispatchapi.MaxJournal {
		return nil
	}
	return &failure{code: runerror.JournalTooLarge, message: fmt.Sprintf(
		"the answers of models and the results of tools have more than %d bytes together, the limit of a run; "+
			"make tools return less, or divide the work into several runs", dispatchapi.MaxJournal)}
}

// boundedResult encodes a tool's result. A result that is too large is cut, for the model and for
// the journal: "beginning" has its first part as text.
func boundedResult(t toolResult) ([]byte, error) {
	data, err := json.Marshal(t)
	if err != nil {
		t.Result, t.Error = nil, "the tool's result is not JSON"
		data, err = json.Marshal(t)
	}
	if err != nil || len(data) <= dispatchapi.MaxToolResult {
		return data, wrapped(err)
	}
	if t, err = withoutSides(t); err != nil {
		return nil, wrapped(err)
	}
	if t.Stop != nil {
		whole := t.Stop.Output
		t.Stop = &Stop{Unpublished: t.Stop.Unpublished}
		t.Stop.Output = cutEncoded(whole, remainingBytes(t))
		data, err = json.Marshal(t)
		return data, wrapped(err)
	}
	if data, err = json.Marshal(t); err != nil || len(data) <= dispatchapi.MaxToolResult {
		return data, wrapped(err)
	}
	if t.Error != "" {
		whole := t.Error
		t.Error = ""
		t.Error = cutEncoded(whole, remainingBytes(t))
		data, err = json.Marshal(t)
		return data, wrapped(err)
	}
	whole, err := json.Marshal(t.Result)
	if err != nil {
		return nil, wrapped(err)
	}
	cut := map[string]any{"truncated": fmt.Sprintf("The result has %d bytes of JSON, the limit is %d; this is its beginning. Request less data.",
		len(whole), dispatchapi.MaxToolResult), "beginning": ""}
	t.Result = cut
	cut["beginning"] = cutEncoded(string(whole), remainingBytes(t))
	data, err = json.Marshal(t)
	return data, wrapped(err)
}

// shownResult returns the result of a call as the model sees it. The middle of a result that is longer than the tool or the agent
// allows is left out. The journal has the whole result, or names the file with it.
func (l *llmAgent) shownResult(tool string, r Result) map[string]any {
	response, limit := r.Response(), l.agent.ToolOptions.MaxResult
	if t := l.findTool(tool); t != nil {
		limit = l.maxResult(t)
	}
	text, err := json.Marshal(response)
	if err != nil || len(text) <= limit {
		return response
	}
	if r.Error != "" {
		return map[string]any{"error": excerpt.Ends(r.Error, limit-shortenedOverhead, encodedLen)}
	}
	return shortenedResult(wholeText(response, text), limit,
		fmt.Sprintf("The result has %d bytes of JSON, the limit is %d. Request less data if you need the middle.", len(text), limit))
}

// wholeText returns the text of a result that has nothing else, or its JSON.
func wholeText(result map[string]any, encoded []byte) string {
	if only, isText := result["result"].(string); isText && len(result) == 1 {
		return only
	}
	return string(encoded)
}

// maxResult returns the limit for results of a tool as the model sees them.
func (s *Scope) maxResult(t *Tool) int { return cmp.Or(t.MaxResult, s.agent.ToolOptions.MaxResult) }

// shortenedOverhead is the size of a shortened result without its texts.
const shortenedOverhead = len(`{"result":"","note":""}`)

// shortenedResult returns the beginning and the end of a long text with a note, together at most limit bytes of JSON.
func shortenedResult(text string, limit int, note string) map[string]any {
	size := limit - shortenedOverhead
	for _, r := range note {
		size -= encodedLen(r)
	}
	return map[string]any{"result": excerpt.Ends(text, size, encodedLen), "note": note}
}

// maxSide limits each of the log and the context of a large result, as JSON in bytes.
const maxSide = 64 << 10

// withoutSides drops a log or a context that would leave no room for the result. A dropped context is an error of the tool.
func withoutSides(t toolResult) (toolResult, error) {
	log, err := json.Marshal(t.Log)
	if err != nil {
		return t, err
	}
	if len(log) > maxSide {
		t.MoreLog += len(t.Log)
		t.Log = []LogLine{{Level: "warn", Text: fmt.Sprintf("The log of the call was dropped: it has %d bytes of JSON.", len(log))}}
	}
	changes, err := json.Marshal(t.Context)
	if err != nil {
		return t, err
	}
	if len(changes) > maxSide {
		t.Context, t.Result, t.Stop = nil, nil, nil
		t.Error = fmt.Sprintf("the changes of the context have %d bytes of JSON, the limit is %d", len(changes), maxSide)
	}
	return t, nil
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("encoding a tool's result: %w", err)
}

// remainingBytes returns how many encoded bytes a result has left.
func remainingBytes(t toolResult) int {
	data, err := json.Marshal(t)
	if err != nil {
		return 0
	}
	return dispatchapi.MaxToolResult - len(data) - len(`,"error":""`)
}

// cutMark ends a shortened text.
const cutMark = "… (cut)"

// cutEncoded returns the longest beginning of text with a mark that needs at most most bytes inside
// a JSON string.
func cutEncoded(text string, most int) string {
	most -= len(cutMark)
	for i, r := range text {
		if most -= encodedLen(r); most < 0 {
			return text[:i] + cutMark
		}
	}
	return text
}

// encodedLen returns an upper bound of the bytes that encoding/json writes for a character.
func encodedLen(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\n':
		return 2
	case r < ' ' || r == utf8.RuneError || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
		return 6
	default:
		return utf8.RuneLen(r)
	}
}

// truncateText shortens text to at most most bytes, with whole characters and a mark.
func truncateText(text string, most int) string {
	return excerpt.Of(text, most, cutMark)
}

// fileBatch is the number of entries that are appended with the bytes of a file: its own, and the result that names it.
const fileBatch = 2

// firstBatch returns the first entries that fit into one request. A request with the bytes of a file has no other entries.
func firstBatch(entries []dispatchapi.JournalEntry) []dispatchapi.JournalEntry {
	size := 0
	for i, e := range entries {
		if e.Kind == dispatchapi.JournalFile {
			return entries[:cmp.Or(i, min(len(entries), fileBatch))]
		}
		if size += len(e.Data); size > maxBatch && i > 0 || i == dispatchapi.MaxEntries {
			return entries[:i]
		}
	}
	return entries
}
