// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
)

func TestPolicy_CheckReportsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		link    connector.Policy
		field   string
		problem string
	}{
		"nothing":               {connector.Policy{}, "", ""},
		"automatic":             {connector.Policy{Mode: "automatic", SourceConnectors: []string{"a", "b"}, Statuses: connector.Statuses}, "", ""},
		"a tool":                {connector.Policy{Mode: "agent_tool", ActionName: "_tell-9" + strings.Repeat("x", connector.MaxActionName-7)}, "", ""},
		"middleware":            {connector.Policy{Mode: "middleware"}, "", ""},
		"no mode":               {connector.Policy{Mode: "AgentTool"}, "mode", `must be automatic, agent_tool or middleware, not "AgentTool"`},
		"a digit first":         {connector.Policy{Mode: "agent_tool", ActionName: "9"}, "action_name", "no digit or dash first"},
		"a long name":           {connector.Policy{Mode: "agent_tool", ActionName: strings.Repeat("x", connector.MaxActionName+1)}, "action_name", "at most 64"},
		"a tool that is none":   {connector.Policy{ActionName: "tell"}, "action_name", "is for the mode agent_tool"},
		"a tool of sources":     {connector.Policy{Mode: "agent_tool", SourceConnectors: []string{"a"}}, "source_connectors", "is for the mode automatic"},
		"a tool of statuses":    {connector.Policy{Mode: "agent_tool", Statuses: []string{"failed"}}, "statuses", "is for the mode automatic"},
		"a status that is none": {connector.Policy{Statuses: []string{"done"}}, "statuses", `not "done"`},
		"a source twice":        {connector.Policy{SourceConnectors: []string{"a", "b", "a"}}, "source_connectors", "has one twice"},
		"a status twice":        {connector.Policy{Statuses: []string{"failed", "failed"}}, "statuses", "has one twice"},
		"many sources":          {connector.Policy{SourceConnectors: strings.Split(strings.Repeat("x", connector.MaxSources)+"y", "x")}, "source_connectors", "at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := c.link.Check()
			if c.field == "" {
				require.Empty(t, wrong)
				return
			}
			require.NotEmpty(t, wrong)
			require.Equal(t, c.field, wrong[0].Field)
			require.Contains(t, wrong[0].Problem, c.problem)
		})
	}
}
