// SPDX-License-Identifier: Apache-2.0

// Command runner is the runner with a tool more, for tests of what becomes of a
// run whose runner is lost while a tool is at work.
package main

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/cmd/runner/command"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// book takes its time and must not be done twice.
var book = engine.Tool{
	Name:        "book",
	Description: "Books a table; takes a while.",
	Parameters: map[string]any{
		"type": "object", "properties": map[string]any{"seconds": map[string]any{"type": "number"}}, "required": []any{"seconds"},
	},
	Run: func(ctx context.Context, args map[string]any) (map[string]any, error) {
		seconds, _ := args["seconds"].(float64)
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
			return map[string]any{"booked": true}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	},
}

func main() { command.Main(book) }
