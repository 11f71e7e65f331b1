// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// gatedPort responds to a claim request when the test allows it.
type gatedPort struct {
	*runnerPort
	asked   chan dispatchapi.ClaimRequest
	answers chan error
}

func (g *gatedPort) Claim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error) {
	select {
	case g.asked <- req:
	case <-ctx.Done():
		return dispatchapi.ClaimResponse{}, ctx.Err()
	}
	select {
	case err := <-g.answers:
		return dispatchapi.ClaimResponse{}, err
	case <-ctx.Done():
		return dispatchapi.ClaimResponse{}, ctx.Err()
	}
}

// The runner is ready after its first claim request, which does not wait for runs. It is not ready
// after too long without a response, and while it drains.
func TestReady_FollowsClaimResponses(t *testing.T) {
	t.Parallel()
	var clock sync.Mutex
	now := time.Unix(0, 0)
	pass := func(d time.Duration) { clock.Lock(); defer clock.Unlock(); now = now.Add(d) }
	p := newPort(t, repo())
	gate := &gatedPort{runnerPort: p.as("one"), asked: make(chan dispatchapi.ClaimRequest), answers: make(chan error)}
	server, err := serve.New(serve.Options{
		Dispatch: gate, RunnerID: "one", Engine: engine.New(engine.Config{Models: &model.Registry{}}),
		Now: func() time.Time { clock.Lock(); defer clock.Unlock(); return now },
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()

	require.Zero(t, (<-gate.asked).WaitSeconds)
	require.ErrorContains(t, server.Ready(t.Context()), "not answered yet")
	gate.answers <- errors.New("away")
	require.Zero(t, (<-gate.asked).WaitSeconds)
	require.ErrorContains(t, server.Ready(t.Context()), "not answered yet")
	gate.answers <- nil
	require.NotZero(t, (<-gate.asked).WaitSeconds, "dispatch knows it by now")
	require.NoError(t, server.Ready(t.Context()))

	pass(30 * time.Second)
	require.NoError(t, server.Ready(t.Context()), "a request that waits takes 20 s")
	pass(time.Second)
	require.ErrorContains(t, server.Ready(t.Context()), "for 30s")
	gate.answers <- nil
	<-gate.asked
	require.NoError(t, server.Ready(t.Context()))

	stop()
	require.True(t, (<-gate.asked).Draining)
	gate.answers <- nil
	require.NoError(t, <-done)
	require.ErrorContains(t, server.Ready(t.Context()), "draining")
}

// Metrics count ends of runs, model requests and tool calls.
func TestMetrics_CountRunsRequestsAndCalls(t *testing.T) {
	t.Parallel()
	registry := metrics.NewRegistry()
	metrics.Build(registry, metrics.ProcessRunner)
	counted := metrics.NewRunner(registry, model.ProviderTypes, model.Codes)
	p := newPort(t, repo())
	calling, finish := make(chan struct{}), make(chan struct{})
	one := started(t, p, "one", nil, func(o *serve.Options) {
		o.Metrics = counted
		o.Engine = engine.New(engine.Config{Metrics: counted, Models: &model.Registry{Metrics: counted}, Tools: []engine.Tool{{
			Name: "charge", Run: func(ctx context.Context, _ *engine.Call) (map[string]any, error) {
				calling <- struct{}{}
				select {
				case <-finish:
					return nil, errors.New("declined")
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		}}})
	})
	require.Equal(t, "Hello Ada!", p.await(t, p.queue("hello", "application/json", `{"name":"Ada"}`)).Output)
	require.Equal(t, runerror.AgentNotFound, p.await(t, p.queue("nobody", "application/json", `{}`)).ErrorCode)
	stolen := p.queue("charger", "application/json", `{}`)
	<-calling
	held := metrictest.Of(t, registry)
	require.GreaterOrEqual(t, held.Value(t, "agentplatform_runner_runs"), 1.0)
	p.steal(stolen)
	released := p.queue("charger", "application/json", `{}`)
	<-calling
	one.stop()
	finish <- struct{}{}
	require.NoError(t, <-one.done)
	require.Equal(t, "queued", p.status(released))

	s := metrictest.Of(t, registry)
	s.Check(t, metrics.ProcessRunner)
	require.NotContains(t, s.Text(), "charge")
	for name, want := range map[string]float64{
		`agentplatform_runner_slots`:                                                  4,
		`agentplatform_runner_ended_runs_total{status="completed"}`:                   1,
		`agentplatform_runner_ended_runs_total{status="failed"}`:                      1,
		`agentplatform_runner_ended_runs_total{status="lost"}`:                        1,
		`agentplatform_runner_tool_calls_total{outcome="error"}`:                      1,
		`agentplatform_runner_tool_calls_total{outcome="cancelled"}`:                  1,
		`agentplatform_runner_model_requests_total{outcome="ok",provider="scripted"}`: 3,
		`agentplatform_runner_model_request_duration_seconds{provider="scripted"}`:    3,
	} {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, want, s.Moved()[name], 0)
		})
	}
	require.NotZero(t, s.Moved()[`agentplatform_runner_ended_runs_total{status="released"}`], "perhaps it took the run again as it stopped")
	require.Zero(t, s.Value(t, "agentplatform_runner_runs"))
	require.NotZero(t, s.Moved()[`agentplatform_runner_model_tokens_total{kind="output",provider="scripted"}`])
	require.NotZero(t, s.Moved()[`agentplatform_runner_polls_total{outcome="ok"}`])
}
