// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/testenv/scripttest"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/script"
)

func TestMain(m *testing.M) { scripttest.Main(m) }

const (
	// loopRuns is the number of runs of a round of BenchmarkLoop.
	loopRuns = 1000
	// resumedCalls is the number of scripts that BenchmarkResume resumes, each with resumedEffects.
	resumedCalls, resumedEffects = 10, 100
	// firstVariable is the number of the first variable, so that all numbers have as many digits. Variables are sorted by name.
	firstVariable = 100
	// resumptions is the number of resumed runs of a round, resumeAim the most milliseconds of one.
	resumptions, resumeAim = 20, 200
	// longCalls is the number of calls of the run of BenchmarkJournal. The result of each has longResult bytes, so that the
	// conversation has 200,000 tokens of four bytes.
	longCalls, longResult = 100, 8000
)

// host executes agents in this process, as a runner does, and keeps their journals.
type host struct {
	engine  *engine.Engine
	pool    *script.Pool
	entries []dispatchapi.JournalEntry
}

// newHost returns a host whose scripts may send requests to this machine.
func newHost(tb testing.TB) *host {
	tb.Helper()
	pool, err := script.NewPool(script.Options{})
	require.NoError(tb, err)
	rules, err := egress.Flags{Allow: "tool=127.0.0.0/8"}.Rules()
	require.NoError(tb, err)
	client := egress.New(rules).Client(egress.Tool, egress.ClientOptions{MaxResponse: features.MaxResponse})
	var known runnerconfig.Variables
	for i := range resumedEffects {
		known.Variables = append(known.Variables, runnerconfig.Variable{Name: fmt.Sprint("V", firstVariable+i), Value: "value"})
	}
	variables := func() (runnerconfig.Variables, error) { return known, nil }
	return &host{pool: pool, engine: engine.New(engine.Config{
		Models: &model.Registry{}, Variables: variables,
		Features: features.New(features.Config{ToolHTTP: client, Variables: variables, Scripts: pool}),
	})}
}

// Append implements engine.Journal.
func (h *host) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	h.entries = append(h.entries, entries...)
	return nil
}

// execute executes a run of the agent shop and returns its journal.
func (h *host) execute(tb testing.TB, p *bundle.Project, prior []dispatchapi.JournalEntry) []dispatchapi.JournalEntry {
	tb.Helper()
	h.entries = nil
	out := h.engine.Execute(tb.Context(), engine.Input{
		RunID: "r", AgentName: "shop", Project: p, Message: `{"order":"A1"}`, Prior: prior, Journal: h, Attempt: 1,
	})
	require.Equal(tb, engine.Completed, out.Status, "%s %v", out.Error, out.Cause)
	require.Equal(tb, "Found.", out.Output)
	return append(h.entries, out.Trailing...)
}

// shop is a repository with an agent. Its model makes some calls in each turn and then answers.
func shop(tb testing.TB, source string, turns, calls int) *bundle.Project {
	tb.Helper()
	var steps strings.Builder
	for turn := range turns {
		fmt.Fprintf(&steps, "  - {turn: %d, tool_calls: [%s]}\n", turn+1,
			strings.Repeat("{name: shop_find, arguments: {order: A1}}, ", calls))
	}
	p, err := bundle.Parse(bundle.Files{
		"agents/shop.yaml": fmt.Appendf(nil, "name: shop\nmodel: scripted/shop\ntools: [shop.find]\nsystem_prompt: Help.\nmax_iterations: %d\n", turns+1),
		"models/shop.yaml": fmt.Appendf(nil, "steps:\n%s  - text: Found.\n", &steps),
		"tools/shop.star":  []byte("def find(order):\n    \"\"\"Finds an order.\n\n    Args:\n      order (string): The number.\n    \"\"\"\n" + source),
	})
	require.NoError(tb, err)
	return p
}

// ownTime returns the processor time of this process and of its ended children.
func ownTime(tb testing.TB) (sum time.Duration) {
	tb.Helper()
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		require.NoError(tb, syscall.Getrusage(of, &used))
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum
}

// BenchmarkLoop measures the processor time of a run with one call of a script that sends one GET, with the child process of
// the script. The yardstick is the same loop in ADK, whose tool is a Go function. The server of the requests is another process.
func BenchmarkLoop(b *testing.B) {
	bin := b.TempDir()
	for name, folder := range map[string]string{"adk": "../../hack/tools/adk", "empty": "empty"} {
		out, err := exec.CommandContext(b.Context(), "go", "build", "-C", folder, "-ldflags", "-s -w", "-o", filepath.Join(bin, name), ".").CombinedOutput()
		require.NoError(b, err, string(out))
	}
	url := "http://" + serveEmpty(b, filepath.Join(bin, "empty"))
	p := shop(b, fmt.Sprintf("    return {\"status\": http.get(%q, fail = False)[\"status\"]}\n", url), 1, 1)
	alternate(b, func() []Figure {
		said, err := exec.CommandContext(b.Context(), filepath.Join(bin, "adk"), url, strconv.Itoa(loopRuns)).Output()
		require.NoError(b, err)
		bare, err := strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
		require.NoError(b, err)
		h := newHost(b)
		before := ownTime(b)
		for range loopRuns {
			h.execute(b, p, nil)
		}
		h.pool.Close() // counts the time of the children
		return []Figure{Cost("loop/cpu a run", "µs", perRun(ownTime(b)-before, loopRuns)*1000, bare, 2.5)}
	})
}

