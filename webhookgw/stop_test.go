// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// stoppable runs a second gateway with the store until stop is called. ended receives its error.
func (b *bundle) stoppable(grace time.Duration, waiting waits) (gateway *Gateway, stop func(), ended <-chan error) {
	gateway, err := New(Options{
		Store: b.store, PublicAddr: "127.0.0.1:0", InternalAddr: "127.0.0.1:0", Grace: grace, WithTimeout: waiting.withTimeout,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gateway.Run(ctx) }()
	b.t.Cleanup(cancel)
	return gateway, cancel, done
}

// refusesConnections reports whether no server listens at an address any more.
func refusesConnections(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	_ = conn.Close() // it was accepted and is not used
	return false
}

// TestStop_WaitsForSyncCallers: the public port accepts no new requests, and the internal port
// serves until the last caller has its response.
func TestStop_WaitsForSyncCallers(t *testing.T) {
	t.Parallel()
	b, waiting := setup(t), make(waits, 1)
	c := b.connector("sync", nil, "hello")
	gateway, stop, ended := b.stoppable(time.Hour, waiting)
	answer := make(chan reply, 1)
	go func() { answer <- b.post(gateway, c.ID.String(), `{}`, nil) }()
	<-waiting
	stop()
	require.Eventually(t, func() bool { return refusesConnections(gateway.PublicAddr()) }, time.Minute, time.Millisecond)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	resp, err := client.Claim(t.Context(), dispatchapi.ClaimRequest{RunnerID: "r", Limit: 1, WaitSeconds: 30})
	require.NoError(t, err)
	require.Len(t, resp.Runs, 1)
	require.NoError(t, client.Complete(t.Context(), resp.Runs[0].ID, completed(resp.Runs[0])))
	got := <-answer
	require.Equal(t, http.StatusOK, got.status)
	require.NoError(t, <-ended)
	require.True(t, refusesConnections(gateway.InternalAddr()))
}

// TestStop_RetryWaitsForSameRun: with the same idempotency key. Without a key the run would start
// twice.
func TestStop_RetryWaitsForSameRun(t *testing.T) {
	t.Parallel()
	b, waiting := setup(t), make(waits, 1)
	c := b.connector("sync", nil, "hello")
	gateway, stop, ended := b.stoppable(time.Nanosecond, waiting)
	keyed := func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }
	answer := make(chan reply, 1)
	go func() { answer <- b.post(gateway, c.ID.String(), `{}`, keyed) }()
	<-waiting
	stop()
	cut := <-answer
	require.Equal(t, http.StatusGatewayTimeout, cut.status)
	require.Empty(t, cut.header.Get("Retry-After"))
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	b.runner(completed)
	again := b.post(b.gateway, c.ID.String(), `{}`, keyed)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, cut.body["run_id"], again.body["result"].(map[string]any)["run_id"])
	_, total, err := b.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Limit: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, total)
}

// TestStop_IgnoresDisconnectedRunners: a waiting runner connects to another gateway.
func TestStop_IgnoresDisconnectedRunners(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		stopped   bool
		err, want error
	}{
		"stopped in order":   {true, nil, nil},
		"disconnected":       {true, fmt.Errorf("x: %w", context.DeadlineExceeded), nil},
		"broken during stop": {true, broken, broken},
		"late before":        {false, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			if c.stopped {
				stop()
			}
			require.ErrorIs(t, ignoreClosedRequests(ctx, c.err), c.want)
			stop()
		})
	}
}
