// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
)

// newRunner is a client of a gateway's dispatch with a token of the project's environment, or of a build there.
func newRunner(t *testing.T, p *apiservertest.ProjectWithHistory, gateway string, build *uuid.UUID) *dispatchapi.Client {
	t.Helper()
	token, kind := uuid.NewString(), store.TokenRunner
	if build != nil {
		kind = store.TokenBuild
	}
	require.NoError(t, p.Store.PutToken(t.Context(), store.Token{
		SHA256: secrets.Digest(token), Kind: kind, ProjectID: p.ProjectID, EnvironmentID: p.ObjectID(t, "environment"), DeploymentID: build,
	}))
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: gateway, Token: token})
	require.NoError(t, err)
	return client
}

// executeRun lets a runner execute the run that waits, whose model is called three times: twice with a
// price, once without.
func executeRun(t *testing.T, p *apiservertest.ProjectWithHistory, gateway string) {
	t.Helper()
	runner := newRunner(t, p, gateway, nil)
	claimed, err := runner.Claim(t.Context(), dispatchapi.ClaimRequest{RunnerID: "runner", Slots: 1, Limit: 1})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, 1)
	run := claimed.Runs[0]
	require.Equal(t, p.QueuedRun, run.ID)
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

// testDeployment lets a build end whose tests failed, and have cost something.
func testDeployment(t *testing.T, p *apiservertest.ProjectWithHistory, gateway string, day store.Day) (deployment uuid.UUID) {
	t.Helper()
	deployment = p.OpenDeployment(t)
	build := newRunner(t, p, gateway, &deployment)
	why := "said nothing"
	require.NoError(t, build.FinishBuild(t.Context(), dispatchapi.BuildResult{
		FailureReason: dispatchapi.FailureTests, Message: "1 of 1 cases failed", TestResults: dispatchapi.Tests{{
			AgentName: "hello", TestName: "greets", Runs: 2, SuccessThreshold: 1, FailureReason: &why,
			Costs: dispatchapi.DayCosts{{Day: int64(day), Calls: 2, Currency: "USD", Nanos: 5_000_000_000}, {Day: int64(day), Calls: 3}},
		}},
	}))
	return deployment
}

// Costs of model calls of a runner or a build appear on the run, the agent and the test, before and after the rollup,
// also in another currency.
func TestCosts_ArriveFromRunnersAndBuilds(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	handler := dispatch.New(dispatch.Options{Store: w.Store, Logger: apiservertest.DiscardLogger()})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- handler.Run(ctx) }()
	gateway := httptest.NewServer(handler)
	t.Cleanup(func() {
		gateway.Close()
		stop()
		require.NoError(t, <-ended)
	})
	facade := httptest.NewServer(w.Server.Handler())
	t.Cleanup(facade.Close)
	key := w.CreateKey(t, nil)
	get := func(path string) []byte {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, facade.URL+"/v1/projects/"+w.ProjectID.String()+path, nil)
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
	require.NoError(t, w.Store.PutRates(t.Context(), []store.Rate{{Currency: store.USD, Day: today - 1, Micros: 1_250_000}}))
	executeRun(t, w, gateway.URL)
	deployment := testDeployment(t, w, gateway.URL, today)

	cost := func(currency costs.Currency, amount float64, unpriced int64) costs.Costing {
		return costs.Costing{Cost: rest.Null[costs.Cost]{Value: &costs.Cost{Currency: currency, Amount: amount}}, UnpricedCalls: &unpriced}
	}
	require.Equal(t, cost("USD", 2.5, 1), apiservertest.Decode[runs.Run](t, get("/runs/"+w.QueuedRun.String())).Costing)
	agent := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}", w.IDs)
	for range 2 {
		require.Equal(t, cost("USD", 2.5, 1), apiservertest.Decode[agents.AgentDetails](t, get(agent)).Costing)
		converted := apiservertest.Decode[agents.AgentDetails](t, get(agent+"&convert_costs_to=EUR"))
		require.Equal(t, cost("EUR", 2, 1), converted.Costing)
		no := costs.CostUnknown("no_price")
		require.Equal(t, []costs.ModelUsage{
			{Model: "openai/gpt-5", Calls: 2, TokenUsage: costs.TokenUsage{InputTokens: 10, OutputTokens: 4, TotalTokens: 14}, Costing: cost("EUR", 2, 0)},
			{Model: "ours/free", Calls: 1, TokenUsage: costs.TokenUsage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7}, Costing: costs.Costing{UnpricedCalls: ptr.To[int64](1), CostUnknown: rest.Null[costs.CostUnknown]{Value: &no}}},
		}, converted.UsageByModel)
		_, err := w.Store.RollUp(t.Context(), 100)
		require.NoError(t, err)
	}
	tests := "/deployments/" + deployment.String() + "/test-runs"
	require.Equal(t, cost("USD", 5, 3), apiservertest.Decode[[]deployments.TestResult](t, get(tests))[0].Costing)
	require.Equal(t, cost("EUR", 4, 3), apiservertest.Decode[[]deployments.TestResult](t, get(tests+"?convert_costs_to=EUR"))[0].Costing)
	require.Equal(t, cost("USD", 5, 3), apiservertest.Decode[deployments.Deployment](t, get("/deployments/"+deployment.String())).TestResults[0].Costing)
}
