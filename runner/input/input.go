// SPDX-License-Identifier: Apache-2.0

// Package input converts the raw input of a run to the agent's input, for runs of connectors and of
// tests.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

var (
	// ErrInvalid: the input does not have its declared type.
	ErrInvalid = errors.New("the input is not what its content type says")
	// ErrTooComplex: the decoded input would need too much memory.
	ErrTooComplex = errors.New("the input is larger than a runner can decode")
)

// Read converts a raw input to the agent's message and the values of its context: the fields of a
// JSON object, also as "input". With attachments both contain their metadata. The error is
// ErrInvalid or ErrTooComplex.
func Read(contentType string, raw []byte, hasFiles bool, files dispatchapi.Files) (message string, values map[string]any, err error) {
	values = map[string]any{}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && media == fields.ContentType {
		if raw, err = fields.Object(raw); err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		media = "application/json"
	}
	if err != nil || media != "application/json" {
		values["input"] = string(raw)
		return string(raw), values, nil
	}
	if err := checkSize(raw); err != nil {
		return "", nil, err
	}
	if hasFiles {
		if raw, err = withFiles(raw, files); err != nil {
			return "", nil, err
		}
	}
	var parsed any
	if err := exactjson.Decode(raw, &parsed); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	values["input"] = parsed
	switch v := parsed.(type) {
	case string:
		return v, values, nil
	case map[string]any:
		for key, value := range v {
			if key != "input" {
				values[key] = value
			}
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return compact.String(), values, nil
}

// Facts are the data of a run that its context has besides the input.
type Facts struct {
	RunID, AgentName string
	// ConnectorID is the connector whose event started the run; "" without one.
	ConnectorID string
	// Headers are the headers of the event that the run sees.
	Headers map[string]string
}

// AddTo adds the facts to the values of a context. It always sets all of them, so that an input field with one of their names
// is not used.
func (f Facts) AddTo(values map[string]any) {
	shown := make(map[string]any, len(f.Headers))
	for name, value := range f.Headers {
		shown[name] = value
	}
	values["run_id"], values["agent_name"], values["connector_id"], values["headers"] = f.RunID, f.AgentName, nil, shown
	if f.ConnectorID != "" {
		values["connector_id"] = f.ConnectorID
	}
}

// withFiles adds the metadata of attachments to an input.
func withFiles(raw []byte, files dispatchapi.Files) ([]byte, error) {
	about := fields.About{Files: files.Files}
	if len(files.Issues) > 0 {
		about.Issues = files.Issues
	}
	out, err := about.In(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return out, nil
}

// checkSize rejects JSON that would take the memory of all runs.
func checkSize(raw []byte) error {
	if !json.Valid(raw) {
		return nil // the decoder reports the error before it allocates memory
	}
	switch size := jsonscan.Measure(raw); {
	case size.Values > dispatchapi.MaxInputValues:
		return fmt.Errorf("%w: it has %d JSON values, the limit is %d; send fewer, or send them as one text",
			ErrTooComplex, size.Values, dispatchapi.MaxInputValues)
	case size.Depth > dispatchapi.MaxInputDepth:
		return fmt.Errorf("%w: its JSON is nested %d deep, the limit is %d", ErrTooComplex, size.Depth, dispatchapi.MaxInputDepth)
	}
	return nil
}
