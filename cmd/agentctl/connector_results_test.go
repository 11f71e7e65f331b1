// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

const (
	resultsOfCode = `,"connector_results":[` +
		`{"connector":"ask","connector_id":"c-1","action":"updated","error":null},` +
		`{"connector":"crm","connector_id":"c-2","action":"skipped","error":"no variable\u001b CRM"},` +
		`{"connector":"nightly","connector_id":"c-3","action":"created","error":null},` +
		`{"connector":"old","connector_id":"c-4","action":"retired","error":null}]`
	connectorsOfCode = `[{"id":"c-1","name":"Ask","mode":"sync","webhook_url":"https://hooks/1"},{"id":"c-2","name":"CRM","webhook_url":"https://hooks/2"},` +
		`{"id":"c-3","name":"Nightly","mode":"cron","webhook_url":null},{"id":"c-4","name":"Old","webhook_url":"https://hooks/4","retired":true}]`
	linesOfCode = "connector ask updated: https://hooks/1\nconnector crm skipped: no variable\\u001b CRM\nconnector nightly created\nconnector old retired\n"
)

// A command that makes a deployment live prints a line for each connector in the code.
func TestConnectorResults_ArePrinted(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"deploy", "activate", "rollback", "redeploy", "deploy-anyway"} {
		p := newProject(t)
		p.connectors = []string{connectorsOfCode}
		p.streams = []func(http.ResponseWriter, string){endedAtOnce}
		fields := `"environment_id":"e","status":"deployed","is_live":true,"activated_at":"2026-07-02T11:30:00Z"` + resultsOfCode
		id := p.addDeployment(fields)
		args := []string{command}
		switch command {
		case "rollback":
			id = p.addDeployment(`"status":"deployed","activated_at":"2026-07-02T11:00:00Z"`)
			p.whole = map[string]string{id: p.deployments[p.list[0]]}
		case "activate", "redeploy", "deploy-anyway":
			args = append(args, id)
		}
		_, messages, err := p.agentctl(args...)
		require.NoError(t, err, command)
		require.Contains(t, messages, linesOfCode, command)

		out, messages, err := p.agentctl(append(args, "-o", "json")...)
		require.NoError(t, err, command)
		require.NotContains(t, messages, "connector ", command)
		var shown deployment
		require.NoError(t, json.Unmarshal([]byte(out), &shown), command)
		require.Len(t, shown.Value.ConnectorResults, 4, command)
		require.Equal(t, "ask", shown.Value.ConnectorResults[0].Connector, command)
		require.Equal(t, restclient.ConnectorActionUpdated, shown.Value.ConnectorResults[0].Action, command)
	}
}

// A deployment that failed because of its connectors prints them too.
func TestConnectorResults_ArePrintedForFailedDeployments(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	p.addDeployment(`"status":"failed","failure_reason":"connectors_failed","message":"connector crm: no","connector_results":[` +
		`{"connector":"ask","connector_id":"c-1","action":"skipped","error":"not applied"},{"connector":"crm","connector_id":"c-2","action":"failed","error":"no"}]`)
	_, messages, err := p.agentctl("deploy")
	require.Equal(t, exitOutcome, exitCode(err))
	require.Contains(t, messages, "connector ask skipped: not applied\nconnector crm failed: no\n")
}

// A webhook that is not listed yet is looked up again, a few times.
func TestConnectorResults_WaitForNewWebhooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lists []string
		waits int
		want  string
	}{
		"at once": {[]string{connectorsOfCode}, 0, linesOfCode},
		"later":   {[]string{"[]", `[{"id":"c-3"}]`, connectorsOfCode}, 2, linesOfCode},
		"never":   {[]string{"[]"}, connectorLooks - 1, "connector ask updated\nconnector crm skipped"},
		"no list": {[]string{"none"}, 0, "connector ask updated\nconnector crm skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.connectors = c.lists
			o, says, _ := p.following()
			o.out = io.Discard
			waits := 0
			o.api.Wait = func(_ context.Context, d time.Duration) error {
				require.Equal(t, connectorPause, d)
				waits++
				return nil
			}
			require.NoError(t, o.activate(t.Context(), p.addDeployment(`"environment_id":"e","status":"deployed","is_live":true`+resultsOfCode)))
			require.Contains(t, says.content(), c.want)
			require.Equal(t, c.waits, waits)
		})
	}
}

// A deployment that is not live prints no connectors.
func TestConnectorResults_AreNotPrintedUnlessLive(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	_, messages, err := p.agentctl("activate", p.addDeployment(`"status":"deployed","is_live":false`+resultsOfCode))
	require.NoError(t, err)
	require.Equal(t, "activated, but no longer live: another deployment was activated afterwards\n", messages)
}
