// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
)

var errInput = errors.New("the input is not what its content type says")

// readInput turns a raw input into what the agent is asked and the values of
// its context: the fields of a JSON object, also as "input".
func readInput(contentType string, raw []byte) (message string, values map[string]any, err error) {
	values = map[string]any{}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" {
		values["input"] = string(raw)
		return string(raw), values, nil
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
