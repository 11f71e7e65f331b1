// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// A runner saves a large result under its claim, and another runner, which resumes the run, reads it.
func TestSavedFile_IsReadByNextRunner(t *testing.T) {
	t.Parallel()
	files := repo()
	files["agents/reader.yaml"] = []byte("name: reader\nmodel: scripted/reader\ntools: [export, charge]\n")
	files["models/reader.yaml"] = []byte(`steps:
  - {turn: 1, tool_calls: [{name: export}]}
  - {turn: 2, tool_calls: [{name: charge}]}
  - {turn: 3, tool_calls: [{name: read_file, arguments: {id: s1, offset: 300000}}]}
  - {match: '(?s).*tool read_file: (?P<r>.*)', text: '${r}'}
`)
	p := newPort(t, files)
	begun, finish, exports := make(chan struct{}), make(chan struct{}), 0
	with := func(charge func(ctx context.Context) error) func(*serve.Options) {
		return func(o *serve.Options) {
			o.Engine = engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{
				{Name: "export", Run: func(context.Context, *engine.Call) (map[string]any, error) {
					exports++
					return map[string]any{"result": strings.Repeat("x", 300_000) + "END"}, nil
				}},
				{Name: "charge", Idempotent: true, Run: func(ctx context.Context, _ *engine.Call) (map[string]any, error) { return nil, charge(ctx) }},
			}})
		}
	}
	one := started(t, p, "one", nil, with(func(context.Context) error { close(begun); <-finish; return nil }))
	id := p.queue("reader", "application/json", `{}`)
	<-begun
	one.stop()
	close(finish)
	require.NoError(t, <-one.done)
	require.Equal(t, "queued", p.status(id))
	two := started(t, p, "two", nil, with(func(context.Context) error { return nil }))
	require.JSONEq(t, `{"size":300003,"text":"END"}`, p.await(t, id).Output)
	require.Equal(t, 1, exports)
	require.Len(t, p.runs[id].saved["s1"], 300_003)
	require.NoError(t, two.end(t))
}

// A large result that the gateway does not save is shortened, and the run continues.
func TestSavedFile_IsRejected(t *testing.T) {
	t.Parallel()
	files := repo()
	files["agents/reader.yaml"] = []byte("name: reader\nmodel: scripted/reader\ntools: [export]\n")
	files["models/reader.yaml"] = []byte("steps: [{turn: 1, tool_calls: [{name: export}]}, {match: '(?s).*tool export: (?P<r>.*)', text: '${r}'}]\n")
	p := newPort(t, files)
	p.rejectSave = httpserver.CodeStorageFull
	one := started(t, p, "one", nil, func(o *serve.Options) {
		o.Engine = engine.New(engine.Config{Models: &model.Registry{}, Tools: []engine.Tool{
			{Name: "export", Run: func(context.Context, *engine.Call) (map[string]any, error) {
				return map[string]any{"result": strings.Repeat("x", 300_000)}, nil
			}},
		}})
	})
	end := p.await(t, p.queue("reader", "application/json", `{}`))
	require.Equal(t, dispatchapi.StatusCompleted, end.Status, end.Error)
	require.Contains(t, end.Output, "It is not saved as a file: the project's storage is full.")
	require.NoError(t, one.end(t))
}
