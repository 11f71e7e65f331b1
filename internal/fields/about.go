// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// About is the metadata of an input's attachments.
type About struct {
	// Files are the accepted files, Issues the omitted ones; nil without any.
	Files, Issues any
}

// In adds the metadata to an input that is a JSON object, as `files` and `file_issues`. It replaces
// existing keys.
func (a About) In(input []byte) ([]byte, error) {
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(input, &object); err != nil {
		return nil, fmt.Errorf("reading an input: %w", err)
	}
	delete(object, "files")
	delete(object, "file_issues")
	about := map[string]any{"files": a.Files}
	if a.Issues != nil {
		about["file_issues"] = a.Issues
	}
	for key, value := range object {
		about[key] = value
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(about); err != nil {
		return nil, fmt.Errorf("writing an input: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
