// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// Each turn of each model gets the original bytes and not a copy.
func TestFiles_AreNotCopied(t *testing.T) {
	t.Parallel()
	h := &house{}
	in := input(project(t, "agents/main.yaml", "name: main\ntype: sequential\nagents: [first, second]\n",
		"agents/first.yaml", "name: first\nmodel: scripted/m\ntools: [look]\n", "agents/second.yaml", "name: second\nmodel: scripted/n\n",
		"models/m.yaml", "steps: [{turn: 1, tool_calls: [{name: look}]}, {text: seen}]", "models/n.yaml", "steps: [{text: done}]"), h)
	in.Files = []engine.File{{Name: "a.txt", MIMEType: "text/plain", Data: []byte("one")}, {Name: "b.pdf", MIMEType: "application/pdf", Data: []byte("two")}}
	out := h.engine().Execute(t.Context(), in)
	require.Equal(t, "done", out.Output, out.Cause)
	require.Len(t, h.requests, 3)
	for _, req := range h.requests {
		var found []*model.File
		for _, content := range req.Contents {
			for _, part := range content.Parts {
				if part.File != nil {
					found = append(found, part.File)
				}
			}
		}
		require.Len(t, found, len(in.Files))
		for i, f := range in.Files {
			require.Equal(t, &model.File{Name: f.Name, MIMEType: f.MIMEType, Data: f.Data}, found[i])
			require.Same(t, &f.Data[0], &found[i].Data[0])
		}
	}
}
