// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// project is the part of a project's REST API that is about deployments.
type project struct {
	t          *testing.T
	url        string
	key, id    string
	production string

	mu          sync.Mutex
	deployments map[string]string // by id, newest first in list
	list        []string
	// whole are deployments whose details have more fields than the list. cancels is the result of a cancellation.
	whole   map[string]string
	cancels bool
	runs    []string
	// statuses are the filters of the last list of runs.
	statuses []string
	// refused are the paths that respond with 409.
	refused map[string]bool
	called  []string
	// connectors are the lists of connectors, one per request; the last one is repeated.
	connectors []string
	// uploads are the uploaded bodies. kind is the kind of the environment staging.
	uploads [][]byte
	kind    string
	// onCall is called for each changing call.
	onCall func(method, path string)
	// streams are the responses to requests for events, one per request; the last one is repeated.
	streams []func(w http.ResponseWriter, lastEventID string)
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{
		t: t, key: keys.Generate().String(), id: uuid.NewString(), production: uuid.NewString(), deployments: map[string]string{},
		connectors: []string{`[{"name":"orders","mode":"inbound","webhook_url":"https://hooks/1"},{"name":"old","webhook_url":"https://hooks/2","retired":true},{"name":"out","mode":"outbound","webhook_url":null}]`},
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// addDeployment adds a deployment that is older than all others.
func (p *project) addDeployment(fields string) (id string) {
	id = uuid.NewString()
	p.list = append(p.list, id)
	p.updateDeployment(id, fields)
	return id
}

// updateDeployment replaces the fields of a deployment.
func (p *project) updateDeployment(id, fields string) {
	p.deployments[id] = fmt.Sprintf(`{"id":%q,"source":{"commit":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12","commit_message":"Be\u001b kind\n\nVery."},"created_at":"2026-07-02T10:00:00Z",%s}`, id, fields)
}

func (p *project) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/projects/"+p.id)
	if !ours || r.Header.Get("Authorization") != "Bearer "+p.key {
		problemAnswer(http.StatusForbidden, "forbidden")(w)
		return
	}
	p.recordCall(r, path)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case p.refused[path]:
		problemAnswer(http.StatusConflict, "conflict")(w)
	case path == "/environments":
		fmt.Fprintf(w, `[{"id":%q,"slug":"production","is_default":true},{"id":%q,"slug":"staging","kind":%q}]`, p.production, uuid.NewString(), p.kind)
	case strings.HasSuffix(path, "/session"):
		_, _ = io.WriteString(w, `{"ok":true}`)
	case path == "/connectors":
		_, _ = io.WriteString(w, p.connectors[0])
		p.connectors = p.connectors[min(1, len(p.connectors)-1):]
	case strings.HasPrefix(path, "/deployments") && r.Method == http.MethodPost && len(parts) < 3:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, p.deployments[p.list[0]])
	case path == "/deployments" && r.URL.Query().Get("environment_id") == p.production:
		var all []string
		for _, id := range p.list {
			all = append(all, p.deployments[id])
		}
		fmt.Fprintf(w, "[%s]", strings.Join(all, ","))
	case path == "/deployments":
		_, _ = io.WriteString(w, "[]")
	case path == "/runs":
		p.statuses = r.URL.Query()["status_filter"]
		found := slices.DeleteFunc(slices.Clone(p.runs), func(run string) bool { return !strings.Contains(run, r.URL.Query().Get("search")) })
		from := len(r.URL.Query().Get("cursor"))
		to := min(from+2, len(found))
		fmt.Fprintf(w, `{"items":[%s],"next_cursor":%q}`, strings.Join(found[from:to], ","), strings.Repeat("x", to%len(found)))
	case strings.HasSuffix(path, "/events"):
		p.sendEvents(w, r)
	case strings.HasPrefix(path, "/runs/"):
		_, _ = io.WriteString(w, p.runs[0])
	case len(parts) == 2:
		_, _ = io.WriteString(w, cmp.Or(p.whole[parts[1]], p.deployments[parts[1]]))
	case parts[2] == "activate":
		_, _ = io.WriteString(w, `{"ok":true}`)
	case parts[2] == "cancel":
		fmt.Fprintf(w, `{"ok":%t}`, p.cancels)
	case parts[2] == "redeploy", parts[2] == "deploy-anyway":
		_, _ = io.WriteString(w, p.deployments[p.list[0]])
	case parts[2] == "logs":
		p.sendEvents(w, r)
	}
}

// sendEvents responds with the next stream.
func (p *project) sendEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	p.streams[0](w, r.Header.Get("Last-Event-ID"))
	p.streams = p.streams[min(1, len(p.streams)-1):]
}

