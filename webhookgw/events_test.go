// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// event is an event of a stream.
type event struct {
	name string
	data map[string]any
}

// events sends a JSON POST with a stream as its response, and reads the events.
func (b *bundle) events(gateway *Gateway, id string, header ...string) <-chan event {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://"+gateway.PublicAddr()+b.hook(id), strings.NewReader(`{}`))
	require.NoError(b.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Secret", secret)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := (&http.Client{}).Do(req)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
	out := make(chan event, 10)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		e, lines := event{}, bufio.NewScanner(resp.Body)
		for lines.Scan() {
			switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
			case "event":
				e.name = value
			case "data":
				if err := json.Unmarshal([]byte(value), &e.data); err != nil {
					b.t.Error(err)
				}
			case "":
				out <- e
				e = event{}
			}
		}
	}()
	return out
}

// TestSyncStream_SendsProgressAndResult: the stream reports the acceptance before a runner exists,
// and the result after the run.
func TestSyncStream_SendsProgressAndResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("sync", nil, "hello")
	events := b.events(b.gateway, c.ID.String())
	accepted, queued := <-events, <-events
	require.Equal(t, "accepted", accepted.name)
	require.InEpsilon(t, 1, accepted.data["dispatched_to"], 0)
	run := accepted.data["run_ids"].([]any)[0]
	require.Equal(t, event{"progress", map[string]any{"run_id": run, "status": "queued"}}, queued)
	b.runner(completed)
	result := <-events
	require.Equal(t, "result", result.name)
	require.Equal(t, "ok", result.data["status"])
	require.Equal(t, run, result.data["result"].(map[string]any)["run_id"])
	_, more := <-events
	require.False(t, more)
}

// TestSyncStream_Timeout: the stream ends with the same error as a JSON response, also when the
// gateway stops. A duplicate request waits for the same run.
func TestSyncStream_Timeout(t *testing.T) {
	t.Parallel()
	b, waiting := setup(t), make(waits, 2)
	c := b.connector("sync", nil, "hello")
	gateway, stop, ended := b.stoppable(time.Nanosecond, waiting)
	late := b.events(gateway, c.ID.String())
	(<-waiting).end()
	cut := b.events(gateway, c.ID.String(), "Idempotency-Key", "k")
	<-waiting
	first := <-late
	require.Equal(t, "accepted", first.name)
	<-late
	failed := <-late
	require.Equal(t, "error", failed.name)
	require.Equal(t, "sync_timeout", failed.data["code"])
	require.InEpsilon(t, http.StatusGatewayTimeout, failed.data["status"], 0)
	require.Equal(t, first.data["run_ids"].([]any)[0], failed.data["run_id"])
	before := <-cut
	<-cut
	stop()
	failed = <-cut
	require.Equal(t, "gateway_stopping", failed.data["code"])
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	b.runner(completed)
	again := b.events(b.gateway, c.ID.String(), "Idempotency-Key", "k")
	require.Equal(t, before, <-again)
	require.Equal(t, "result", (<-again).name)
	_, total, err := b.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Limit: 10})
	require.NoError(t, err)
	require.EqualValues(t, 2, total)
}
