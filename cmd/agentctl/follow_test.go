// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/restclient"
)

// following returns the options of a command that deploys. It polls whenever looks receives.
func (p *project) following() (o *deployOptions, says *screen, looks chan struct{}) {
	p.t.Helper()
	says, looks = newScreen(), make(chan struct{})
	o = &deployOptions{out: io.Discard, messages: says}
	o.server, o.project, o.key = p.url, p.id, p.key
	var err error
	o.api, err = o.newClient()
	require.NoError(p.t, err)
	o.api.Wait = func(ctx context.Context, d time.Duration) error {
		if d != statusPoll {
			p.t.Errorf("it waits %s", d)
		}
		select {
		case <-looks:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return o, says, looks
}

// holdStream is a stream that stays silent until a channel is closed.
func (p *project) holdStream(until <-chan struct{}) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		writeEvent(w, 1, "it is followed\n")
		_ = http.NewResponseController(w).Flush()
		p.mu.Unlock() // for the calls that come meanwhile
		defer p.mu.Lock()
		<-until
		_, _ = io.WriteString(w, end)
	}
}

// Deploy reports what an open deployment waits for, once per message.
func TestDeploy_ReportsMessagesOnce(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"pending"`)
	ended := make(chan struct{})
	p.streams = []func(http.ResponseWriter, string){p.holdStream(ended)}
	o, says, looks := p.following()
	done := make(chan error, 1)
	go func() { done <- o.deployAndFollow(t.Context()) }()
	says.waitFor(t, "it is followed")
	is := func(fields string) { // sets the fields of the deployment and lets the command poll it
		p.mu.Lock()
		p.updateDeployment(id, fields)
		p.mu.Unlock()
		looks <- struct{}{}
	}
	is(`"status":"pending","message":"the environment is suspended"`)
	is(`"status":"pending","message":"the environment is suspended"`)
	is(`"status":"building","message":"no node has room for\u001b the build"`)
	is(`"status":"building","message":"no node has room for\u001b the build"`)
	says.waitFor(t, "building: no node has room for\\u001b the build\n")
	p.mu.Lock()
	p.updateDeployment(id, `"status":"deployed","is_live":true`)
	p.mu.Unlock()
	close(ended)
	require.NoError(t, <-done)
	require.Equal(t, "deploying to production: "+id+"\nit is followed\npending: the environment is suspended\n"+
		"building: no node has room for\\u001b the build\nlive in production\n", says.content())
}

// An interrupted deploy names the commands that follow and cancel the deployment.
func TestDeploy_ContinuesWhenInterrupted(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"building"`)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) }) // before the server waits for its requests
	p.streams = []func(http.ResponseWriter, string){p.holdStream(never)}
	o, says, _ := p.following()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.deployAndFollow(ctx) }()
	says.waitFor(t, "it is followed")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Contains(t, says.content(), "the deployment continues: `agentctl logs -f "+id+"` follows it, `agentctl cancel "+id+"` ends it\n")
}

// Following a log ends with the outcome, in words and by the exit code.
func TestLogs_ReportTheOutcome(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) {
		writeEvent(w, 1, "compiling\n")
		_, _ = io.WriteString(w, end)
	}}
	id := p.addDeployment(`"status":"failed","failure_reason":"build_failed","message":"no agents"`)
	out, messages, err := p.agentctl("logs", "-f", id)
	require.EqualError(t, err, "the deployment failed (build_failed): no agents")
	require.Equal(t, exitOutcome, exitCode(err))
	require.Equal(t, "compiling\n", out)
	require.Empty(t, messages, "tests have not failed")
	p.updateDeployment(id, `"status":"deployed","is_live":true`)
	_, messages, err = p.agentctl("logs", "-f", id)
	require.NoError(t, err)
	require.Equal(t, "live in production\n", messages)
	_, _, err = p.agentctl("logs", "-f", id, "-o", "json")
	require.ErrorContains(t, err, "[follow output]", "--follow prints text")
}

// Status reads open deployments again, because a list has no messages.
func TestStatus_ShowsMessagesOfOpenDeployments(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	open := p.addDeployment(`"status":"building","phase":"fetching"`)
	p.whole = map[string]string{open: strings.Replace(p.deployments[open], `"status"`, `"message":"no node has\u001b room","status"`, 1)}
	p.addDeployment(`"status":"deployed","source":{"type":"upload","commit":null,"digest":"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"}`)
	out, _, err := p.agentctl("status", "--environment", "production")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Regexp(t, `^`+open+` .* 2fd4e1c6 Be\\u001b kind +building \(fetching\): no node has\\u001b room$`, lines[1])
	require.Regexp(t, ` +sha256:2c26b46b +deployed$`, lines[2])
}

// Cancel cancels a deployment that is being built, and fails for others.
func TestCancel_CancelsBuilds(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"cancelled"`)
	p.cancels = true
	out, messages, err := p.agentctl("cancel", strings.ToUpper(id))
	require.NoError(t, err)
	require.Equal(t, id+"\n", out)
	require.Empty(t, messages)
	require.Equal(t, []string{"/deployments/" + id + "/cancel"}, p.called)
	p.updateDeployment(id, `"status":"building"`)
	_, messages, err = p.agentctl("cancel", id)
	require.NoError(t, err)
	require.Equal(t, "the deployment is being cancelled\n", messages)

	p.cancels = false
	p.updateDeployment(id, `"status":"pending","message":"the environment is suspended"`)
	_, _, err = p.agentctl("cancel", id)
	require.EqualError(t, err, "deployment "+id+" was not cancelled because it is not being built: its status is pending: the environment is suspended")
	require.Equal(t, exitFailed, exitCode(err))
	_, _, err = p.agentctl("cancel", "first-one")
	require.ErrorContains(t, err, `DEPLOYMENT: the project has no "first-one"`)
}

// Redeploy and deploy-anyway follow the new deployment.
func TestRedeploy_FollowsTheNewDeployment(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"redeploy", "deploy-anyway"} {
		p := newProject(t)
		id := p.addDeployment(`"status":"deployed","is_live":true`)
		of := uuid.NewString()
		p.streams = []func(http.ResponseWriter, string){endedAtOnce}
		out, messages, err := p.agentctl(command, of)
		require.NoError(t, err)
		require.Equal(t, id+"\n", out)
		require.Equal(t, "deploying to production: "+id+"\nlive in production\n", messages)
		require.Equal(t, []string{"/deployments/" + of + "/" + command}, p.called)
		p.updateDeployment(id, `"status":"failed","failure_reason":"connectors_failed"`)
		_, messages, err = p.agentctl(command, of)
		require.Equal(t, exitOutcome, exitCode(err))
		require.Contains(t, messages, "`agentctl deploy-anyway "+id+"`")
		_, messages, err = p.agentctl(command, of, "--detach")
		require.NoError(t, err, "it is not waited for")
		require.NotContains(t, messages, "live")
		_, _, err = p.agentctl(command, "first-one")
		require.ErrorContains(t, err, `DEPLOYMENT: the project has no "first-one"`)
	}
}

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