// recordCall records a changing call.
func (p *project) recordCall(r *http.Request, path string) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		return
	}
	if r.Header.Get("Idempotency-Key") == "" {
		p.t.Errorf("%s %s without an idempotency key", r.Method, path)
	}
	if path == "/deployments/upload" {
		p.uploads = append(p.uploads, body)
		body = []byte(r.Header.Get("Content-Type"))
	}
	p.called = append(p.called, strings.TrimSpace(path+" "+r.URL.RawQuery+" "+string(body)))
	if p.onCall != nil {
		p.onCall(r.Method, path)
	}
}

// agentctl runs a command on the project.
func (p *project) agentctl(args ...string) (out, messages string, err error) {
	p.t.Helper()
	return run(p.t, append(args, "--server", p.url, "--project", p.id, "--api-key", p.key)...)
}

// writeEvent writes an event of a log.
func writeEvent(w io.Writer, id int, text string) {
	data, _ := json.Marshal(map[string]string{"text": text})
	fmt.Fprintf(w, "id: %d\nevent: log\ndata: %s\n\n", id, data)
}

const end = "id: 9\nevent: end\ndata: {\"status\":\"deployed\"}\n\n"

// Deploy follows the log of the build, and resumes it when the connection breaks off.
func TestDeploy_FollowsTheBuild(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){
		func(w http.ResponseWriter, last string) {
			require.Empty(t, last)
			_, _ = io.WriteString(w, ": heartbeat\n\n")
			writeEvent(w, 1, "fetching\n")
			writeEvent(w, 2, "one \x1b[31mline\n  and half")
		},
		func(w http.ResponseWriter, last string) { // the connection broke off
			require.Equal(t, "2", last)
			writeEvent(w, 3, " of one\n")
			_, _ = io.WriteString(w, end)
		},
	}
	out, messages, err := p.agentctl("deploy", "--commit", strings.Repeat("a", 40))
	require.NoError(t, err)
	require.Equal(t, id+"\n", out, "for other programs")
	require.Equal(t, "deploying to production: "+id+"\nfetching\none \\u001b[31mline\n  and half of one\nlive in production\n", messages)
	require.Equal(t, []string{"/deployments environment_id=" + p.production + ` {"commit":"` + strings.Repeat("a", 40) + `"}`}, p.called)

	out, _, err = p.agentctl("deploy", "--detach", "-o", "yaml")
	require.NoError(t, err)
	require.Contains(t, out, "is_live: true\n")
	_, _, err = p.agentctl("deploy", "--environment", "nowhere")
	require.ErrorContains(t, err, `the project has no "nowhere", or the key cannot see it; there is production, staging`)
}

// Deploy reports how the deployment ended, in words and by its exit code.
func TestDeploy_ReportsTheOutcome(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`"status":"failed","failure_reason":"tests_failed","message":"2 of 3 cases failed"`: "the deployment failed (tests_failed): 2 of 3 cases failed",
		`"status":"cancelled","message":"superseded"`:                                       "the deployment was cancelled: superseded",
		`"status":"deployed","is_live":false`:                                               "",
	} {
		t.Run(fields, func(t *testing.T) {
			p := newProject(t)
			id := p.addDeployment(fields)
			p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, end) }}
			_, messages, err := p.agentctl("deploy")
			if want == "" {
				require.NoError(t, err)
				require.Contains(t, messages, "deployed, but not live")
				return
			}
			require.EqualError(t, err, want)
			require.Equal(t, 2, exitCode(err))
			require.Equal(t, strings.Contains(fields, "tests_failed"), strings.Contains(messages, "`agentctl deploy-anyway "+id+"`"))
		})
	}
	require.Equal(t, 1, exitCode(errors.New("any other")))
}

// Logs fails if there is no log to follow.
func TestLogs_FailsWithoutALog(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	id := p.addDeployment(`"status":"building"`)
	p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) { problemAnswer(http.StatusNotFound, "not_found")(w) }}
	_, _, err := p.agentctl("logs", "-f", id)
	require.ErrorContains(t, err, "404 not_found: not now")
	_, _, err = p.agentctl("logs", "production")
	require.ErrorContains(t, err, `DEPLOYMENT: the project has no "production"`)
}

// Logs shows the log with escapes.
func TestLogs_ShowsTheLog(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	out, _, err := p.agentctl("logs", p.addDeployment(`"status":"failed","build_logs":"one\n\u001btwo\n"`))
	require.NoError(t, err)
	require.Equal(t, "one\n\\u001btwo\n", out)
}

