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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// Connectors lists the connectors of all environments, or of one, with their ticks.
func TestConnectors_ListsEnvironments(t *testing.T) {
	t.Parallel()
	key, project := keys.Generate().String(), uuid.NewString()
	production, staging := uuid.NewString(), uuid.NewString()
	connectors := map[string]string{
		production: `[{"id":"1","name":"Weekly\u001b report","type":"cron","mode":"inbound","enabled":true,"next_tick_at":"2026-07-06T05:00:00Z","last_tick_at":"2026-06-29T05:00:00Z"},
			{"id":"2","name":"Tickets","type":"webhook","mode":"sync","enabled":false}]`,
		staging: `[{"id":"3","name":"Results","type":"webhook","mode":"outbound","enabled":true,"disabled_reason":"410 Gone"},
			{"id":"4","name":"Old","type":"webhook","mode":"inbound","enabled":true,"retired":true}]`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/v1/projects/"+project) {
		case "/environments":
			fmt.Fprintf(w, `[{"id":%q,"slug":"production"},{"id":%q,"slug":"staging"}]`, production, staging)
		case "/connectors":
			_, _ = io.WriteString(w, connectors[r.URL.Query().Get("environment_id")])
		default:
			problemAnswer(http.StatusForbidden, "forbidden")(w)
		}
	}))
	t.Cleanup(server.Close)
	list := func(args ...string) (string, error) {
		out, _, err := run(t, append([]string{"connectors", "--server", server.URL, "--project", project, "--api-key", key}, args...)...)
		return out, err
	}
	out, err := list()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5)
	for i, want := range []string{
		"ENVIRONMENT NAME TYPE MODE ENABLED LAST TICK NEXT TICK ID",
		`production Weekly\u001b report cron inbound yes 2026-06-29T05:00:00Z 2026-07-06T05:00:00Z 1`,
		"production Tickets webhook sync no - - 2", "staging Results webhook outbound 410 Gone - - 3", "staging Old webhook inbound retired - - 4",
	} {
		require.Equal(t, want, strings.Join(strings.Fields(lines[i]), " "))
	}
	out, err = list("--environment", strings.ToUpper(staging), "-o", "yaml")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "- "))
	require.Contains(t, out, "disabled_reason: 410 Gone\n")
	out, err = list("-o", "json")
	require.NoError(t, err)
	var shown []struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, []struct{ ID string }{{"1"}, {"2"}, {"3"}, {"4"}}, shown, "one list of all environments")
	for _, environment := range []string{"nothing", uuid.NewString()} {
		_, err = list("--environment", environment)
		require.ErrorContains(t, err, "--environment")
	}
}

// runConnectorsTest runs `connectors test` with these responses of the REST API, one after the other.
func runConnectorsTest(t *testing.T, answers ...string) (messages string, err error) {
	t.Helper()
	key, project, connector, id := keys.Generate().String(), uuid.NewString(), uuid.NewString(), uuid.NewString()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1)) - 1
		path := strings.TrimPrefix(r.URL.Path, "/v1/projects/"+project+"/connectors/"+connector)
		first := r.Method == http.MethodPost && path == "/test" && r.Header.Get("Idempotency-Key") != ""
		if n >= len(answers) || first != (n == 0) || !first && r.Method+path != "GET/runs/"+id {
			problemAnswer(http.StatusForbidden, "forbidden")(w)
			return
		}
		_, _ = io.WriteString(w, strings.Replace(answers[n], "{", `{"id":"`+id+`",`, 1))
	}))
	t.Cleanup(server.Close)
	o := &testOptions{restOptions: restOptions{server: server.URL, project: project, key: key}}
	o.api, err = o.newClient()
	require.NoError(t, err)
	o.api.Wait = func(context.Context, time.Duration) error { return nil }
	var stdout, stderr bytes.Buffer
	err = o.sendTestDelivery(t.Context(), connector, &stdout, &stderr)
	require.EqualValues(t, len(answers), calls.Load())
	require.Equal(t, id+"\n", stdout.String())
	return stderr.String(), err
}

// The command waits for the result of a test, and prints each attempt.
func TestConnectorsTest_WaitsForTheResult(t *testing.T) {
	t.Parallel()
	const pending = `{"status":"pending","attempts":[],"next_attempt_at":"2026-07-02T12:00:00Z"}`
	taken := `{"number":1,"status_code":200,"duration_ms":35,"error":null,"response_excerpt":"thank\u001b you"}`
	messages, err := runConnectorsTest(t, pending, pending, `{"status":"running","attempts":[]}`, `{"status":"completed","attempts":[`+taken+`]}`)
	require.NoError(t, err)
	require.Equal(t, "attempt 1: 200 OK, after 35 ms: thank\\u001b you\n", messages)

	refused := `{"number":1,"status_code":401,"duration_ms":3,"error":"the destination answered 401 Unauthorized","response_excerpt":null}`
	messages, err = runConnectorsTest(t, pending, `{"status":"failed","error":"it answered 401","attempts":[`+refused+`]}`)
	require.EqualError(t, err, "the test ended as failed: it answered 401")
	require.Equal(t, "attempt 1: the destination answered 401 Unauthorized, after 3 ms\n", messages)

	_, err = runConnectorsTest(t, pending, `{"status":"pending","attempts":[`+refused+`],"next_attempt_at":"2026-07-02T12:05:00Z"}`)
	require.ErrorContains(t, err, "the next attempt is at 2026-07-02T12:05:00Z")

	waits := strings.Replace(pending, `"attempts"`, `"error":"the keys were not there","attempts"`, 1)
	messages, err = runConnectorsTest(t, pending, waits, waits, `{"status":"skipped","error":"the connector is disabled","attempts":[]}`)
	require.EqualError(t, err, "the test ended as skipped: the connector is disabled")
	require.Equal(t, "waiting: the keys were not there\n", messages)
}

// The command needs the name or the ID of a connector.
func TestConnectorsTest_NeedsAConnector(t *testing.T) {
	t.Parallel()
	reach := []string{"connectors", "test", "--server", "https://agents.example", "--project", uuid.NewString(), "--api-key", keys.Generate().String()}
	_, _, err := run(t, append(reach, "")...)
	require.ErrorContains(t, err, "CONNECTOR: must be the name or the ID of a connector")
	_, _, err = run(t, reach...)
	require.ErrorContains(t, err, "arg")
}

// A test delivery has no run, so its kind is shown.
func TestListen_ShowsTestDeliveries(t *testing.T) {
	t.Parallel()
	o := &listenOptions{now: func() time.Time { return replayNow }}
	var out bytes.Buffer
	require.NoError(t, o.printDelivery(&out, restclient.ConnectorRun{ID: "1", Status: restclient.ConnectorRunStatusPending, Kind: nullable.NewNullableWithValue(restclient.DeliveryKindTest)}, nil))
	require.Equal(t, "12:00:00  1  pending    test\n", out.String())
}
