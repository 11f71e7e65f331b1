// SPDX-License-Identifier: Apache-2.0

package restclient_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// logEvent returns an event of a log as the server sends it.
func logEvent(id int, text string) string {
	return fmt.Sprintf("id: %d\nevent: log\ndata: {\"text\":%q}\n\n", id, text)
}

// A log stream that breaks off is resumed after the last event, as often as it makes progress.
func TestDeploymentLog_ResumesAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	s := newServer(t,
		respond(http.StatusOK, ": heartbeat\n\n"+logEvent(1, "one ")+logEvent(2, "two ")), problem(http.StatusServiceUnavailable, "busy", "later", "Retry-After", "5"),
		respond(http.StatusOK, logEvent(3, "three")+"id: 4\nevent: end\ndata: {}\n\n"))
	var log strings.Builder
	for part, err := range s.DeploymentLog(t.Context(), "d1") {
		require.NoError(t, err)
		log.WriteString(part)
	}
	require.Equal(t, "one two three", log.String())
	require.Equal(t, []time.Duration{restclient.MinPause, 5 * time.Second}, s.pauses)
	var resumed []string
	for _, r := range s.requests {
		require.Equal(t, "/v1/projects/shop/deployments/d1/logs", r.URL.Path)
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
	}
	require.Equal(t, []string{"", "2", "2"}, resumed)
}

// A log stream ends with its consumer, with a final error, and after MaxAttempts without progress.
func TestDeploymentLog_Ends(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		response http.HandlerFunc
		want     string
		requests int
	}{
		"consumer":    {respond(http.StatusOK, logEvent(1, "stop")+logEvent(2, "no")), "", 1},
		"final error": {problem(http.StatusNotFound, "not_found", "no such deployment"), "404 not_found: no such deployment", 1},
		"no progress": {respond(http.StatusOK, ": heartbeat\n\n"), "the stream broke off", restclient.MaxAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, row.response)
			var failed error
			for part, err := range s.DeploymentLog(t.Context(), "d1") {
				failed = err
				if part == "stop" {
					break
				}
			}
			if row.want == "" {
				require.NoError(t, failed)
			} else {
				require.EqualError(t, failed, row.want)
			}
			require.Len(t, s.requests, row.requests)
		})
	}
}

// runEvent returns an event of a run as the server sends it, without an ID if id is 0.
func runEvent(id int, name, data string) string {
	head := ""
	if id > 0 {
		head = fmt.Sprintf("id: %d\n", id)
	}
	return head + "event: " + name + "\ndata: " + data + "\n\n"
}

// The events of a run continue after the last event with an ID. Events that the consumer has do not come again, also if several
// connections break off.
func TestRunEvents_ResumesWithoutRepetition(t *testing.T) {
	t.Parallel()
	same := runEvent(0, "log", `"same"`)
	again := runEvent(0, "step", `"tool began"`) + same + same
	s := newServer(t,
		respond(http.StatusOK, runEvent(0, "step", `"queued"`)+runEvent(1, "step", `"model"`)+again),
		respond(http.StatusOK, runEvent(0, "step", `"tool began"`)),
		breakOff,
		respond(http.StatusOK, again+same+runEvent(2, "log", `"last"`)+strings.TrimSuffix(runEvent(3, "log", `"cut`), "\n\n")),
		respond(http.StatusOK, same+runEvent(3, "end", `{"status":"completed"}`)+same))
	var got []string
	for event, err := range s.RunEvents(t.Context(), "r1") {
		require.NoError(t, err)
		got = append(got, event.Name+" "+string(event.Data))
	}
	require.Equal(t, []string{
		`step "queued"`, `step "model"`, `step "tool began"`, `log "same"`, `log "same"`, `log "same"`, `log "last"`, `log "same"`,
		`end {"status":"completed"}`,
	}, got)
	var resumed []string
	for _, r := range s.requests {
		require.Equal(t, "/v1/projects/shop/runs/r1/events", r.URL.Path)
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
	}
	require.Equal(t, []string{"", "1", "1", "1", "2"}, resumed)
}

// A stream that stays open for a while has not failed, also if it has no events: a run can wait for days.
func TestRunEvents_WaitsForSilentRuns(t *testing.T) {
	t.Parallel()
	// The clock stands still until the response is there, and moves while the stream is open.
	var open atomic.Bool
	now := time.Now()
	var s *server
	s = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		open.Store(false)
		body := ":\n\n"
		if len(s.requests) > 3*restclient.MaxAttempts {
			body = runEvent(1, "end", "{}")
		}
		respond(http.StatusOK, body)(w, r)
	})
	s.Now = func() time.Time {
		if open.Swap(true) {
			now = now.Add(15 * time.Minute)
		}
		return now
	}
	events := 0
	for event, err := range s.RunEvents(t.Context(), "r1") {
		require.NoError(t, err)
		require.Equal(t, "end", event.Name)
		events++
	}
	require.Equal(t, 1, events)
}

// Requests that wait long for a response and then fail count as failed attempts.
func TestRunEvents_EndsAfterSlowFailures(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newServer(t, problem(http.StatusServiceUnavailable, "busy", "later"))
	s.Now = func() time.Time {
		now = now.Add(15 * time.Minute)
		return now
	}
	var failed error
	for _, err := range s.RunEvents(t.Context(), "r1") {
		failed = err
	}
	require.ErrorContains(t, failed, "busy")
	require.Len(t, s.requests, restclient.MaxAttempts)
}
