// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
)

// runnerOf is a client of a gateway's dispatch with a token of the project's environment, or of a build there.
func (p *past) runnerOf(t *testing.T, gateway string, build *uuid.UUID) *dispatchapi.Client {
	t.Helper()
	token, kind := uuid.NewString(), store.TokenRunner
	if build != nil {
		kind = store.TokenBuild
	}
	require.NoError(t, p.db.PutToken(t.Context(), store.Token{
		SHA256: seal.Digest(token), Kind: kind, ProjectID: p.projectID, EnvironmentID: p.id(t, "environment"), DeploymentID: build,
	}))
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: gateway, Token: token})
	require.NoError(t, err)
	return client
}

// executed lets a runner execute the run that waits, whose model is called three times: twice with a
// price, once without.
func (p *past) executed(t *testing.T, gateway string) {
	t.Helper()
	runner := p.runnerOf(t, gateway, nil)
	claimed, err := runner.Claim(t.Context(), dispatchapi.ClaimRequest{RunnerID: "runner", Places: 1, Limit: 1})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, 1)
	run := claimed.Runs[0]
	require.Equal(t, p.queued, run.ID)
	usage := func(model string, cost *dispatchapi.Cost) *dispatchapi.ModelUsage {
		return &dispatchapi.ModelUsage{Model: model, TokenUsage: dispatchapi.TokenUsage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7}, Cost: cost}
	}
	answer := func(number int64, usage *dispatchapi.ModelUsage) dispatchapi.JournalEntry {
		return dispatchapi.JournalEntry{Sequence: number, Kind: dispatchapi.JournalModelAnswer, Data: []byte(`{}`), Usage: usage}
	}
	require.NoError(t, runner.Journal(t.Context(), run.ID, dispatchapi.JournalRequest{Token: run.Token, Entries: dispatchapi.Entries{
		answer(1, usage("openai/gpt-5", &dispatchapi.Cost{Currency: "USD", Nanos: 2_000_000_000})), answer(2, usage("ours/free", nil)),
	}}))
	require.NoError(t, runner.Complete(t.Context(), run.ID, dispatchapi.CompleteRequest{
		Token: run.Token, Status: dispatchapi.StatusCompleted, Output: "Hello",
		Journal: dispatchapi.Entries{answer(3, usage("openai/gpt-5", &dispatchapi.Cost{Currency: "USD", Nanos: 500_000_000}))},
	}))
}

// tested lets a build end whose tests failed, and have cost something.
func (p *past) tested(t *testing.T, gateway string, day store.Day) (deployment uuid.UUID) {
	t.Helper()
	deployment = p.building(t)
	build := p.runnerOf(t, gateway, &deployment)
	why := "said nothing"
	require.NoError(t, build.FinishBuild(t.Context(), dispatchapi.BuildResult{
		FailureReason: dispatchapi.FailureTests, Message: "1 of 1 cases failed", TestResults: dispatchapi.Tests{{
			AgentName: "hello", TestName: "greets", Runs: 2, SuccessThreshold: 1, FailureReason: &why,
			Costs: dispatchapi.DayCosts{{Day: int64(day), Calls: 2, Currency: "USD", Nanos: 5_000_000_000}, {Day: int64(day), Calls: 3}},
		}},
	}))
	return deployment
}

// TestACostArrives: what a runner, or a build, tells a gateway of calls of models is what the facade shows,
// by the run, the agent and the test, before it is rolled up and after; and in another currency.
func TestACostArrives(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	handler := dispatch.New(dispatch.Options{Store: w.db, Logger: quiet()})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- handler.Run(ctx) }()
	gateway := httptest.NewServer(handler)
	t.Cleanup(func() {
		gateway.Close()
		stop()
		require.NoError(t, <-ended)
	})
	facade := httptest.NewServer(w.server.Handler())
	t.Cleanup(facade.Close)
	key := w.key(t, nil)
	get := func(path string) []byte {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, facade.URL+"/v1/projects/"+w.projectID.String()+path, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+key)
		answer, err := facade.Client().Do(request)
		require.NoError(t, err)
		defer func() { require.NoError(t, answer.Body.Close()) }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", path, body)
		return body
	}
	today := store.Day(time.Now().Unix() / int64((24 * time.Hour).Seconds()))
	require.NoError(t, w.db.PutRates(t.Context(), []store.Rate{{Currency: store.USD, Day: today - 1, Micros: 1_250_000}}))
	w.executed(t, gateway.URL)
	deployment := w.tested(t, gateway.URL, today)

	cost := func(currency Currency, amount float64, unpriced int64) Costing {
		return Costing{Cost: Null[Cost]{Value: &Cost{Currency: currency, Amount: amount}}, UnpricedCalls: &unpriced}
	}
	require.Equal(t, cost("USD", 2.5, 1), decode[Run](t, get("/runs/"+w.queued.String())).Costing)
	agent := sample{path: "/agents/hello?environment_id={environment}"}.fill(t, w.ids)
	for range 2 {
		require.Equal(t, cost("USD", 2.5, 1), decode[AgentDetails](t, get(agent)).Costing)
		converted := decode[AgentDetails](t, get(agent+"&convert_costs_to=EUR"))
		require.Equal(t, cost("EUR", 2, 1), converted.Costing)
		no := unknownPrice
		require.Equal(t, []ModelUsage{
			{Model: "openai/gpt-5", Calls: 2, TokenUsage: TokenUsage{InputTokens: 10, OutputTokens: 4, TotalTokens: 14}, Costing: cost("EUR", 2, 0)},
			{Model: "ours/free", Calls: 1, TokenUsage: TokenUsage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7}, Costing: Costing{UnpricedCalls: number(1), CostUnknown: Null[CostUnknown]{Value: &no}}},
		}, converted.UsageByModel)
		_, err := w.db.RollUp(t.Context(), 100)
		require.NoError(t, err)
	}
	tests := "/deployments/" + deployment.String() + "/test-runs"
	require.Equal(t, cost("USD", 5, 3), decode[[]TestResult](t, get(tests))[0].Costing)
	require.Equal(t, cost("EUR", 4, 3), decode[[]TestResult](t, get(tests+"?convert_costs_to=EUR"))[0].Costing)
	require.Equal(t, cost("USD", 5, 3), decode[Deployment](t, get("/deployments/"+deployment.String())).TestResults[0].Costing)
}
