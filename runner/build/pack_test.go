// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// desk records the reports of a build.
type desk struct {
	mu       sync.Mutex
	log      []dispatchapi.BuildLog
	reports  []dispatchapi.BuildReport
	bundles  map[string][]byte
	results  []dispatchapi.BuildResult
	finished error
	// uploaded is the upload. fetching is the error of fetching it.
	uploaded []byte
	fetching error
	// refusal is the error of a report. full is the error of storing a bundle.
	refusal, full error
}

func (d *desk) Upload(context.Context, int64) ([]byte, error) { return d.uploaded, d.fetching }

func (d *desk) AppendLog(_ context.Context, req dispatchapi.BuildLog) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, req)
	return nil
}

func (d *desk) ReportBuild(_ context.Context, req dispatchapi.BuildReport) error {
	d.reports = append(d.reports, req)
	return d.refusal
}

func (d *desk) PutBundle(_ context.Context, digest string, data []byte) error {
	if d.full != nil {
		return d.full
	}
	if d.bundles == nil {
		d.bundles = map[string][]byte{}
	}
	d.bundles[digest] = data
	return nil
}

func (d *desk) FinishBuild(_ context.Context, req dispatchapi.BuildResult) error {
	d.results = append(d.results, req)
	return d.finished
}

func (d *desk) text() string {
	var all strings.Builder
	for _, chunk := range d.log {
		all.WriteString(chunk.Chunk)
	}
	return all.String()
}

// fetched creates the output folder of Fetch.
func fetched(t *testing.T, r build.Result, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fetch.json"), data, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "source"), 0o755))
	for i := 0; i < len(pairs); i += 2 {
		path := filepath.Join(dir, "source", pairs[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(pairs[i+1]), 0o600))
	}
	return dir
}

func packProject(t *testing.T, dir string, d *desk) error {
	t.Helper()
	return packChecked(t, dir, d, engine.New(engine.Config{}).Check)
}

func packChecked(t *testing.T, dir string, d *desk, check func(*bundle.Project) bundle.Problems) error {
	t.Helper()
	return build.Pack(t.Context(), build.PackOptions{
		Dir: dir, Dispatch: d, Check: check,
		Now: func() time.Time { return time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC) },
	})
}

func TestPack_UploadsBundle(t *testing.T) {
	t.Parallel()
	d := &desk{}
	everything := func(*bundle.Project) bundle.Problems { return nil }
	require.NoError(t, packChecked(t, fetched(t,
		build.Result{Branch: "main", Commit: "abc", Message: "Change", Author: "Ada", Log: []string{"10:00:00 fetching\n"}},
		"agents/ok.yaml", okAgent+"max_concurrent_runs: 2\ndescription: Fine\nfallback_model: our/a\n",
		"agents/same.yaml", "name: same\nmodel: our/a\nfallback_model: our/a\n", "tests/files/a.yaml", "x: 1\n"), d, everything))
	require.Equal(t, []dispatchapi.BuildReport{{Phase: "packing", Branch: "main", Commit: "abc", CommitMessage: "Change", Author: "Ada"}}, d.reports)
	require.Len(t, d.results, 1)
	result := d.results[0]
	require.Empty(t, result.FailureReason)
	require.JSONEq(t, `{"name":"ok","model":"openai/gpt-5","max_concurrent_runs":2,"description":"Fine","fallback_model":"our/a"}`,
		string(result.Agents[0].Config))
	require.Equal(t, 2, result.Agents[0].MaxConcurrentRuns)
	require.Equal(t, dispatchapi.Models{"openai/gpt-5", "our/a"}, result.Agents[0].Models)
	require.Equal(t, dispatchapi.Models{"our/a"}, result.Agents[1].Models)
	require.Equal(t, "agents/ok.yaml", result.Agents[0].SourcePath)
	p, err := bundle.Open(bytes.NewReader(d.bundles[result.BundleDigest]), result.BundleDigest)
	require.NoError(t, err)
	require.NotNil(t, p.Agent("ok"))
	require.Contains(t, d.text(), "10:00:00 fetching\n10:00:00 valid; agents: 2, connectors: 0, test cases: 0\n")
	for i, chunk := range d.log {
		require.EqualValues(t, i, chunk.Number)
	}
}

// This happens if a lost build starts again after the branch has moved.
func TestPack_FailsForOtherCommit(t *testing.T) {
	t.Parallel()
	d := &desk{refusal: &dispatchapi.RejectedError{Detail: "commit abc is not def"}}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent), d))
	require.Equal(t, []dispatchapi.BuildResult{{FailureReason: dispatchapi.FailureBuild, Message: "commit abc is not def"}}, d.results)
}

// The failure has the reason, for example full storage.
func TestPack_FailsIfBundleIsRejected(t *testing.T) {
	t.Parallel()
	d := &desk{full: &dispatchapi.RejectedError{Detail: "the project has stored all"}}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent), d))
	require.Equal(t, []dispatchapi.BuildResult{{FailureReason: dispatchapi.FailureBuild, Message: "the project has stored all"}}, d.results)
}

