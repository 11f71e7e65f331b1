// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
)

// fakeAPI is a REST API with a fixed response for each method and path within the project.
type fakeAPI struct {
	t       *testing.T
	url     string
	key, id string
	known   map[string]string

	mu sync.Mutex
	// sent are the changing calls, with their bodies.
	sent []string
}

func newFakeAPI(t *testing.T, known map[string]string) *fakeAPI {
	t.Helper()
	a := &fakeAPI{t: t, key: keys.Generate().String(), id: uuid.NewString(), known: known}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	call := r.Method + " " + strings.TrimPrefix(r.URL.RequestURI(), "/v1/projects/"+a.id)
	answer, ok := a.known[call]
	if !ok {
		a.t.Errorf("unexpected call %s", call)
	}
	if r.Method != http.MethodGet {
		body, _ := io.ReadAll(r.Body)
		a.sent = append(a.sent, strings.TrimSpace(call+" "+string(body)))
	}
	_, _ = io.WriteString(w, answer)
}

func (a *fakeAPI) agentctl(line ...string) (out, messages string, err error) {
	a.t.Helper()
	return run(a.t, append(line, "--server", a.url, "--project", a.id, "--api-key", a.key)...)
}

const twoEnvironments = `[{"id":"e1","slug":"production","is_default":true},{"id":"e2","slug":"staging"}]`

// Promote deploys the live commit of an environment to another one, and reports what it does.
func TestPromote_DeploysTheLiveCommit(t *testing.T) {
	t.Parallel()
	const commit, other = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12", "9ad0b09000000000000000000000000000000000"
	version := func(id, source string) string {
		return `[{"id":"new","status":"building"},{"id":"` + id + `","status":"deployed","is_live":true,"source":{` + source + `}}]`
	}
	for name, row := range map[string]struct {
		args           string
		staging, there string
		out, said, err string
		sent           []string
	}{
		"another commit": {
			"--from staging --to production --detach", version("d2", `"commit":"`+commit+`","commit_message":"Greet by name"`), version("d1", `"commit":"`+other+`"`),
			"d3\n", "promoting 2fd4e1c6 Greet by name from staging to production; 9ad0b090 is live there\n", "",
			[]string{`POST /deployments?environment_id=e1 {"commit":"` + commit + `"}`},
		},
		"nothing there": {
			"--from staging --to production --detach", version("d2", `"commit":"`+commit+`"`), `[]`,
			"d3\n", "promoting 2fd4e1c6 from staging to production; no deployment is live there\n", "",
			[]string{`POST /deployments?environment_id=e1 {"commit":"` + commit + `"}`},
		},
		"the same commit": {
			"--from e2 --to production", version("d2", `"commit":"`+commit+`"`), version("d1", `"commit":"`+commit+`"`),
			"d1\n", "2fd4e1c6 is already live in production; nothing to do\n", "", nil,
		},
		"an upload": {
			"--from staging --to production", version("d2", `"digest":"sha256:2c26b46b68ff"`), `[]`,
			"", "", "--from: sha256:2c26b46b was uploaded to staging and is no commit; deploy its folder: agentctl deploy --upload DIR --environment production", nil,
		},
		"nothing live": {"--from staging --to production", `[]`, `[]`, "", "", "--from: no deployment is live in staging", nil},
		"one place":    {"--from staging --to e2", `[]`, `[]`, "", "", "--to: staging is the environment of --from; `agentctl redeploy` builds its live deployment again", nil},
		"unknown":      {"--from stagin --to production", `[]`, `[]`, "", "", `--from: the project has no "stagin", or the key cannot see it; there is production, staging`, nil},
		"no place":     {"--from staging", `[]`, `[]`, "", "", "--from and --to: both must be an environment, as shown by `agentctl status`", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFakeAPI(t, map[string]string{
				"GET /environments":                   twoEnvironments,
				"GET /deployments?environment_id=e1":  row.there,
				"GET /deployments?environment_id=e2":  row.staging,
				"POST /deployments?environment_id=e1": `{"id":"d3","status":"building"}`,
			})
			out, messages, err := a.agentctl(append([]string{"promote"}, strings.Fields(row.args)...)...)
			if row.err != "" {
				require.EqualError(t, err, row.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, row.out, out)
			require.True(t, strings.HasPrefix(messages, row.said), messages)
			require.Equal(t, row.sent, a.sent)
		})
	}
}

