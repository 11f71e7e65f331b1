// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// contentOf returns a message as middleware sees it: texts, and files without their data.
func contentOf(content *model.Content, files []engine.File) map[string]any {
	parts := []any{}
	for _, part := range content.Parts {
		switch {
		case part.Thought:
		case part.File != nil:
			about := aboutFile(part.File)
			about["file"] = fileID(part.File, files)
			parts = append(parts, about)
		case part.Text != "":
			parts = append(parts, map[string]any{"text": part.Text})
		}
	}
	return map[string]any{"role": content.Role, "parts": parts}
}

// parseContent returns the message that middleware returned. It keeps the role.
func parseContent(value json.RawMessage, role string, files []engine.File) (*model.Content, error) {
	var returned struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	if len(value) == 0 || value[0] != '{' {
		return nil, errors.New(`it must return a map with the keys role and parts`)
	}
	if err := exactjson.Decode(value, &returned); err != nil {
		return nil, errors.New("role must be a text, and parts a list")
	}
	if returned.Role != "" && returned.Role != role {
		return nil, fmt.Errorf("the role must stay %q", role)
	}
	if len(returned.Parts) == 0 {
		return nil, errors.New("parts must have at least one part")
	}
	content, attached := &model.Content{Role: role}, map[*engine.File]bool{}
	for i, text := range returned.Parts {
		part, err := parsePart(text, files)
		if err != nil {
			return nil, fmt.Errorf("parts[%d]: %w", i, err)
		}
		if part.File != nil && attached[part.File] { // each copy would be a part of the request
			return nil, fmt.Errorf("parts[%d]: the message has this file already; name each file once", i)
		}
		attached[part.File] = true
		content.Parts = append(content.Parts, part)
	}
	return content, nil
}

func parsePart(value json.RawMessage, files []engine.File) (*model.Part, error) {
	var part struct {
		Text *string `json:"text"`
		File *string `json:"file"`
	}
	if err := exactjson.Decode(value, &part); err != nil || (part.Text == nil) == (part.File == nil) {
		return nil, errors.New("a part has either a text or the ID of a file")
	}
	if part.Text != nil {
		return &model.Part{Text: *part.Text}, nil
	}
	file, found := findFile(*part.File, files)
	if !found {
		return nil, errors.New("the run has no file with this ID")
	}
	return &model.Part{File: file}, nil
}
