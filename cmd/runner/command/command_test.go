// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// run executes the command line as a process would.
func run(t *testing.T, ctx context.Context, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := rootCommand(nil)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestHelp_ListsEveryCommand(t *testing.T) {
	for command, want := range map[string]string{
		"":            "build",
		"build":       "pack",
		"build fetch": "known_hosts",
		"build pack":  "--token-file",
		"serve":       "--concurrency",
	} {
		t.Run(command, func(t *testing.T) {
			out, err := run(t, t.Context(), append(strings.Fields(command), "--help")...)
			require.NoError(t, err)
			require.Contains(t, out, want)
		})
	}
}

func TestFlags_NamesMissingOptions(t *testing.T) {
	_, err := run(t, t.Context(), "build", "pack")
	require.ErrorContains(t, err, "dispatch URL")
	_, err = run(t, t.Context(), "serve", "--dispatch-url=http://127.0.0.1:1")
	require.ErrorContains(t, err, "dispatch token")
	_, err = run(t, t.Context(), "serve", "--dispatch-url=http://127.0.0.1:1", "--token-file=x", "--allow-egress=mail=1")
	require.ErrorContains(t, err, "--allow-egress")
	t.Setenv("AGENTPLATFORM_CONCURRENCY", "many")
	_, err = run(t, t.Context(), "serve")
	require.ErrorContains(t, err, "AGENTPLATFORM_CONCURRENCY")
}

// A flag on the command line overrides its environment variable, even if the flag is empty.
func TestFlags_PreferTheCommandLine(t *testing.T) {
	fetch := []string{"build", "fetch", "--dir", t.TempDir(), "--url=https://nowhere.invalid/x.git"}
	t.Setenv("AGENTPLATFORM_ALLOW_EGRESS", "nonsense")
	t.Setenv("AGENTPLATFORM_DENY_EGRESS", "nonsense")
	_, err := run(t, t.Context(), fetch...)
	require.ErrorContains(t, err, "nonsense")
	_, err = run(t, t.Context(), append(fetch, egress.Flags{}.Args()...)...)
	require.NoError(t, err)
}

// The three commands work together over a real dispatch port: the runner executes the bundle that the build uploads.
func TestRunner_BuildsAndServes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	port := &wirePort{stop: stop}
	server := httptest.NewTLSServer(port)
	t.Cleanup(server.Close)
	token, authorities := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(authorities, certificate, 0o600))
	t.Setenv("AGENTPLATFORM_DISPATCH_URL", server.URL)
	t.Setenv("AGENTPLATFORM_DISPATCH_CA_FILE", authorities)
	t.Setenv("AGENTPLATFORM_TOKEN_FILE", token)

	dir := t.TempDir()
	_, err := run(t, ctx, "build", "fetch", "--dir", dir, "--url", "https://nowhere.invalid/x.git")
	require.NoError(t, err)
	_, err = run(t, ctx, "build", "pack", "--dir", dir)
	require.NoError(t, err)
	require.Contains(t, port.result.Message, "nowhere.invalid")

	dir = t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "source"), os.DirFS("../../../examples/hello")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fetch.json"), []byte(`{"commit":"abc"}`), 0o600))
	_, err = run(t, ctx, "build", "pack", "--dir", dir)
	require.NoError(t, err)
	require.Empty(t, port.result.FailureReason, port.result.Message)
	require.Len(t, port.result.Agents, 4)

	port.agent = "welcome"
	health, counted := testenv.FreeAddr(t), testenv.FreeAddr(t)
	port.stop = func() { // while its run ends
		defer stop()
		_, ready := get(t, "http://"+health+"/readyz")
		require.Equal(t, http.StatusOK, ready)
		_, alive := get(t, "http://"+health+"/healthz")
		require.Equal(t, http.StatusOK, alive)
		text, _ := get(t, "http://"+counted+"/metrics")
		served := metrictest.Parse(t, text)
		served.Check(t, metrics.ProcessRunner)
		require.InEpsilon(t, 1, served.Value(t, "agentplatform_runner_runs"), 0)
		require.InEpsilon(t, 7, served.Value(t, "agentplatform_runner_slots"), 0)
		require.NotZero(t, served.Value(t, "agentplatform_runner_model_requests_total", "provider", "scripted", "outcome", "ok"))
	}
	_, err = run(t, ctx, "serve", "--runner-id=one", "--concurrency=7", "--health-addr="+health, "--metrics-addr="+counted)
	require.NoError(t, err)
	require.Equal(t, "Welcome, Ada! It is good to have you here.", port.end.Output)
	require.Equal(t, "Bearer secret", port.auth)
}