// Env create creates an environment, optionally with the variables of another one.
func TestEnvCreate_CopiesVariables(t *testing.T) {
	t.Parallel()
	a := newFakeAPI(t, map[string]string{"GET /environments": twoEnvironments, "POST /environments": `{"id":"e3","name":"QA","slug":"qa"}`})
	out, messages, err := a.agentctl("env", "create", "QA", "--copy-from", "production", "--branch", "develop", "--kind", "test")
	require.NoError(t, err)
	require.Equal(t, "e3\n", out)
	require.Equal(t, "created QA; `agentctl deploy --environment qa` deploys to it\n", messages)
	out, _, err = a.agentctl("env", "create", "QA", "-o", "yaml")
	require.NoError(t, err)
	require.Equal(t, "id: e3\nname: QA\nslug: qa\n", out)
	_, _, err = a.agentctl("env", "create", "QA", "--copy-from", "prod")
	require.ErrorContains(t, err, `--copy-from: the project has no "prod"`)
	require.Equal(t, []string{
		`POST /environments {"copy_from_environment_id":"e1","git_branch":"develop","kind":"test","name":"QA"}`, `POST /environments {"name":"QA"}`,
	}, a.sent)
}

// Rotate-secret prints the new secret, and how long the previous secrets stay valid.
func TestConnectorsRotateSecret_PrintsTheNewSecret(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ grace, answer, body, out, said, err string }{
		"as it is":   {"", `{"secret":"new one"}`, `{}`, "new one\n", "for its grace period\n", ""},
		"for a time": {"48h", `{"signing_secret":"whsec_x"}`, `{"grace_seconds":172800}`, "whsec_x\n", "for 48h0m0s\n", ""},
		"at once":    {"0s", `{"secret":"new"}`, `{"grace_seconds":0}`, "new\n", "the previous secrets have ended\n", ""},
		"a part":     {"1ms", ``, ``, "", "", "--grace: must be whole seconds"},
		"less":       {"-1s", ``, ``, "", "", "--grace: must be whole seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFakeAPI(t, map[string]string{
				"GET /environments": twoEnvironments, "GET /connectors?environment_id=e1": `[{"id":"c1","name":"orders"}]`, "GET /connectors?environment_id=e2": `[]`,
				"POST /connectors/c1/rotate-secret": row.answer,
			})
			line := []string{"connectors", "rotate-secret", "orders"}
			if row.grace != "" {
				line = append(line, "--grace", row.grace)
			}
			out, messages, err := a.agentctl(line...)
			require.Equal(t, row.out, out)
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				require.Empty(t, a.sent)
				return
			}
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(messages, row.said), messages)
			require.Equal(t, []string{"POST /connectors/c1/rotate-secret " + row.body}, a.sent)
		})
	}
}

// Version needs no server. A server that responds reports its version.
func TestVersion_AsksTheServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/openapi.json" && r.Header.Get("Authorization") == "" {
			w.Header().Set(httpserver.HeaderVersion, "v1.2.3\u009b")
			_, _ = io.WriteString(w, `{"openapi":"3.1.0"}`)
		}
	}))
	t.Cleanup(server.Close)
	own := "dev (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	for name, row := range map[string]struct{ line, out, said string }{
		"client alone":  {"version", "client: " + own + "\nserver: unknown\n", ""},
		"flag":          {"--version", "agentctl version " + own + "\n", ""},
		"both":          {"version --server " + server.URL, "client: " + own + "\nserver: v1.2.3\\u009b\n", ""},
		"not asked":     {"version --client --server " + server.URL, "client: " + own + "\nserver: unknown\n", ""},
		"none there":    {"version --server http://127.0.0.1:1", "client: " + own + "\nserver: unknown\n", "cannot connect to 127.0.0.1:1"},
		"another one":   {"version --server " + server.URL + "/x", "client: " + own + "\nserver: unknown\n", "check the URL of the server"},
		"for a program": {"version -o json --server " + server.URL, "{\n  \"client\": \"dev\",\n  \"go_version\": \"" + runtime.Version() + "\",\n  \"platform\": \"" + runtime.GOOS + "/" + runtime.GOARCH + "\",\n  \"server\": \"v1.2.3\\u009b\"\n}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, messages, err := run(t, strings.Fields(row.line)...)
			require.NoError(t, err)
			require.Equal(t, row.out, out)
			require.Contains(t, messages, row.said)
		})
	}
}

