// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// sending is a REST API with an outbound connector, and a local port.
type sending struct {
	*httptest.Server
	key, project, connector string
	secret, mode            string
	// deliveries are the listed deliveries, newest first, with their details.
	deliveries []map[string]any
	run        string
	// received are the requests to the local port.
	received []*http.Request
	bodies   []string
	// calls are the paths that were read for the bodies of deliveries.
	calls []string
}

const sentRun = "0199f3c2-0000-7000-8000-000000000001"

func newSending(t *testing.T) *sending {
	t.Helper()
	s := &sending{
		key: keys.Generate().String(), project: uuid.NewString(), connector: uuid.NewString(), mode: "outbound",
		secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		run: `{"id":"` + sentRun + `","agent_name":"triage","environment_id":"x","status":"completed","output":"Done","finish_reason":"stop","error":null,` +
			`"started_at":"2026-03-02T06:00:00Z","ended_at":"2026-03-02T06:00:04.5Z","token_usage":{"input_tokens":8,"output_tokens":2,"total_tokens":10}}`,
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// addDelivery adds a delivery that begins now, with a number.
func (s *sending) addDelivery(n int, status, kind string) {
	s.deliveries = append([]map[string]any{{
		"id": fmt.Sprintf("00000000-0000-7000-8000-%012d", n), "status": status, "run_id": sentRun, "kind": kind, "hops": n + 1,
		"started_at": "2026-03-02T06:00:05Z", "payload": map[string]any{"n": n},
	}}, s.deliveries...)
}

func (s *sending) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hook" {
		text, _ := io.ReadAll(r.Body)
		s.received, s.bodies = append(s.received, r), append(s.bodies, string(text))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/projects/"+s.project)
	if !ours || r.Header.Get("Authorization") != "Bearer "+s.key {
		problemAnswer(http.StatusForbidden, "forbidden")(w)
		return
	}
	if path == "/runs/"+sentRun || strings.HasPrefix(path, "/connectors/"+s.connector+"/runs/") {
		s.calls = append(s.calls, path)
	}
	id, one := strings.CutPrefix(path, "/connectors/"+s.connector+"/runs/")
	switch {
	case path == "/connectors/"+s.connector:
		_ = json.NewEncoder(w).Encode(map[string]string{"mode": s.mode, "signing_secret": s.secret})
	case path == "/runs/"+sentRun:
		_, _ = io.WriteString(w, s.run)
	case one:
		for _, d := range s.deliveries {
			if d["id"] == id {
				_ = json.NewEncoder(w).Encode(d)
			}
		}
	default:
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		from := min(offset, len(s.deliveries))
		_ = json.NewEncoder(w).Encode(map[string]any{"items": s.deliveries[from:min(from+restclient.MaxPage, len(s.deliveries))]})
	}
}

// runListen runs the command. Each step runs before a poll. The command ends after the last one.
func (s *sending) runListen(t *testing.T, change func(*listenOptions), steps ...func()) (out, messages string, err error) {
	t.Helper()
	o := &listenOptions{
		restOptions: restOptions{server: s.URL, project: s.project, key: s.key}, connector: s.connector,
		getenv: func(string) string { return "" }, now: time.Now, // the library of Standard Webhooks has no other clock
	}
	change(o)
	o.api, err = o.newClient()
	require.NoError(t, err)
	o.api.Wait = func(context.Context, time.Duration) error {
		if len(steps) == 0 {
			return context.Canceled
		}
		steps[0]()
		steps = steps[1:]
		return nil
	}
	var stdout, stderr bytes.Buffer
	err = o.listenForDeliveries(t.Context(), &stdout, &stderr)
	return stdout.String(), stderr.String(), err
}

// Listen shows deliveries that begin after the command, and changes of their status.
func TestListen_ShowsNewDeliveries(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	s.addDelivery(1, "completed", "result")
	s.addDelivery(2, "pending", "result")
	out, _, err := s.runListen(t, func(*listenOptions) {},
		func() { s.addDelivery(3, "pending", "result") },
		func() {},
		func() {
			s.deliveries[0]["status"], s.deliveries[0]["error"] = "failed", "410\x1b[2J\nGone"
			s.addDelivery(4, "completed", "result")
		},
		func() { s.deliveries[2]["status"] = "completed" },
	)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4, out)
	for i, want := range []string{"000000000003  pending    run " + sentRun, "000000000003  failed     run " + sentRun + `  410\u001b[2J\nGone`, "000000000004  completed", "000000000002  completed"} {
		require.Contains(t, lines[i], want)
	}
	require.Empty(t, s.received)
	s.mode = "inbound"
	_, _, err = s.runListen(t, func(*listenOptions) {})
	require.ErrorContains(t, err, "makes no deliveries")
}