func get(t *testing.T, url string) (body []byte, status int) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return body, resp.StatusCode
}

// wirePort is a dispatch port that hands out one run. Its fields are read when
// no command runs.
type wirePort struct {
	mu      sync.Mutex
	result  dispatchapi.BuildResult
	bundle  []byte
	agent   string
	end     dispatchapi.CompleteRequest
	auth    string
	stop    func()
	claimed bool
}

func (p *wirePort) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.auth = r.Header.Get("Authorization")
	switch {
	case r.URL.Path == "/v1/build/result":
		p.result = dispatchapi.BuildResult{}
		_ = json.Unmarshal(body.Bytes(), &p.result)
	case strings.HasPrefix(r.URL.Path, "/v1/build/bundle/"):
		p.bundle = body.Bytes()
	case strings.HasPrefix(r.URL.Path, "/v1/bundles/"):
		_, _ = w.Write(p.bundle)
	case r.URL.Path == "/v1/claim" && strings.Contains(body.String(), `"draining":true`):
		_, _ = io.WriteString(w, "{}")
	case r.URL.Path == "/v1/claim" && p.claimed:
		p.mu.Unlock()
		<-r.Context().Done()
		p.mu.Lock()
	case r.URL.Path == "/v1/claim":
		p.claimed = true
		_ = json.NewEncoder(w).Encode(dispatchapi.ClaimResponse{Runs: []dispatchapi.Run{{
			ID: uuid.New(), Token: 1, LeaseSeconds: 30, AgentName: p.agent, BundleDigest: p.result.BundleDigest,
			ContentType: "application/json", Input: []byte(`{"name":"Ada"}`),
		}}})
	case strings.HasSuffix(r.URL.Path, "/complete"):
		_ = json.Unmarshal(body.Bytes(), &p.end)
		defer p.stop()
	}
}

func TestExample_GreetsByName(t *testing.T) {
	project, err := bundle.Load(os.DirFS("../../../examples/hello"))
	require.NoError(t, err)
	e := engine.New(engine.Config{Models: &model.Registry{}})
	require.Empty(t, e.Check(project))
	for input, want := range map[string]string{
		`{"name":"Ada"}`:            `^Hello Ada, it is \d\d:\d\d UTC\.$`,
		`{"x":1,"name":"Grace H."}`: `^Hello Grace H\., it is`,
		`{}`:                        `^Hello, it is \d\d:\d\d UTC\. Send \{"name":"\.\.\."\}`,
	} {
		t.Run(input, func(t *testing.T) {
			out := e.Execute(t.Context(), engine.Input{RunID: "r", AgentName: "hello", Project: project, Message: input, Journal: discard{}})
			require.Equal(t, engine.Completed, out.Status, out.Cause)
			require.Regexp(t, want, out.Output)
		})
	}
}

type discard struct{}

func (discard) Append(context.Context, []dispatchapi.JournalEntry) error { return nil }

// The page docs/reference/flags-runner.md lists all flags of the program.
func TestReference_ListsAllFlags(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "flags-runner.md", "# Flags of runner\n"+refpage.Flags(rootCommand(nil), flagenv.Name))
}
