// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

const (
	// resultRuns is the number of runs that end at once, resultSize the bytes of the result of each: nearly the most that a
	// model may answer.
	resultRuns, resultSize = 64, dispatchapi.MaxModelAnswer - 8<<10
	// resultsAim is the maximum memory of the runner in MiB.
	resultsAim = 300
)

// BenchmarkResults measures the peak memory of a runner process with 64 slots, whose runs all get an answer of 1 MiB from their
// model at the same time. It compares it with the limit.
func BenchmarkResults(b *testing.B) {
	silence(b)
	db := openSQLite(b)
	scene := storebench.NewScene(b, db.store, 1)
	admit(b, db.store, scene)
	releaseFiles(b, db.store, scene, fstest.MapFS{
		"agents/shop.yaml": &fstest.MapFile{Data: []byte("name: shop\nmodel: service/large\nsystem_prompt: Help.\n")},
	}, "shop")
	queue(b, db.store, store.Key{ProjectID: scene.Project, ID: connect(b, db.store, scene, "inbound", "shop")}, resultRuns)
	b.Setenv("GOMEMLIMIT", fmt.Sprint(resultsAim, "MiB"))
	p := runnerProcess(b, "http://"+gateway(b, db.store).InternalAddr(), tokenOf(scene.Project), largeAnswers(b))
	completed := fmt.Sprintf(`SELECT count(*) FROM ended_runs WHERE project_id = '%s' AND status = 'completed'`, scene.Project)
	require.Eventually(b, func() bool {
		ended, err := db.count(b.Context(), completed)
		return err == nil && ended == resultRuns
	}, peakTimeout, 100*time.Millisecond, "%s", &p.log)
	print(b, Cost("memory/runner/results", "MiB", p.peak(b), resultsAim, 1))
}

// runnerProcess starts a runner process with a slot for each run. It asks the models of a service.
func runnerProcess(b *testing.B, dispatch, token, service string) *process {
	b.Helper()
	dir := b.TempDir()
	bin, secret, providers := filepath.Join(dir, "runner"), filepath.Join(dir, "token"), filepath.Join(dir, runnerconfig.ProvidersFile)
	out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", bin, "../../cmd/runner").CombinedOutput()
	require.NoError(b, err, string(out))
	require.NoError(b, os.WriteFile(secret, []byte(token), 0o600))
	text, err := json.Marshal(runnerconfig.Providers{Providers: []runnerconfig.Provider{
		{Prefix: "service", Type: runnerconfig.ProviderOpenAI, BaseURL: service, APIKey: "none"},
	}})
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(providers, text, 0o600))
	return start(b, bin, "serve", "--dispatch-url="+dispatch, "--token-file="+secret, "--providers="+providers,
		fmt.Sprint("--concurrency=", resultRuns), "--allow-egress=model=127.0.0.0/8", "--health-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
}

// largeAnswers serves a model that answers when all runs have asked, with resultSize bytes. It returns the URL.
func largeAnswers(b *testing.B) string {
	b.Helper()
	answer := fmt.Sprintf(`{"object":"chat.completion","model":"large","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":%q}}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, strings.Repeat("x", resultSize))
	asked, all := make(chan struct{}, resultRuns), make(chan struct{})
	ctx, stop := context.WithCancel(b.Context())
	b.Cleanup(stop)
	go func() {
		defer close(all)
		for range resultRuns {
			select {
			case <-asked:
			case <-ctx.Done():
				return
			}
		}
	}()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default: // a repeated request
		}
		<-all
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(server.Close)
	return server.URL
}
