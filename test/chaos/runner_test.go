// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// places is how many runs a runner executes at a time.
const places = 32

// runners execute runs in this process, one at each gateway, and live while that dies
// and comes back.
type runners struct {
	end   context.CancelFunc
	group errgroup.Group
}

// startRunners starts them; what they log is shown when the test fails.
func startRunners(t *testing.T, targets []*gateway) *runners {
	t.Helper()
	logRunners(t)
	ctx, end := context.WithCancel(t.Context())
	r := &runners{end: end}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Log(err)
		}
	})
	for _, g := range targets {
		client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + g.internal, Token: runnerToken})
		require.NoError(t, err)
		server, err := serve.New(serve.Options{
			Dispatch: client, RunnerID: "runner-of-" + g.name, Concurrency: places,
			Engine: engine.New(engine.Config{Models: &model.Registry{
				HTTP: http.DefaultClient, Providers: func() (runnerconfig.Providers, error) { return runnerconfig.Providers{}, nil },
			}}),
		})
		require.NoError(t, err)
		r.group.Go(func() error { return server.Run(ctx) })
	}
	return r
}

// logRunners sends what this process logs to a file until the test ends.
func logRunners(t *testing.T) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "runners.log"))
	require.NoError(t, err)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(file, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		_ = file.Close()
		if t.Failed() {
			log, _ := os.ReadFile(file.Name()) // there is nothing to show then
			t.Logf("the runners said at last:\n%s", log[max(0, len(log)-4000):])
		}
	})
}

// stop ends the runners in order. They have no runs by then.
func (r *runners) stop() error {
	r.end()
	if err := r.group.Wait(); err != nil {
		return fmt.Errorf("stopping the runners: %w", err)
	}
	return nil
}
