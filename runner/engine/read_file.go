// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/excerpt"
)

const (
	// defaultPart and maxPart limit the part of a file that a call of read_file returns, in bytes.
	defaultPart = 16 << 10
	maxPart     = 64 << 10
)

var (
	readParameters = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"id":     map[string]any{"type": "string", "description": "ID of the file, such as s1."},
			"offset": map[string]any{"type": "integer", "minimum": 0, "description": "First byte of the part, 0 by default."},
			"length": map[string]any{"type": "integer", "minimum": 1, "maximum": maxPart, "description": "Maximum bytes of the part, 16384 by default."},
		},
		"required": []string{"id"}, "additionalProperties": false,
	}
	readSchema = mustCompile(readParameters)
)

// fileReader returns the tool that reads the large results of the agent's calls. An agent has it in each attempt. Requests have it
// once there is such a result, and only if that does not make too many tools.
func (l *llmAgent) fileReader() Tool {
	fits := l.countShown() < bundle.MaxTools
	return Tool{
		Name: bundle.ReadFile, Description: "Reads a part of a large result of a tool, which is a file of the run.",
		Parameters: readParameters, Schema: readSchema, Idempotent: true, MaxResult: dispatchapi.MaxToolResult, Run: l.readFile,
		isNeeded: func() bool { return fits && len(l.largeResults()) > 0 },
	}
}

// largeResults returns the files with the large results of the agent's calls.
func (l *llmAgent) largeResults() []fileEntry {
	return slices.DeleteFunc(slices.Clone(l.journal.savedFiles()), func(f fileEntry) bool { return !f.IsResult || f.Agent != l.path })
}

// readFile returns a part of a file as whole characters.
func (l *llmAgent) readFile(ctx context.Context, call *Call) (map[string]any, error) {
	id, _ := call.Arguments["id"].(string)
	files := l.largeResults()
	at := slices.IndexFunc(files, func(f fileEntry) bool { return f.ID == id })
	if at < 0 {
		return nil, fmt.Errorf("no result of a tool is the file %q", truncateText(id, maxToolName))
	}
	size := files[at].Size
	offset := min(integerOf(call.Arguments["offset"], 0), size)
	length := integerOf(call.Arguments["length"], defaultPart)
	data, err := l.readSaved(ctx, id, offset, length+utf8.UTFMax)
	if err != nil {
		return nil, err
	}
	begin := 0 // of the first character
	for offset > 0 && begin < min(len(data), utf8.UTFMax) && !utf8.RuneStart(data[begin]) {
		begin++
	}
	text := excerpt.Of(string(data[begin:]), int(length), "")
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("this part of the file is not text in UTF-8")
	}
	out := map[string]any{"text": text, "size": size}
	if next := offset + int64(begin+len(text)); next < size {
		out["next_offset"] = next
	}
	return out, nil
}

// integerOf returns an argument whose bounds the schema has checked.
func integerOf(value any, otherwise int64) int64 {
	number, given := value.(json.Number)
	if !given {
		return otherwise
	}
	n, err := number.Float64() // JSON Schema also accepts 1.0
	if err != nil || n > 1<<40 {
		return 1 << 40
	}
	return int64(n)
}