func TestPack_ReportsProblems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		result build.Result
		files  []string
		want   string
	}{
		"fetch":       {build.Result{Error: "repository x does not exist"}, nil, "repository x does not exist"},
		"YAML":        {build.Result{Commit: "abc"}, []string{"agents/ok.yaml", "name: ok\nmodle: openai/x\n"}, `agents/ok.yaml:2:1: unknown key "modle"; did you mean "model"?`},
		"unsupported": {build.Result{Commit: "abc"}, []string{"agents/ok.yaml", okAgent + "guardrails: {}\n"}, `agents/ok.yaml:3:1: "guardrails" is not supported`},
		"key":         {build.Result{Commit: "abc"}, []string{"agents/ok.yaml", okAgent + "concurrency:\n  on_conflict: drop\n  key: input.id +\n"}, `agents/ok.yaml:5:3: "concurrency.key" is not the CEL expression of a key: at line 1, column `},
		"key of none": {build.Result{Commit: "abc"}, []string{"agents/_defaults.yaml", "concurrency: {key: '[input.id]'}\n", "agents/a.yaml", okAgent, "agents/b.yaml", "name: b\nmodel: openai/x\n"}, `agents/_defaults.yaml:1:15: "concurrency.key" is not the CEL expression of a key: it returns a list`},
		"no agents":   {build.Result{Commit: "abc"}, nil, "no agent found"},
		"too large":   {build.Result{Commit: "abc"}, []string{"agents/ok.yaml", okAgent, "tools/x.star", strings.Repeat("x", bundle.MaxCodeSize)}, "at most 5242880 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &desk{}
			require.NoError(t, packProject(t, fetched(t, tt.result, tt.files...), d))
			require.Len(t, d.results, 1)
			require.Equal(t, dispatchapi.FailureBuild, d.results[0].FailureReason)
			require.Contains(t, d.results[0].Message, tt.want)
			require.Contains(t, d.text(), tt.want)
			require.Empty(t, d.bundles)
		})
	}
}

func TestPack_ReportsConcurrencyKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]dispatchapi.Agent{
		"":                               {},
		"concurrency: {key: input.id}\n": {ConcurrencyKey: "input.id"},
		"concurrency: {key: input.id, on_conflict: queue}\n": {ConcurrencyKey: "input.id"},
		"concurrency: {key: input.id, on_conflict: drop}\n":  {ConcurrencyKey: "input.id", ConcurrencyDrop: true},
	} {
		t.Run(text, func(t *testing.T) {
			d := &desk{}
			require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent+text), d))
			require.Len(t, d.results[0].Agents, 1, d.results[0].Message)
			got := d.results[0].Agents[0]
			require.Equal(t, want, dispatchapi.Agent{ConcurrencyKey: got.ConcurrencyKey, ConcurrencyDrop: got.ConcurrencyDrop})
		})
	}
}

func TestPack_ReportsConnectors(t *testing.T) {
	t.Parallel()
	d := &desk{}
	const orders = "type: webhook\nmode: sync\nagents: [ok]\n"
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent,
		"connectors/orders.yaml", orders, "connectors/nightly.yaml", "type: cron\nconfig: {schedule: '@daily'}\n"), d))
	require.Equal(t, dispatchapi.Connectors{
		{Key: "nightly", Content: "type: cron\nconfig: {schedule: '@daily'}\n"}, {Key: "orders", Content: orders},
	}, d.results[0].Connectors)
	d = &desk{}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent,
		"connectors/out.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://example.com'}\nlinks: [{agent: ok, outbound: {mode: middleware}}]\n"), d))
	require.Contains(t, d.results[0].Message, `connectors/out.yaml:4:1: "outbound.mode": no middleware of agent "ok" calls send_connector`)
	d = &desk{}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent,
		"middleware/ok.star", "def after(response, context):\n    send_connector(\"out\", {\"payload\": 1})\n    return response\n",
		"connectors/out.yaml", "type: webhook\nmode: outbound\nconfig: {url: 'https://example.com'}\nlinks: [{agent: ok, outbound: {mode: middleware}}]\n"), d))
	require.Len(t, d.results[0].Agents, 1, d.results[0].Message)
	require.True(t, d.results[0].Agents[0].SendsByMiddleware)
}

func TestPack_RejectsLinks(t *testing.T) {
	t.Parallel()
	d := &desk{}
	dir := fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "source/agents/link.yaml")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "source/tools")))
	require.NoError(t, packProject(t, dir, d))
	require.Contains(t, d.results[0].Message, "agents/link.yaml: is a link")
	require.Contains(t, d.results[0].Message, "tools: must be a folder")
}

func TestPack_EndsIfOutcomeIsFinal(t *testing.T) {
	t.Parallel()
	d := &desk{finished: dispatchapi.ErrFenced}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent), d))
	d = &desk{finished: errors.New("away")}
	require.ErrorContains(t, packProject(t, fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", okAgent), d), "reporting the build: away")
	require.ErrorContains(t, packProject(t, t.TempDir(), &desk{}), "run `runner build fetch` first")
}

func TestLog_IsTruncated(t *testing.T) {
	t.Parallel()
	d := &desk{}
	lines := []string{strings.Repeat("x", 2<<20) + "\n", "later\n"}
	require.NoError(t, packProject(t, fetched(t, build.Result{Commit: "abc", Log: lines}, "agents/ok.yaml", okAgent), d))
	require.Less(t, len(d.text()), 1<<20+100)
	require.Contains(t, d.text(), "the log is cut off here")
	require.NotContains(t, d.text(), "later")
}
