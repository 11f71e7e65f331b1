// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/outbound"
)

func TestLink_CheckReportsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		link    outbound.Link
		field   outbound.Field
		problem string
	}{
		"nothing":               {outbound.Link{}, "", ""},
		"automatic":             {outbound.Link{Mode: "automatic", Sources: []string{"a", "b"}, Statuses: outbound.Statuses}, "", ""},
		"a tool":                {outbound.Link{Mode: "agent_tool", ActionName: "_tell-9" + strings.Repeat("x", outbound.MaxActionName-7)}, "", ""},
		"middleware":            {outbound.Link{Mode: "middleware"}, "", ""},
		"no mode":               {outbound.Link{Mode: "AgentTool"}, outbound.FieldMode, `must be automatic, agent_tool or middleware, not "AgentTool"`},
		"a digit first":         {outbound.Link{Mode: "agent_tool", ActionName: "9"}, outbound.FieldActionName, "no digit or dash first"},
		"a long name":           {outbound.Link{Mode: "agent_tool", ActionName: strings.Repeat("x", outbound.MaxActionName+1)}, outbound.FieldActionName, "at most 64"},
		"a tool that is none":   {outbound.Link{ActionName: "tell"}, outbound.FieldActionName, "is for the mode agent_tool"},
		"a tool of sources":     {outbound.Link{Mode: "agent_tool", Sources: []string{"a"}}, outbound.FieldSources, "is for the mode automatic"},
		"a tool of statuses":    {outbound.Link{Mode: "agent_tool", Statuses: []string{"failed"}}, outbound.FieldStatuses, "is for the mode automatic"},
		"a status that is none": {outbound.Link{Statuses: []string{"done"}}, outbound.FieldStatuses, `not "done"`},
		"a source twice":        {outbound.Link{Sources: []string{"a", "b", "a"}}, outbound.FieldSources, "has one twice"},
		"a status twice":        {outbound.Link{Statuses: []string{"failed", "failed"}}, outbound.FieldStatuses, "has one twice"},
		"many sources":          {outbound.Link{Sources: strings.Split(strings.Repeat("x", outbound.MaxSources)+"y", "x")}, outbound.FieldSources, "at most 32"},
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
