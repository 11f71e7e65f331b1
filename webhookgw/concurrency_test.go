// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// sent posts a webhook and returns its run.
func (b *bundle) sent(connector store.Connector, body string) store.Run {
	got := b.post(b.gateway, connector.ID.String(), body, nil)
	require.Equal(b.t, 200, got.status, "%v", got.body)
	ids := got.body["run_ids"].([]any)
	require.Len(b.t, ids, 1)
	run, err := b.store.Run(b.t.Context(), store.Key{ProjectID: b.project, ID: uuid.MustParse(ids[0].(string))})
	require.NoError(b.t, err)
	return run
}

func TestConcurrencyKey_RunsOneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	orders := b.connector("inbound", nil, "orders")
	before := b.sent(orders, `{"customer":"a"}`) // the agent is not deployed, and the route is cached now
	b.deployAgents(store.Agent{Name: "orders", Type: "llm", ConcurrencyKey: "input.customer"})
	first, second, other := b.sent(orders, `{"customer":"a"}`), b.sent(orders, `{"customer":"a"}`), b.sent(orders, `{"customer":7}`)

	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	claim := func(wait int, holding ...dispatchapi.Run) []dispatchapi.Run {
		req := dispatchapi.ClaimRequest{RunnerID: "test", Limit: 8, Slots: 8, WaitSeconds: wait}
		for _, run := range holding {
			req.Holding = append(req.Holding, dispatchapi.Lease{RunID: run.ID, Token: run.Token})
		}
		resp, err := client.Claim(t.Context(), req)
		require.NoError(t, err)
		return resp.Runs
	}
	claimed := claim(30)
	require.Len(t, claimed, 3)
	require.Equal(t, []uuid.UUID{before.ID, first.ID, other.ID}, []uuid.UUID{claimed[0].ID, claimed[1].ID, claimed[2].ID},
		"runs from before the activation have no key")
	require.Empty(t, claim(0, claimed...))
	require.NoError(t, client.Complete(t.Context(), first.ID, completed(claimed[1])))
	next := claim(30, claimed[0], claimed[2])
	require.Len(t, next, 1)
	require.Equal(t, second.ID, next[0].ID)
}

func TestConcurrencyKey_RunsThatDoNotWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	orders := b.connector("inbound", nil, "orders")
	b.deployAgents(store.Agent{Name: "orders", Type: "llm", ConcurrencyKey: "input.customer", ConcurrencyDrop: true})
	require.Equal(t, store.RunQueued, b.sent(orders, `{"customer":"a"}`).Status)
	dropped := b.sent(orders, `{"customer":"a"}`)
	require.Equal(t, store.RunCancelled, dropped.Status)
	require.Equal(t, runerror.ConcurrencyDropped, dropped.ErrorCode)
	for body, message := range map[string]string{
		`{}`:                "no such key: customer",
		`{"customer":null}`: "null_type",
		`{"customer":"` + strings.Repeat("x", store.MaxConcurrencyKey+1) + `"}`:       "257 bytes",
		`{"customer":"b","rest":"` + strings.Repeat("x", store.MaxInlineInput) + `"}`: "64 KiB",
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			failed := b.sent(orders, body)
			require.Equal(t, store.RunFailed, failed.Status)
			require.Equal(t, runerror.KeyUnavailable, failed.ErrorCode)
			require.Contains(t, failed.Error, message)
		})
	}
}
