// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/store"
)

// maxShownInput is the maximum size of an input in a response, in bytes.
const maxShownInput = 1 << 20

// runFile is an accepted attachment in the input of a run. fileIssue is an omitted attachment.
type (
	runFile struct {
		Name      string `json:"name"`
		FieldName string `json:"field_name"`
		MIMEType  string `json:"mime_type"`
		Size      int64  `json:"size"`
	}
	fileIssue struct {
		Name      string           `json:"name"`
		FieldName string           `json:"field_name"`
		Reason    store.FileReason `json:"reason"`
	}
)

// inputWithFiles is an input with its accepted and omitted attachments.
func inputWithFiles(input json.RawMessage, files []store.File) (json.RawMessage, error) {
	accepted, _ := store.SplitFiles(files)
	omitted := store.FileIssues(files)
	shown, issues := make([]runFile, 0, len(accepted)), make([]fileIssue, 0, len(omitted))
	for _, f := range accepted {
		shown = append(shown, runFile{f.Name, f.FieldName, f.MIMEType, f.Size})
	}
	for _, f := range omitted {
		issues = append(issues, fileIssue{f.Name, f.FieldName, f.Reason})
	}
	about := fields.About{Files: shown}
	if len(issues) > 0 {
		about.Issues = issues
	}
	out, err := about.In(input)
	if err != nil {
		return nil, fmt.Errorf("showing files: %w", err)
	}
	return out, nil
}
