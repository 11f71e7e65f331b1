// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// httpTools returns a file of HTTP tools.
func httpTools(count int) string {
	var text strings.Builder
	text.WriteString("base_url: https://a.example\ntools:\n")
	for i := range count {
		fmt.Fprintf(&text, "  x%d: {description: X, request: GET /x}\n", i)
	}
	return text.String()
}

// A request to a model has the tools of the agent, of links, and the tools that find discoverable tools.
func TestCheckToolCounts_CountsAllSources(t *testing.T) {
	t.Parallel()
	link := func(agent string) []string {
		return []string{"connectors/ops.yaml", outboundConnector + "links: [{agent: " + agent + ", outbound: {mode: agent_tool}}]\n"}
	}
	flow := []string{"agents/flow.yaml", "name: flow\ntype: sequential\nagents: [a]\n"}
	const most = bundle.MaxTools - 100 // beside those of the first file
	for name, row := range map[string]struct {
		tools, count int
		keys         string
		files        []string
	}{
		"at the limit":           {tools: most},
		"link":                   {tools: most, files: link("a"), count: bundle.MaxTools + 1},
		"link at the limit":      {tools: most - 1, files: link("a")},
		"link of a parent":       {tools: most, files: append(link("flow"), flow...), count: bundle.MaxTools + 1},
		"discoverable":           {tools: most - 1, keys: "discoverable_tools: ['rare.*']\n", count: bundle.MaxTools + 1},
		"discoverable and links": {tools: most - 2, keys: "discoverable_tools: ['rare.*']\n", files: link("a"), count: bundle.MaxTools + 1},
		"discoverable that fit":  {tools: most - 2, keys: "discoverable_tools: ['rare.*']\n"},
		"link of another agent":  {tools: most, files: append(link("b"), "agents/b.yaml", "name: b\nmodel: openai/x\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := toolRepository("['t0.*', 't1.*']", append(row.files,
				"tools/t0.yaml", httpTools(100), "tools/t1.yaml", httpTools(row.tools), "tools/rare.yaml", httpTools(50))...)
			files["agents/a.yaml"] = append(files["agents/a.yaml"], row.keys...)
			p, err := bundle.Parse(files)
			require.NoError(t, err, "a bundle of an earlier release stays valid")
			problems := p.CheckToolCounts()
			if row.count == 0 {
				require.Empty(t, problems)
				return
			}
			require.EqualError(t, problems, fmt.Sprintf("agents/a.yaml:3:1: requests of the agent have %d tools, with the tools of its links and for its "+
				"discoverable tools; at most %d are allowed; name fewer tools, or remove a link", row.count, bundle.MaxTools))
		})
	}
}