// Rollback skips deployments that were rolled back before.
func TestRollback_SkipsRolledBackDeployments(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.addDeployment(`"status":"building"`)
	p.addDeployment(`"status":"deployed","activated_at":"2026-07-02T11:00:00Z"`) // from which somebody went back
	live := p.addDeployment(`"status":"deployed","is_live":true,"activated_at":"2026-07-02T11:30:00Z"`)
	p.addDeployment(`"status":"failed"`)
	p.addDeployment(`"status":"deployed","activated_at":null`)
	p.addDeployment(`"status":"deployed","activated_at":"2026-07-01T00:00:00Z"`) // newer, and from which somebody went back, too
	before := p.addDeployment(`"status":"deployed","activated_at":"2026-07-02T00:00:00Z"`)
	out, messages, err := p.agentctl("rollback", "--environment", "production", "--force")
	require.NoError(t, err)
	require.Equal(t, before+"\n", out)
	require.Contains(t, messages, "production: from "+live+" 2fd4e1c6 Be\\u001b kind to "+before+" 2fd4e1c6 Be\\u001b kind\n")
	require.Equal(t, []string{"/deployments/" + before + "/activate force=true"}, p.called)

	_, _, err = p.agentctl("rollback", "--environment", "staging")
	require.EqualError(t, err, "environment staging: no deployment is live")
	p.list = p.list[:5]
	_, _, err = p.agentctl("rollback")
	require.ErrorContains(t, err, "environment production: no older deployment was live before; to make a newer one live, name it: agentctl activate")
	_, _, err = p.agentctl("activate", "first-one")
	require.ErrorContains(t, err, `DEPLOYMENT: the project has no "first-one"`)
}

// Each row has the live versions, oldest first, and the targets of the next rollbacks.
func TestRollback_FollowsTheHistory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wentLive, leads []int }{
		"one after the other":                         {[]int{1, 2, 3}, []int{2, 1}},
		"not to the one that was gone back from":      {[]int{1, 2, 3, 4, 2, 5}, []int{2, 1}},
		"not to and fro":                              {[]int{1, 2, 3, 2}, []int{1}},
		"to an earlier live deployment, in any order": {[]int{1, 2, 3, 1, 3}, []int{1}},
		"the same after going back and there":         {[]int{1, 2, 3, 2, 3}, []int{2, 1}},
		"from the first one there is no way back":     {[]int{1, 2, 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := time.Date(2026, 7, 2, 10, 0, 0, 0, time.UTC)
			list := make([]deployment, slices.Max(c.wentLive)) // newest first
			activate := func(version int) {
				clock = clock.Add(time.Minute)
				for i := range list {
					list[i].Value.IsLive = false
				}
				d := &list[len(list)-version]
				d.Value.ID, d.Value.Status, d.Value.IsLive = strconv.Itoa(version), restclient.DeploymentStatusDeployed, true
				d.Value.ActivatedAt = nullable.NewNullableWithValue(clock)
			}
			for _, version := range c.wentLive {
				activate(version)
			}
			for _, want := range c.leads {
				_, before, err := findPrevious(list)
				require.NoError(t, err)
				require.Equal(t, strconv.Itoa(want), before.Value.ID)
				activate(want)
			}
			_, _, err := findPrevious(list)
			require.ErrorContains(t, err, "no older deployment was live before")
		})
	}
}

