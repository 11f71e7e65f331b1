// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/script"
)

const (
	// filePrefix begins the ID of a file, before its number from 1.
	filePrefix = "f"
	// maxFileText limits the text and the JSON of a file that a script gets, in bytes.
	maxFileText = 256 << 10
)

// fileID returns the ID of an attachment of the run.
func fileID(file *engine.File, files []engine.File) string {
	for i := range files {
		if file == &files[i] {
			return filePrefix + strconv.Itoa(i+1)
		}
	}
	return ""
}

// findFile returns the attachment with an ID.
func findFile(id string, files []engine.File) (file *engine.File, found bool) {
	number, isID := strings.CutPrefix(id, filePrefix)
	n, err := strconv.Atoi(number)
	if !isID || err != nil || n < 1 || n > len(files) {
		return nil, false
	}
	return &files[n-1], true
}

// aboutFile returns the metadata of an attachment as scripts see it, without its ID.
func aboutFile(file *engine.File) map[string]any {
	return map[string]any{"name": file.Name, "mime_type": file.MIMEType, "size": len(file.Data)}
}

// scriptFile is a file that a script can read. read returns at most length bytes of its beginning; its error ends the attempt.
type scriptFile struct {
	size int
	read func(length int) ([]byte, error)
}

// listFiles returns the metadata of the attachments and of the saved files that the script sees.
func (h *host) listFiles(ctx context.Context) ([]any, error) {
	files, list := h.scope.Files(), []any{}
	for i := range files {
		about := aboutFile(&files[i])
		about["id"] = fileID(&files[i], files)
		list = append(list, about)
	}
	saved, err := h.effects.SavedFiles(ctx)
	for _, f := range saved {
		list = append(list, engine.AboutSaved(f))
	}
	return list, err
}

// findFile returns the attachment or the saved file with an ID.
func (h *host) findFile(ctx context.Context, id string) (*scriptFile, error) {
	if file, found := findFile(id, h.scope.Files()); found {
		return &scriptFile{len(file.Data), func(length int) ([]byte, error) { return file.Data[:min(len(file.Data), length)], nil }}, nil
	}
	saved, err := h.effects.SavedFiles(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range saved {
		if f.ID == id {
			return &scriptFile{int(f.Size), func(length int) ([]byte, error) { return h.effects.ReadSaved(ctx, id, int64(length)) }}, nil
		}
	}
	return nil, script.Fail("the run has no file with this ID; files.list returns the IDs")
}

// answerFiles answers the built-ins for files. No answer has an entry in the journal, because each attempt has the same
// files.
func (h *host) answerFiles(ctx context.Context, r script.Request) (json.RawMessage, error) {
	switch r.Name {
	case script.FileData:
		return readChunk(r.Args, h.scope.Files())
	case "files.list":
		list, err := h.listFiles(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(list)
	}
	var request struct {
		ID  string
		Max json.Number
	}
	if err := exactjson.Decode(r.Args, &request); err != nil {
		return nil, script.Fail("an argument has a wrong type")
	}
	file, err := h.findFile(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	if r.Name == "files.json" {
		return readJSON(file)
	}
	limit, err := strconv.Atoi(request.Max.String())
	if err != nil || limit < 1 || limit > maxFileText {
		return nil, script.Fail("max must be between 1 and %d", maxFileText)
	}
	return readText(file, limit)
}

// readText returns the beginning of a file as text.
func readText(file *scriptFile, limit int) (json.RawMessage, error) {
	data, err := file.read(limit + utf8.UTFMax)
	if err != nil {
		return nil, err
	}
	text := excerpt.Of(string(data), limit, "")
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, script.Fail("the file is not text in UTF-8")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // A page must not have six times its size.
	err = encoder.Encode(text)
	return bytes.TrimSpace(out.Bytes()), err
}

// readJSON returns the value of a JSON file.
func readJSON(file *scriptFile) (json.RawMessage, error) {
	if file.size > maxFileText {
		return nil, script.Fail("the file has %d bytes, at most %d are allowed", file.size, maxFileText)
	}
	data, err := file.read(file.size)
	if err == nil && jsonscan.Check(data) != nil {
		err = script.Fail("the file is not JSON")
	}
	return data, err
}

// maxChunk limits the bytes of a file in an answer, so that their base64 fits into a message. It has no padding inside of
// a file, because it is a multiple of three.
const maxChunk = 600 << 10

// readChunk returns a part of an attachment in base64.
func readChunk(args json.RawMessage, files []engine.File) (json.RawMessage, error) {
	var request struct{ Index, Offset int }
	if err := exactjson.Decode(args, &request); err != nil {
		return nil, fmt.Errorf("reading the request of a script: %w", err)
	}
	if request.Index < 0 || request.Index >= len(files) || request.Offset < 0 {
		return nil, script.Fail("the run has no such file")
	}
	data := files[request.Index].Data
	begin := min(request.Offset, len(data))
	end := min(begin+maxChunk, len(data))
	return json.Marshal(map[string]any{"data": data[begin:end], "more": end < len(data)})
}
