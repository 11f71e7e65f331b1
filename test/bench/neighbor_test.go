// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/script"
)

// hostileScripts are scripts that waste memory and time, until a limit ends them.
var hostileScripts = map[string]string{
	"tools/loop.star":   "def run():\n    for _ in range(1000000000): pass\n",
	"tools/lists.star":  "def run():\n    x = [\"a\"]\n    for _ in range(60): x = x + x\n    return len(x)\n",
	"tools/deep.star":   "def run():\n    x = []\n    for _ in range(3000000): x = [x]\n    return str(x)\n",
	"tools/shared.star": "def run():\n    x = [\"a\"]\n    for _ in range(60): x = [x, x]\n    return str(x)\n",
}

// BenchmarkScriptNeighbor measures the calls of a run's script while another run on the same runner calls hostile scripts, one
// after the other. The yardstick is the same without the other run, before and after.
func BenchmarkScriptNeighbor(b *testing.B) {
	pool, err := script.NewPool(script.Options{})
	require.NoError(b, err)
	defer pool.Close()
	alternate(b, func() []Figure {
		quiet := timeNeighbor(b, pool)
		ctx, cancel := context.WithCancel(b.Context())
		var hostile sync.WaitGroup
		hostile.Go(func() { callHostileScripts(ctx, b, pool) })
		beside := timeNeighbor(b, pool)
		cancel()
		hostile.Wait()
		quiet = (quiet + timeNeighbor(b, pool)) / 2
		return []Figure{Cost("script/beside a hostile script/p99", "µs", beside, quiet, 1.1)}
	})
}

// timeNeighbor returns the 99th percentile of the calls of a run, in microseconds.
func timeNeighbor(b *testing.B, pool *script.Pool) float64 {
	b.Helper()
	sources := map[string]string{"tools/a.star": "def run(amount):\n    return {\"amount\": amount * 2}\n"}
	call := script.Call{
		Digest: "neighbor", Run: "neighbor", Sources: func() map[string]string { return sources }, File: "tools/a.star", Function: "run",
		Owner: bundle.OwnerTool, Args: json.RawMessage(`{"amount":21}`), Logs: script.MaxLogs,
	}
	times, _ := load(b, 1, func(int) error {
		_, err := pool.Run(b.Context(), call, nil)
		return err
	})
	return Percentile(times, 0.99) * 1000
}

// callHostileScripts calls the hostile scripts in turn until ctx ends.
func callHostileScripts(ctx context.Context, b *testing.B, pool *script.Pool) {
	files := make([]string, 0, len(hostileScripts))
	for file := range hostileScripts {
		files = append(files, file)
	}
	slices.Sort(files)
	for i := 0; ctx.Err() == nil; i++ {
		_, err := pool.Run(ctx, script.Call{
			Digest: "hostile", Run: "hostile", Sources: func() map[string]string { return hostileScripts }, File: files[i%len(files)], Function: "run",
			Owner: bundle.OwnerTool, Args: json.RawMessage(`{}`), Logs: script.MaxLogs,
		}, nil)
		var failed *script.Error
		if ctx.Err() == nil && !errors.As(err, &failed) {
			b.Errorf("the hostile script %s ended with %v", files[i%len(files)], err)
			return
		}
	}
}
