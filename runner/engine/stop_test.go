// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// A script that stops the run does not cancel the calls beside it: a write in progress gets its result.
func TestStop_AwaitsOtherCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		begun := make(chan struct{})
		tools := []engine.Tool{
			{Name: "write", Run: func(ctx context.Context, _ *engine.Call) (map[string]any, error) {
				close(begun)
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Second):
					return map[string]any{"ok": true}, nil
				}
			}},
			{Name: "halt", Idempotent: true, Run: func(context.Context, *engine.Call) (map[string]any, error) {
				<-begun
				return nil, &engine.Stop{Output: "enough"}
			}},
		}
		p := project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\ntools: [write, halt]\n",
			"models/main.yaml", "steps: [{tool_calls: [{name: write}, {name: halt}]}]")
		out := engine.New(engine.Config{Models: h, Tools: tools}).Execute(t.Context(), input(p, h))
		require.Equal(t, engine.Completed, out.Status, out.Cause)
		require.Equal(t, "enough", out.Output)
		results := 0
		for _, e := range append(h.appended, out.Trailing...) {
			if e.Kind == dispatchapi.JournalToolResult {
				results++
			}
		}
		require.Equal(t, 2, results, "both calls have a result")
	})
}
