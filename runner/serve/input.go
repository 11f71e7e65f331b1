// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

var (
	errInput      = errors.New("the input is not what its content type says")
	errTooComplex = errors.New("the input is larger than a runner can decode")
)

// readInput turns a raw input into what the agent is asked and the values of
// its context: the fields of a JSON object, also as "input". Of an input with attachments these
// say what is known of them. The error is
// errInput or errTooComplex.
func readInput(contentType string, raw []byte, hasFiles bool, files dispatchapi.Files) (message string, values map[string]any, err error) {
	values = map[string]any{}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && media == fields.ContentType {
		if raw, err = fields.Object(raw); err != nil {
			return "", nil, fmt.Errorf("%w: %w", errInput, err)
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
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return "", nil, fmt.Errorf("%w: %w", errInput, err)
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
		return "", nil, fmt.Errorf("%w: %w", errInput, err)
	}
	return compact.String(), values, nil
}

// headersOf are the headers of the run's event as values of its context, also where there
// are none: a field of the input is not taken for them.
func headersOf(run dispatchapi.Run) map[string]any {
	headers := make(map[string]any, len(run.Headers))
	for name, value := range run.Headers {
		headers[name] = value
	}
	return headers
}

// checkSize refuses JSON that would take the memory of all runs once decoded.
func checkSize(raw []byte) error {
	if !json.Valid(raw) {
		return nil // decoding it says what is wrong, before it takes memory
	}
	switch size := jsonscan.Measure(raw); {
	case size.Values > dispatchapi.MaxInputValues:
		return fmt.Errorf("%w: it has %d JSON values, at most %d are taken; send fewer, or send them as one text",
			errTooComplex, size.Values, dispatchapi.MaxInputValues)
	case size.Depth > dispatchapi.MaxInputDepth:
		return fmt.Errorf("%w: its JSON is nested %d deep, at most %d are taken", errTooComplex, size.Depth, dispatchapi.MaxInputDepth)
	}
	return nil
}
