// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// hourly makes a connector tick every hour.
func hourly(c *store.Connector) {
	c.Type, c.SecretDigest = store.TypeCron, nil
	c.Config = []byte(`{"schedule":"@hourly","timezone":"UTC","missed_ticks":"latest","prompt":"Go","payload":{"a":1}}`)
}

// TestCron_RunsNewestMissedTick: a new gateway runs the newest tick that was due without a gateway,
// once, and a runner gets prompt and payload.
func TestCron_RunsNewestMissedTick(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", hourly, "hello")
	times := func() store.TickTimes {
		times, err := b.store.TickTimes(t.Context(), b.project, []uuid.UUID{c.ID})
		require.NoError(t, err)
		return times[c.ID]
	}
	b.serve(b.store) // the gateway checks at once
	require.Eventually(t, func() bool { return times().Planned }, time.Minute, time.Millisecond)
	now, err := b.store.Now(t.Context())
	require.NoError(t, err)
	missed := now.Truncate(time.Hour).Add(-3 * time.Hour)
	moved, err := b.store.MoveTicks(t.Context(), []store.TickMove{{Connector: c.Key(), From: times().Next, To: missed, Planned: true}})
	require.NoError(t, err)
	require.Equal(t, 1, moved)
	b.serve(b.store)
	require.Eventually(t, func() bool { return times().Last != nil }, time.Minute, time.Millisecond)
	ran := *times().Last
	require.Equal(t, ran, ran.Truncate(time.Hour))
	require.True(t, ran.After(missed))

	claimed, err := b.store.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: b.project, ID: b.environment}, RunnerID: "r", Slots: 1, Limit: 1, Lease: store.LeaseDuration,
	})
	require.NoError(t, err)
	require.Len(t, claimed.Runs, 1)
	require.JSONEq(t, `{"scheduled_at":"`+ran.Format(time.RFC3339)+`","prompt":"Go","payload":{"a":1}}`, string(claimed.Runs[0].Input))
	runs, total, err := b.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Trigger: store.TriggerCron, Limit: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, total)
	require.Equal(t, store.ConnectorRunRunning, runs[0].Status)
	require.True(t, times().Next.After(now))

	answer := b.post(b.gateway, c.ID.String(), `{}`, nil)
	require.Equal(t, http.StatusBadRequest, answer.status)
	require.Equal(t, "not_a_webhook", answer.body["code"])
	require.Contains(t, answer.body["detail"], "runs on a schedule")
}
