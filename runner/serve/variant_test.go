// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// tried has an agent with a variant that calls a tool and executes half of the runs.
func tried() bundle.Files {
	return bundle.Files{
		"agents/hello.yaml":            []byte("name: hello\nmodel: scripted/hello\nvariants: {short: 50}\n"),
		"agents/hello-test-short.yaml": []byte("name: hello-short\nmodel: scripted/short\ntools: [charge]\n"),
		"models/hello.yaml":            []byte("steps: [{text: base}]"),
		"models/short.yaml":            []byte("steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: short}]"),
	}
}

// Each end of a run reports its variant, for all content types. The same input selects the same
// variant.
func TestVariant_IsReported(t *testing.T) {
	t.Parallel()
	p, by := newPort(t, tried()), map[string]string{}
	r := started(t, p, "one", nil, nil)
	for i := range 24 {
		input := fmt.Sprintf("%d", i%12)
		end := p.await(t, p.queue("hello", "text/plain", input))
		require.Equal(t, map[string]string{"": "base", "short": "short"}[end.TestName], end.Output)
		if i >= 12 {
			require.Equal(t, by[input], end.Output)
		}
		by[input] = end.Output
	}
	require.Contains(t, slices.Collect(maps.Values(by)), "base")
	require.Contains(t, slices.Collect(maps.Values(by)), "short")
	require.NoError(t, r.end(t))
}

// A run continues with the variant of its claim, and heartbeats name it.
func TestVariant_IsKeptByRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, finish := tried(), make(chan struct{})
		files["agents/hello.yaml"] = []byte("name: hello\nmodel: scripted/hello\nvariants: {short: 0}\n")
		p := newPort(t, files)
		r := started(t, p, "one", func(context.Context) error { <-finish; return nil }, func(o *serve.Options) { o.Heartbeat = 0 })
		run := p.queueRun(dispatchapi.Run{AgentName: "hello", TestName: "short", ContentType: "text/plain", Input: []byte("x")})
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		beats := look(p, func() []dispatchapi.HeartbeatRequest { return p.beats })
		require.Equal(t, dispatchapi.HeldLeases{{Lease: dispatchapi.Lease{RunID: run, Token: 1}, TestName: "short"}}, beats[0].Leases)
		close(finish)
		require.Equal(t, "short", p.await(t, run).Output)
		fresh := p.await(t, p.queue("hello", "text/plain", "x"))
		require.Equal(t, "base", fresh.Output)
		require.Empty(t, fresh.TestName)
		require.NoError(t, r.end(t))
	})
}

// The heartbeat that confirms the claim names the variant.
func TestVariant_IsInFirstHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files, finish := tried(), make(chan struct{})
		files["agents/hello.yaml"] = []byte("name: hello\nmodel: scripted/hello\nvariants: {short: 100}\n")
		p := newPort(t, files)
		r := started(t, p, "one", func(context.Context) error { <-finish; return nil }, func(o *serve.Options) { o.Heartbeat = 0 })
		run := p.queue("hello", "text/plain", "x")
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		beats := look(p, func() []dispatchapi.HeartbeatRequest { return p.beats })
		require.Equal(t, "short", beats[0].Leases[0].TestName)
		close(finish)
		require.Equal(t, "short", p.await(t, run).TestName)
		require.NoError(t, r.end(t))
	})
}