// Rollback asks for confirmation only if standard input is a terminal.
func TestRollback_AsksAPerson(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		typed       string
		person, yes bool
		done        bool
	}{
		"yes":          {"y\n", true, false, true},
		"in words":     {"YES\n", true, false, true},
		"no":           {"n\n", true, false, false},
		"nothing":      {"\n", true, false, false},
		"the end":      {"", true, false, false},
		"answered":     {"", true, true, true},
		"by a program": {"", false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFakeAPI(t, map[string]string{
				"GET /environments": twoEnvironments,
				"GET /deployments?environment_id=e1": `[{"id":"d2","status":"deployed","is_live":true,"source":{"commit":"2fd4e1c67a2d28fced84"}},` +
					`{"id":"d1","status":"deployed","activated_at":"2026-07-02T11:00:00Z","source":{"commit":"9ad0b09000000000"}}]`,
				"POST /deployments/d1/activate": `{"ok":true}`, "GET /deployments/d1": `{"id":"d1","is_live":true,"status":"deployed"}`,
			})
			read, write, err := os.Pipe()
			require.NoError(t, err)
			_, err = write.WriteString(row.typed)
			require.NoError(t, err)
			require.NoError(t, write.Close())
			var messages bytes.Buffer
			o := &deployOptions{restOptions: restOptions{server: a.url, project: a.id, key: a.key}, yes: row.yes, in: read, out: io.Discard, messages: &messages}
			if row.person {
				o.in = &keyboard{read}
			}
			o.api, err = o.newClient()
			require.NoError(t, err)
			err = o.rollBack(t.Context())
			require.Contains(t, messages.String(), "production: from d2 2fd4e1c6 to d1 9ad0b090\n")
			require.Equal(t, row.person && !row.yes, strings.Contains(messages.String(), "roll back production? [y/N] "))
			if row.done {
				require.NoError(t, err)
				require.Equal(t, []string{"POST /deployments/d1/activate"}, a.sent)
				return
			}
			require.ErrorContains(t, err, "nothing was changed")
			require.Empty(t, a.sent)
		})
	}
}

// The error for an unreachable server names the remedy.
func TestClient_ExplainsUnreachableServers(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"http://127.0.0.1:1":      "--server: cannot connect to 127.0.0.1:1 (connect: connection refused); if it is a forwarded port, forward it again: kubectl -n agentplatform-system port-forward",
		"https://nowhere.invalid": "--server: no address is known for nowhere.invalid (",
	} {
		t.Run(server, func(t *testing.T) {
			o := restOptions{server: server, project: uuid.NewString(), key: keys.Generate().String()}
			api, err := o.newClient()
			require.NoError(t, err)
			api.Wait = func(context.Context, time.Duration) error { return nil }
			_, err = api.ListEnvironments(t.Context())
			require.ErrorContains(t, err, want)
		})
	}
}

// Plain http to other hosts needs --plain-http.
func TestREST_RefusesPlainHTTPUnlessAllowed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		server string
		plain  bool
		want   string
	}{
		"loopback":  {"http://127.0.0.1:18082", false, ""},
		"localhost": {"http://localhost", false, ""},
		"https":     {"https://agents.example", false, ""},
		"http":      {"http://10.96.0.7", false, "--plain-http, or AGENTPLATFORM_PLAIN_HTTP=true, allows it"},
		"allowed":   {"http://10.96.0.7", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := restOptions{server: row.server, project: uuid.NewString(), key: keys.Generate().String(), plainHTTP: row.plain}
			_, err := o.newClient()
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

// Trigger can call the webhook at another URL of the gateway.
func TestTrigger_ReachesTheGatewayByAnotherURL(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.answer, h.hook = `{"status":"ok"}`, "http://agentplatform-gateway.agentplatform-system.svc/hook"
	for name, row := range map[string]struct {
		gateway string
		plain   bool
		want    string
	}{
		"forwarded": {h.URL, false, ""},
		"in clear":  {"http://10.96.0.8", false, "--plain-http allows it"},
		"no URL":    {"10.96.0.8", false, "--gateway-url: must be a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.runTrigger(t, "order.json", `{}`, func(o *triggerOptions) { o.gateway, o.plainHTTP = row.gateway, row.plain })
			if row.want == "" {
				require.NoError(t, err)
				require.Equal(t, "of the connector", h.header.Get("X-Service-Secret"))
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}
