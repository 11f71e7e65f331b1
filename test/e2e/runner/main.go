// SPDX-License-Identifier: Apache-2.0

// Command runner is the runner with an additional tool, for tests of a run whose runner is lost during a tool call.
package main

import (
	"context"
	"net/http"

	"github.com/agentplatform/agentplatform/cmd/runner/command"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// book calls a URL, takes as long as that does, and must not be done twice.
var book = engine.Tool{
	Name:        "book",
	Description: "Books a table; takes a while.",
	Parameters: map[string]any{
		"type": "object", "properties": map[string]any{"url": map[string]any{"type": "string"}}, "required": []any{"url"},
	},
	Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
		url, _ := call.Arguments["url"].(string)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		return map[string]any{"booked": resp.StatusCode == http.StatusOK}, resp.Body.Close()
	},
}

func main() { command.Main(book) }
