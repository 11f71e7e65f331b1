// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/runner/engine"
)

// TestAttachmentsAreNotCopied: each turn of a model, and each stage's, sees the bytes that
// the engine was given, not a copy of them.
func TestAttachmentsAreNotCopied(t *testing.T) {
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
		var found []*genai.Blob
		for _, content := range req.Contents {
			for _, part := range content.Parts {
				require.Nil(t, part.FileData)
				if part.InlineData != nil {
					found = append(found, part.InlineData)
				}
			}
		}
		require.Len(t, found, len(in.Files))
		for i, f := range in.Files {
			require.Equal(t, &genai.Blob{DisplayName: f.Name, MIMEType: f.MIMEType, Data: f.Data}, found[i])
			require.Same(t, &f.Data[0], &found[i].Data[0])
		}
	}
}
