// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// Call is a call of a tool that a run made.
type Call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// Calls are the calls of tools in a journal, in their order.
func Calls(journal []dispatchapi.JournalEntry) (out []Call, err error) {
	for _, entry := range journal {
		if entry.Kind != dispatchapi.JournalToolStarted {
			continue
		}
		var c Call
		if err := exactjson.Decode(entry.Data, &c); err != nil {
			return nil, fmt.Errorf("reading journal entry %d: %w", entry.Sequence, err)
		}
		out = append(out, c)
	}
	return out, nil
}