// Status shows the live and the newest deployment of each environment, or the deployments of one.
func TestStatus_ShowsLiveDeployments(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	newest := p.addDeployment(`"status":"failed","failure_reason":"build_failed"`)
	live := p.addDeployment(`"status":"deployed","is_live":true,"activated_at":"2026-07-02T11:00:00Z"`)
	out, _, err := p.agentctl("status")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^production \(default\) +`+live+` +\S+ +2fd4e1c6 Be\\u001b kind +failed 2fd4e1c6 `+newest+` +`+p.production+`$`, lines[1])
	require.Regexp(t, `^staging +- +- +- +- +\S+$`, lines[2])

	out, _, err = p.agentctl("status", "--environment", p.production)
	require.NoError(t, err)
	lines = strings.Split(strings.TrimSpace(out), "\n")
	require.Regexp(t, `^`+newest+` .* failed \(build_failed\)$`, lines[1])
	require.Regexp(t, `^`+live+` .* live$`, lines[2])

	out, _, err = p.agentctl("status", "-o", "json")
	require.NoError(t, err)
	var shown []struct{ Live, Newest struct{ ID string } }
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, live, shown[0].Live.ID)
	require.Equal(t, newest, shown[0].Newest.ID)
	_, _, err = p.agentctl("status", "-o", "xml")
	require.ErrorContains(t, err, "must be json or yaml")
}

// A search that looks like a condition but is none is a search for words, which usually finds nothing.
func TestRuns_WarnsAboutWordSearches(t *testing.T) {
	t.Parallel()
	for _, search := range []string{"", "took 15", "where is it?", `output == "took 15"`, "duration_ms > 10 && status == 'failed'"} {
		require.Empty(t, wordSearchNote(search), search)
	}
	require.Contains(t, wordSearchNote("outpt == 'x'"), `Note: runs are searched for the words of "outpt == 'x'": it is not a condition on runs`)
	require.Contains(t, wordSearchNote("outpt == 'x'"), "undeclared reference to 'outpt'")
}

// Runs lists runs by filters, and shows the output of one.
func TestRuns_ListsAndShowsRuns(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	for _, status := range []string{`"failed","error_code":"timeout","error":"took 15 min"`, `"completed","duration_ms":1250,"test_name":"short"`, `"queued","test_name":null`} {
		p.runs = append(p.runs, fmt.Sprintf(`{"id":%q,"agent_name":"support","queued_at":"2026-07-02T11:00:00Z","status":%s}`, uuid.NewString(), status))
	}
	out, _, err := p.agentctl("runs", "--environment", "production", "--agent", "support")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	require.Regexp(t, `^\S+ +support +\S+ +- +failed \(timeout\)$`, lines[1])
	require.Regexp(t, `^\S+ +support \(short\) +\S+ +1.25s +completed$`, lines[2])
	out, _, err = p.agentctl("runs", "--limit", "2", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, `"agent_name"`))
	out, _, err = p.agentctl("runs", "--search", "took 15", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, `"agent_name"`))
	_, _, err = p.agentctl("runs", "--status", "failed,cancelled", "--status", "queued")
	require.NoError(t, err)
	require.Equal(t, []string{"failed", "cancelled", "queued"}, p.statuses)
	_, _, err = p.agentctl("runs", "--limit", "0")
	require.ErrorContains(t, err, "--limit")

	_, _, err = p.agentctl("runs", uuid.NewString())
	require.EqualError(t, err, "the run is failed timeout: took 15 min")
	require.Equal(t, 2, exitCode(err))
	p.runs[0] = `{"status":"completed","output":"Hello.\nBye."}`
	out, _, err = p.agentctl("runs", uuid.NewString())
	require.NoError(t, err)
	require.Equal(t, "Hello.\nBye.\n", out)
}

// The cost of a run goes to standard error, because other programs read its output.
func TestRuns_ShowsTheCost(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	for run, want := range map[string]string{
		`"cost":{"currency":"USD","amount":0.0000042},"unpriced_calls":0`: "cost of the run: 0.0000042 USD\n",
		`"cost":{"currency":"EUR","amount":12.5},"unpriced_calls":3`:      "cost of the run: 12.5 EUR, without 3 calls of models that have no price\n",
		`"cost":null,"unpriced_calls":2,"cost_unknown":"no_price"`:        "",
		`"cost":null,"unpriced_calls":null`:                               "",
	} {
		t.Run(run, func(t *testing.T) {
			p.runs = []string{`{"status":"completed","output":"Hello.",` + run + `}`}
			out, beside, err := p.agentctl("runs", uuid.NewString())
			require.NoError(t, err)
			require.Equal(t, "Hello.\n", out)
			require.Equal(t, want, beside)
			_, beside, err = p.agentctl("runs", uuid.NewString(), "-o", "json")
			require.NoError(t, err)
			require.Empty(t, beside)
		})
	}
}

// Delete erases runs, and none if an argument is wrong.
func TestRunsDelete_ErasesRuns(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.runs = []string{`{"ok":true}`}
	var methods []string
	p.onCall = func(method, _ string) { methods = append(methods, method) }
	one, two := uuid.NewString(), uuid.NewString()
	out, _, err := p.agentctl("runs", "delete", one, two)
	require.NoError(t, err)
	require.Equal(t, "erased run "+one+"\nerased run "+two+"\n", out)
	require.Equal(t, []string{http.MethodDelete, http.MethodDelete}, methods)
	require.Equal(t, []string{"/runs/" + one, "/runs/" + two}, p.called)
	for _, wrong := range [][]string{{"runs", "delete"}, {"runs", "delete", one, "../environments"}} {
		_, _, err = p.agentctl(wrong...)
		require.Error(t, err)
	}
	require.Len(t, p.called, 2, "nothing is erased where an argument is wrong")
}

// An age has at most two units.
func TestFormatAge_HasTwoUnits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 2, 12, 0, 0, 0, time.UTC)
	for since, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Hour: "1h0m", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d", 5 * time.Minute: "5m",
	} {
		t.Run(since.String(), func(t *testing.T) {
			at := now.Add(-since)
			require.Equal(t, want, formatAge(now, &at))
		})
	}
	require.Equal(t, "-", formatAge(now, nil))
	require.Equal(t, "failed", paintStatus(os.Stdin, "failed"), "no terminal")
}
