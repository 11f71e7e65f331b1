// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// tested builds an agent with a scripted model and a suite.
func tested(t *testing.T, ctx context.Context, d *desk, cases string, change func(*build.PackOptions)) error {
	t.Helper()
	opts := build.PackOptions{
		Dir: fetched(t, build.Result{Commit: "abc"}, "agents/ok.yaml", "name: ok\nmodel: scripted/ok\n",
			"models/ok.yaml", "steps: [{text: hello, tokens: {input: 3, output: 1}}]\n", "tests/t.yaml", "agent: ok\ncases:\n"+cases),
		Dispatch: d, Models: &model.Registry{}, Check: engine.New(engine.Config{}).Check,
		Now: func() time.Time { return time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC) },
	}
	change(&opts)
	return build.Pack(ctx, opts)
}

func asIs(*build.PackOptions) {}

const (
	passing = "  - {name: greets, payload: hi, runs: 2, expected_result: output == 'hello'}\n"
	failing = "  - {name: bids-farewell, payload: hi, expected_result: output == 'bye'}\n"
)

func TestTests_Pass(t *testing.T) {
	t.Parallel()
	d := &desk{}
	require.NoError(t, tested(t, t.Context(), d, passing, asIs))
	require.Equal(t, "testing", d.reports[1].Phase)
	require.Len(t, d.results, 1)
	result := d.results[0]
	require.Empty(t, result.FailureReason)
	require.Len(t, result.Agents, 1)
	require.Equal(t, dispatchapi.Tests{{
		AgentName: "ok", TestName: "greets", Passed: true, Successes: 2, Runs: 2, SuccessThreshold: 1,
		TokenUsage: dispatchapi.TokenUsage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8}, Costs: dispatchapi.DayCosts{{Day: 20_454, Calls: 2}},
	}}, result.TestResults)
	require.Contains(t, d.text(), "test 1 of 1, 0 failed: ok/greets passed, 2 of 2 runs as expected, 0s, 8 tokens")
	require.Contains(t, d.text(), "all 1 test cases passed")
}

// The build fails and the bundle is kept. The log has the position, the expected result and the
// actual result.
func TestTests_FailedCaseFailsBuild(t *testing.T) {
	t.Parallel()
	d := &desk{}
	require.NoError(t, tested(t, t.Context(), d, passing+failing, asIs))
	result := d.results[0]
	require.Equal(t, dispatchapi.FailureTests, result.FailureReason)
	require.Equal(t, "1 of 2 test cases failed: ok/bids-farewell; ok/bids-farewell: 0 of 1 runs were as expected, at least 1 must be; "+
		"run 1 at tests/t.yaml:4:40: expected output == 'bye'; got status \"completed\", output \"hello\"; the build's log has all", result.Message)
	require.Empty(t, result.Agents)
	require.NotEmpty(t, d.bundles[result.BundleDigest])
	require.Equal(t, []string{"bids-farewell", "greets"}, []string{result.TestResults[0].TestName, result.TestResults[1].TestName})
	require.False(t, result.TestResults[0].Passed)
	require.Contains(t, *result.TestResults[0].FailureReason, "run 1 at tests/t.yaml:4:40: expected output == 'bye'; got status \"completed\", output \"hello\"")
	require.Nil(t, result.TestResults[1].FailureReason)
	require.Contains(t, d.text(), "tests/t.yaml:4:6: ok/bids-farewell, run 1 of 1:\n    tests/t.yaml:4:40\n      expected: output == 'bye'\n      got:      status \"completed\", output \"hello\"\n")
}

func TestTests_AreSkipped(t *testing.T) {
	t.Parallel()
	d := &desk{}
	require.NoError(t, tested(t, t.Context(), d, failing, func(o *build.PackOptions) { o.SkipTests = true }))
	require.Empty(t, d.results[0].FailureReason)
	require.Nil(t, d.results[0].TestResults)
	require.Len(t, d.reports, 1, "no test phase")
	require.Contains(t, d.text(), "the deployment skips the test phase")

	d = &desk{}
	require.NoError(t, tested(t, t.Context(), d, "  - {name: a, payload: x, expected_result: outptu == ''}\n", func(o *build.PackOptions) { o.SkipTests = true }))
	require.Contains(t, d.results[0].Message, `tests/t.yaml:3:27: "expected_result" is not a CEL expression`, "they are read all the same")
}

// A cancelled build reports no test results.
func TestTests_CancelledBuildReportsNone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &desk{}
	require.ErrorIs(t, tested(t, ctx, d, passing, asIs), context.Canceled)
	require.Empty(t, d.results)
}

// The limit holds for the maximum number of cases with the longest causes.
func TestTests_ResultsFitIntoReport(t *testing.T) {
	t.Parallel()
	d := &desk{}
	require.NoError(t, tested(t, t.Context(), d, passing, func(o *build.PackOptions) { many(t, o.Dir) }))
	require.Len(t, d.results[0].TestResults, 1000)
	size := 0
	for _, r := range d.results[0].TestResults {
		size += len(*r.FailureReason)
	}
	require.Less(t, size, dispatchapi.MaxTestResults)
	require.Positive(t, size)
	require.Less(t, len(d.results[0].Message), 4000)
	require.True(t, strings.HasPrefix(d.results[0].Message, "1000 of 1000 test cases failed"))
}

// many writes suites with a thousand cases that fail with a long output.
func many(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "source/models/ok.yaml"), []byte("steps: [{text: '"+strings.Repeat("<é>", 2000)+"'}]\n"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "source/tests/t.yaml")))
	for file := range 2 {
		text := "agent: ok\ncases:\n"
		for i := range 500 {
			text += fmt.Sprintf("  - {name: case-%d-%d, payload: hi, expected_result: output == ''}\n", file, i)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("source/tests/%d.yaml", file)), []byte(text), 0o600))
	}
}
