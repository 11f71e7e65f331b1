// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// small are sizes at which a row takes seconds.
var small = map[string]string{
	"test.benchtime": "1x", "rounds": "1", "backlog.runs": "1000", "backlog.requests": "20", "rest.environments": "3", "rest.time": "1s",
	"peak.runs": "2", "peak.bodies": "4", "peak.size": "200000", "peak.callers": "8",
	"activation.time": "1s", "activation.rate": "40",
	"scale.days": "3", "scale.projects": "3", "scale.oldest": "100", "scale.postgres": "300", "scale.sqlite": "300", "scale.base": "100", "scale.calls": "3",
	"scale.time": "2s", "scale.side": "1s", "scale.rate": "40", "executed.runs": "100", "steps.runs": "100", "durable.runs": "100", "listed.runs": "300",
}

// This test runs the occasionally measured rows with small sizes, so that they do not break unnoticed.
func TestRows_Work(t *testing.T) {
	for name, value := range small {
		setFlag(t, name, value)
	}
	for name, row := range map[string]func(*testing.B){
		"Machine": BenchmarkMachine, "Build": BenchmarkBuild, "Activation": BenchmarkActivation, "SyncRate": BenchmarkSyncRate, "Backlog": BenchmarkBacklog, "Rest": BenchmarkRest, "Peak": BenchmarkPeak, "Scale": BenchmarkScale, "Lists": BenchmarkLists,
		"Loop": BenchmarkLoop, "Script": BenchmarkScript, "ScriptNeighbor": BenchmarkScriptNeighbor, "Resume": BenchmarkResume, "Journal": BenchmarkJournal, "Results": BenchmarkResults, "Steps": BenchmarkSteps, "Durable": BenchmarkDurable,
	} {
		t.Run(name, func(t *testing.T) {
			require.Positive(t, testing.Benchmark(row).N, "it failed: BENCH=%s make bench says why", name)
		})
	}
}

// setFlag sets a flag until the end of the test.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	option := flag.Lookup(name)
	require.NotNil(t, option, name)
	before := option.Value.String()
	require.NoError(t, option.Value.Set(value))
	t.Cleanup(func() { require.NoError(t, option.Value.Set(before)) })
}
