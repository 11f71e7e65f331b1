// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// No request to a model has more tools than the limit, whatever sources they have. Beyond the limit a run fails before its
// first request, in each attempt. A resumed agent whose model has seen the tools gets a further link.
func TestAgent_LimitsTools(t *testing.T) {
	t.Parallel()
	offered := func(shown, discoverable int) (tools []engine.Tool) {
		for i := range shown + discoverable {
			tools = append(tools, engine.Tool{Name: fmt.Sprint("t", i), Discoverable: i >= shown})
		}
		return tools
	}
	link := []dispatchapi.Action{{Name: "tell", Connector: "Ops"}}
	for name, row := range map[string]struct {
		offered []engine.Tool
		links   []dispatchapi.Action
		count   int // in the error
	}{
		"at the limit":           {offered: offered(bundle.MaxTools, 0)},
		"beyond the limit":       {offered: offered(bundle.MaxTools+1, 0), count: bundle.MaxTools + 1},
		"link at the limit":      {offered: offered(bundle.MaxTools-1, 0), links: link},
		"link":                   {offered: offered(bundle.MaxTools, 0), links: link, count: bundle.MaxTools + 1},
		"discoverable":           {offered: offered(bundle.MaxTools-2, 300)},
		"search of discoverable": {offered: offered(bundle.MaxTools-1, 300), count: bundle.MaxTools + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &house{}
			e := engine.New(engine.Config{Models: h, Features: []engine.Feature{{
				Name:         "a server",
				OfferedTools: func(context.Context, *engine.Scope) ([]engine.Tool, error) { return row.offered, nil },
			}}})
			in := sending(project(t, "agents/main.yaml", "name: main\nmodel: scripted/main\n", "models/main.yaml", "steps: [{text: done}]\n"), h, &post{})
			in.Actions = row.links
			out := e.Execute(t.Context(), in)
			if row.count == 0 {
				require.Equal(t, engine.Completed, out.Status, out.Error)
				require.Len(t, h.requests[0].Tools, bundle.MaxTools)
				in.Actions = append(slices.Clone(row.links), dispatchapi.Action{Name: "later", Connector: "Ops"})
				in.Prior = slices.Concat(h.appended, out.Trailing)
				out = e.Execute(t.Context(), in)
				require.Equal(t, engine.Completed, out.Status, out.Error)
				return
			}
			in.Prior = slices.Concat(h.appended, out.Trailing)
			for _, got := range []engine.Outcome{out, e.Execute(t.Context(), in)} {
				require.Equal(t, runerror.TooManyTools, got.ErrorCode)
				require.Equal(t, fmt.Sprintf(`requests of agent "main" have %d tools, with the tools of its MCP servers and links; at most %d are allowed; `+
					`name fewer tools, set "discoverable" of an MCP server, or remove a link`, row.count, bundle.MaxTools), got.Error)
			}
			require.Empty(t, h.asked)
		})
	}
}
