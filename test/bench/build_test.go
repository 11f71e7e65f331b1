// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These constants describe the repository of BenchmarkBuild.
const (
	builtAgents     = 100
	builtModels     = 20
	builtConnectors = 30
	builtSuites     = 10
	builtCases      = 3 // of each suite
	// buildAim limits the ratio of a build's time to its yardstick.
	buildAim = 2
)

// BenchmarkBuild runs the two steps of a build, as its Job runs them, on a repository with 100 agents and 30 test cases. The
// yardstick is `git clone --depth 1` of the repository plus decoding its YAML with the library that the build uses.
func BenchmarkBuild(b *testing.B) {
	silence(b)
	db := openPostgres(b)
	scene, gw := storebench.NewScene(b, db.store, 1), gateway(b, db.store)
	repo := gittest.New(b)
	repo.Commit("main", repository()...)
	url, ca := repo.HTTPS(b, nil)
	credentials := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(credentials, "ca.crt"), []byte(ca), 0o600))
	alternate(b, func() []Figure {
		cloned := took(func() { clone(b, url, filepath.Join(credentials, "ca.crt")) })
		built := took(func() { buildOnce(b, db.store, scene, gw.InternalAddr(), url, credentials) })
		return []Figure{Cost(fmt.Sprintf("build/%d agents", builtAgents), "ms", built, cloned, buildAim)}
	})
}

// took returns the time of a call in milliseconds.
func took(do func()) float64 {
	begun := time.Now()
	do()
	return float64(time.Since(begun).Microseconds()) / 1000
}

// repository are the files of a repository: names and contents by turns.
func repository() (pairs []string) {
	add := func(path, content string) { pairs = append(pairs, path, content) }
	add("agents/_defaults.yaml", "tools: [current_time]\nmax_iterations: 10\nretry_options: {attempts: 2}\n")
	prompt := strings.Repeat("  Answer {question} of {customer.name} in the words of the shop, and never promise a date.\n", 12)
	for i := range builtAgents {
		add(fmt.Sprintf("agents/team-%d/agent-%03d.yaml", i%10, i), fmt.Sprintf(
			"version: \"1.0\"\nname: agent-%03d\ndescription: Answers questions of kind %d.\ntype: llm\nmodel: scripted/model-%02d\nmax_concurrent_runs: 4\ntimeout: 2m\n"+
				"concurrency: {key: 'has(input.customer) ? input.customer.name : \"\"'}\nsystem_prompt: |\n%s", i, i, i%builtModels, prompt))
	}
	for i := range builtModels {
		add(fmt.Sprintf("models/model-%02d.yaml", i),
			"steps:\n  - match: '\"name\":\\s*\"(?P<name>[^\"]+)\"'\n    text: '{\"answer\":\"Hello ${name}.\"}'\n  - text: '{\"answer\":\"Hello.\"}'\n")
	}
	for i := range builtConnectors {
		add(fmt.Sprintf("connectors/connector-%02d.yaml", i), fmt.Sprintf(
			"type: webhook\nmode: sync\nname: Connector %d\nagents: [agent-%03d, agent-%03d]\nconfig:\n  timeout_seconds: 60\n  context_headers: [X-Shop]\n", i, i, i+builtConnectors))
	}
	for i := range builtSuites {
		suite := fmt.Sprintf("agent: agent-%03d\ncases:\n", i)
		for c := range builtCases {
			suite += fmt.Sprintf("  - name: greets-%d\n    payload: {customer: {name: Ada}, question: \"Where is order %d?\"}\n    expected_result: json(output).answer == \"Hello Ada.\"\n", c, c)
		}
		add(fmt.Sprintf("tests/suite-%02d.yaml", i), suite)
	}
	return pairs
}

// clone clones the repository with Git and decodes its files.
func clone(b *testing.B, url, ca string) {
	dir := filepath.Join(b.TempDir(), "clone")
	cmd := exec.CommandContext(b.Context(), "git", "clone", "-q", "--depth", "1", url, dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_SSL_CAINFO="+ca)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	decoded := 0
	require.NoError(b, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		decoded++
		var value any
		return yaml.Unmarshal(text, &value)
	}))
	require.Equal(b, len(repository())/2, decoded)
}

// buildOnce builds the repository and checks the outcome in the store.
func buildOnce(b *testing.B, st store.Store, scene *storebench.Scene, dispatch, url, credentials string) {
	ctx, key, token := b.Context(), store.Key{ProjectID: scene.Project, ID: uuid.New()}, uuid.NewString()
	_, err := st.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: refOf(store.KindDeployment), ID: key.ID, ProjectID: scene.Project, EnvironmentID: scene.Environment, Fingerprint: "g", SourceType: "git",
	})
	require.NoError(b, err)
	require.NoError(b, st.StartBuild(ctx, key, ""))
	require.NoError(b, st.PutToken(ctx, store.Token{
		SHA256: secrets.Digest(token), Kind: store.TokenBuild, ProjectID: scene.Project, EnvironmentID: scene.Environment, DeploymentID: &key.ID,
	}))
	dir := b.TempDir()
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(b, err)
	require.NoError(b, build.Fetch(ctx, build.FetchOptions{URL: url, Credentials: credentials, Dir: dir, Guard: egress.New(rules)}))
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + dispatch, Token: token})
	require.NoError(b, err)
	tools := engine.Builtin(time.Now)
	require.NoError(b, build.Pack(ctx, build.PackOptions{
		Dir: dir, Dispatch: client, Tools: tools, Check: engine.New(engine.Config{Tools: tools}).Check,
		Models: &model.Registry{
			HTTP: http.DefaultClient, Providers: func() (runnerconfig.Providers, error) { return runnerconfig.Providers{}, nil },
		},
	}))
	built, err := st.Deployment(ctx, key)
	require.NoError(b, err)
	require.True(b, built.Built, built.Message)
	require.Len(b, built.Agents, builtAgents)
	var tested []json.RawMessage
	require.NoError(b, json.Unmarshal(built.TestResults, &tested))
	require.Len(b, tested, builtSuites*builtCases)
	require.Zero(b, built.FailedTestCount)
}