// serveEmpty starts an HTTP server that finds nothing, and returns its address.
func serveEmpty(b *testing.B, program string) string {
	b.Helper()
	addr := freeAddr(b)
	p := start(b, program, addr)
	require.Eventually(b, func() bool {
		resp, err := http.Get("http://" + addr)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond, "%s", &p.log)
	return addr
}

// BenchmarkScript measures a call of a script in a warm child. The yardsticks are a fixed limit, and a message of the same size
// through two pipes and a process that returns it.
func BenchmarkScript(b *testing.B) {
	pool, err := script.NewPool(script.Options{})
	require.NoError(b, err)
	defer pool.Close()
	sources := map[string]string{"tools/a.star": "def run(amount, note = None):\n    return {\"amount\": amount * 2, \"note\": note}\n"}
	call := script.Call{
		Digest: "d", Sources: func() map[string]string { return sources }, File: "tools/a.star", Function: "run", Owner: bundle.OwnerTool,
		Args: json.RawMessage(`{"amount":21,"note":"twice"}`), Logs: script.MaxLogs,
	}
	alternate(b, func() []Figure {
		echoed := echo(b, 500)
		called, _ := load(b, 1, func(int) error {
			result, err := pool.Run(b.Context(), call, nil)
			if err == nil && string(result.Value) != `{"amount":42,"note":"twice"}` {
				err = fmt.Errorf("the script returned %s", result.Value)
			}
			return err
		})
		p50 := Percentile(called, 0.5) * 1000
		return []Figure{Cost("script/call/p50", "µs", p50, 150, 1), Cost("script/call/p50/pipes", "µs", p50, echoed, 0)}
	})
}

// echo returns the median microseconds of a message to cat and back.
func echo(b *testing.B, size int) float64 {
	b.Helper()
	cat := exec.CommandContext(b.Context(), "cat")
	in, err := cat.StdinPipe()
	require.NoError(b, err)
	out, err := cat.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cat.Start())
	message, back := make([]byte, size), make([]byte, size)
	times, _ := load(b, 1, func(int) error {
		if _, err := in.Write(message); err != nil {
			return err
		}
		for read := 0; read < size; {
			n, err := out.Read(back)
			if err != nil {
				return err
			}
			read += n
		}
		return nil
	})
	require.NoError(b, in.Close())
	require.NoError(b, cat.Wait())
	return Percentile(times, 0.5) * 1000
}

// BenchmarkResume measures a run that is resumed in the middle of ten scripts, whose 1,000 effects are recorded. The yardsticks
// are a fixed limit and decoding the journal. The processor time includes the start of the child processes.
func BenchmarkResume(b *testing.B) {
	p, prior := interruptedRun(b)
	name := fmt.Sprintf("resume/%d effects", resumedCalls*resumedEffects)
	alternate(b, func() []Figure {
		begun := time.Now()
		for range resumptions {
			for _, e := range prior {
				var data map[string]any
				require.NoError(b, exactjson.Decode(e.Data, &data))
			}
		}
		decoded := float64(time.Since(begun).Microseconds()) / 1000 / resumptions
		h, before := newHost(b), ownTime(b)
		var times []time.Duration
		for range resumptions {
			begun = time.Now()
			added := h.execute(b, p, prior)
			times = append(times, time.Since(begun))
			require.Equal(b, resumedCalls+1, len(added))
		}
		h.pool.Close() // counts the time of the children
		p50, spent := Percentile(times, 0.5), perRun(ownTime(b)-before, resumptions)
		return []Figure{
			Cost(name, "ms", p50, resumeAim, 1), Cost(name+"/cpu", "ms", spent, resumeAim, 1), Cost(name+"/decoding", "ms", p50, decoded, 0),
		}
	})
}

// interruptedRun returns the journal of a run whose runner was lost before any of its scripts ended.
func interruptedRun(b *testing.B) (p *bundle.Project, prior []dispatchapi.JournalEntry) {
	b.Helper()
	h := newHost(b)
	defer h.pool.Close()
	p = shop(b, fmt.Sprintf("    for i in range(%d, %d):\n        env(\"V\" + str(i))\n    return {}\n", firstVariable, firstVariable+resumedEffects), 1, resumedCalls)
	whole := h.execute(b, p, nil)
	for _, e := range whole[:len(whole)-1] { // without the last answer
		if e.Kind == dispatchapi.JournalToolResult && !strings.Contains(string(e.Data), `"digest"`) {
			continue // of a call, not of an effect
		}
		e.Sequence = int64(len(prior)) + 1
		prior = append(prior, e)
	}
	require.Equal(b, 1+resumedCalls+resumedCalls*resumedEffects, len(prior))
	return p, prior
}

// BenchmarkJournal measures the journal of a run with 100 calls, whose conversation has 200,000 tokens. The yardstick is the
// 50 MiB at which an engine ends such a run that records the conversation with each request.
func BenchmarkJournal(b *testing.B) {
	h := newHost(b)
	defer h.pool.Close()
	entries := h.execute(b, shop(b, fmt.Sprintf("    return {\"text\": \"x\" * %d}\n", longResult), longCalls, 1), nil)
	require.Len(b, entries, 1+3*longCalls)
	size := 0
	for _, e := range entries {
		size += e.Size()
	}
	require.Greater(b, size, longCalls*longResult)
	print(b, Cost("journal/100 calls", "MiB", float64(size)/(1<<20), 50, 1))
}