// Each delivery is forwarded once, with its body and a valid signature.
func TestListen_ForwardsDeliveries(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	out, _, err := s.runListen(t, func(o *listenOptions) { o.forward = s.URL + "/hook" },
		func() { s.addDelivery(1, "pending", "result") },
		func() { s.deliveries[0]["status"] = "completed" },
		func() { s.addDelivery(2, "running", "payload"); s.addDelivery(3, "skipped", "payload") },
	)
	require.NoError(t, err)
	require.Len(t, s.received, 2)
	require.Equal(t, `{"run_id":"`+sentRun+`","agent_name":"triage","status":"completed","output":"Done","finish_reason":"stop","error":null,"started_at":"2026-03-02T06:00:00Z",`+
		`"ended_at":"2026-03-02T06:00:04.5Z","token_usage":{"input_tokens":8,"output_tokens":2,"thinking_tokens":0,"cached_input_tokens":0,"total_tokens":10}}`, s.bodies[0])
	require.JSONEq(t, `{"n":2}`, s.bodies[1])
	receiver, err := standardwebhooks.NewWebhook(s.secret)
	require.NoError(t, err)
	for i, request := range s.received {
		require.NoError(t, receiver.Verify([]byte(s.bodies[i]), request.Header))
		require.Equal(t, "application/json", request.Header.Get("Content-Type"))
		for _, name := range documentedHeaders(t) {
			require.NotEmpty(t, request.Header.Get(name), name)
		}
		require.Equal(t, []string{"result", "payload"}[i], request.Header.Get("X-Service-Event"))
		require.Equal(t, strconv.Itoa(i+2), request.Header.Get("X-Service-Hops"))
		require.Equal(t, fmt.Sprintf("00000000-0000-7000-8000-%012d", i+1), request.Header.Get("X-Service-Delivery"))
	}
	require.Equal(t, 2, strings.Count(out, "-> 202"))
	require.Contains(t, out, "skipped")
	require.Equal(t, []string{"/runs/" + sentRun, "/connectors/" + s.connector + "/runs/" + s.deliveries[1]["id"].(string)}, s.calls, "one call each")
}

// documentedHeaders returns the headers of deliveries in the description of webhooks.
func documentedHeaders(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/webhooks.json")
	require.NoError(t, err)
	var document struct {
		Webhooks map[string]struct {
			Post struct {
				Parameters []struct{ Name, In string } `json:"parameters"`
			} `json:"post"`
		} `json:"webhooks"`
	}
	require.NoError(t, json.Unmarshal(text, &document))
	require.NotEmpty(t, document.Webhooks)
	for _, webhook := range document.Webhooks {
		for _, p := range webhook.Post.Parameters {
			if p.In == "header" {
				names = append(names, p.Name)
			}
		}
	}
	require.Contains(t, names, "X-Service-Delivery")
	return names
}

// Listen reports why it cannot forward a delivery, and continues.
func TestListen_ReportsForwardErrors(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	out, _, err := s.runListen(t, func(o *listenOptions) { o.forward, o.json = "http://127.0.0.1:1/hook", true },
		func() { s.addDelivery(1, "pending", "result") },
		func() { s.addDelivery(2, "pending", "payload"); s.deliveries[0]["payload"] = nil },
		func() { s.addDelivery(3, "pending", "") },
	)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	for i, want := range []string{"forwarding the delivery", "the key needs runs.view", "does not report the kind of a delivery"} {
		var line struct {
			ID, Status string
			Forwarded  forwardResult
		}
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &line))
		require.Contains(t, line.Forwarded.Error, want)
		require.Equal(t, "pending", line.Status)
	}
	for _, bad := range []string{"http://agents.example/hook", "127.0.0.1:3000", "ftp://localhost"} {
		_, _, err = s.runListen(t, func(o *listenOptions) { o.forward = bad })
		require.ErrorContains(t, err, "--forward", bad)
	}
}

// A secret file takes precedence over the environment, which takes precedence over the REST API.
func TestListen_FindsTheSecret(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("of the file\n"), 0o600))
	for want, change := range map[string]func(*listenOptions){
		"of the file":        func(o *listenOptions) { o.secretFile = file },
		"of the environment": func(*listenOptions) {},
		s.secret:             func(o *listenOptions) { o.getenv = func(string) string { return "" } },
	} {
		t.Run(want, func(t *testing.T) {
			var used *listenOptions
			_, _, err := s.runListen(t, func(o *listenOptions) {
				o.forward = s.URL + "/hook"
				o.getenv = func(name string) string {
					require.Equal(t, "AGENTPLATFORM_SIGNING_SECRET", name)
					return "of the environment"
				}
				change(o)
				used = o
			})
			require.NoError(t, err)
			require.Equal(t, want, used.to.secret)
		})
	}
	s.secret = "********"
	_, _, err := s.runListen(t, func(o *listenOptions) { o.forward = s.URL + "/hook" })
	require.ErrorContains(t, err, "--secret-file")
}

// Listen reads at most listenPages pages per poll, and reports if that is not enough.
func TestListen_LimitsItsPages(t *testing.T) {
	t.Parallel()
	for _, n := range []int{restclient.MaxPage * listenPages / 2, restclient.MaxPage*listenPages + 1} {
		s := newSending(t)
		for i := range restclient.MaxPage {
			s.addDelivery(i, "completed", "result")
		}
		out, messages, err := s.runListen(t, func(*listenOptions) {}, func() {
			for i := range n {
				s.addDelivery(restclient.MaxPage+i, "completed", "result")
			}
		})
		require.NoError(t, err)
		require.Equal(t, min(n, restclient.MaxPage*listenPages), strings.Count(out, "\n"))
		require.Equal(t, n > restclient.MaxPage*listenPages, strings.Contains(messages, "left out"))
	}
}
