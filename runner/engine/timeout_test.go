// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// A run has its agent's timeout for all attempts together, 15 minutes by default. A step has its
// own timeout in one attempt.
func TestTimeout_OfRunsAndSteps(t *testing.T) {
	t.Parallel()
	const quick = "name: main\nmodel: scripted/main\n"
	steps := func(sequence, step string) []string {
		return []string{"agents/main.yaml", "name: main\ntype: sequential\nagents: [inner]\n" + sequence,
			"agents/inner.yaml", "name: inner\ntype: sequential\nagents: [one, one]\n" + step,
			"agents/one.yaml", "name: one\nmodel: scripted/main\n"}
	}
	for name, tt := range map[string]struct {
		agents []string
		delay  string // delay of each model answer
		spent  time.Duration
		want   string // "" if the run completes
		after  time.Duration
	}{
		"default":                         {[]string{"agents/main.yaml", quick}, "9m", 10 * time.Minute, "15m0s, the timeout of agent \"main\" for all attempts", 5 * time.Minute},
		"default, in time":                {[]string{"agents/main.yaml", quick}, "9m", 5 * time.Minute, "", 9 * time.Minute},
		"own timeout":                     {[]string{"agents/main.yaml", quick + "timeout: 1m\n"}, "2m", 0, "1m0s", time.Minute},
		"longer own timeout":              {[]string{"agents/main.yaml", quick + "timeout: 1h\n"}, "9m", 50 * time.Minute, "", 9 * time.Minute},
		"time of earlier attempts counts": {[]string{"agents/main.yaml", quick + "timeout: 1h\n"}, "9m", 55 * time.Minute, "1h0m0s", 5 * time.Minute},
		"no time left":                    {[]string{"agents/main.yaml", quick}, "0", time.Hour, "15m0s", 0},
		"sequence, default":               {steps("", ""), "8m", 0, "agent \"main\"", 15 * time.Minute},
		"sequence, own timeout":           {steps("timeout: 20m\n", ""), "8m", 0, "", 16 * time.Minute},
		"timeout of a step":               {steps("timeout: 1h\n", "timeout: 10m\n"), "8m", 0, "agent \"inner\" took longer than its timeout of 10m0s", 10 * time.Minute},
		"the shorter of two timeouts":     {steps("timeout: 9m\n", "timeout: 10m\n"), "8m", 0, "agent \"main\"", 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, began := &house{}, time.Now()
				in := input(project(t, append(slices.Clone(tt.agents), "models/main.yaml", "steps: [{text: done, delay: "+tt.delay+"}]")...), h)
				in.Spent = tt.spent
				out := h.engine().Execute(t.Context(), in)
				require.Equal(t, tt.after, time.Since(began))
				if tt.want == "" {
					require.Equal(t, "done", out.Output, out.Error)
					return
				}
				require.Equal(t, runerror.Timeout, out.ErrorCode, out.Cause)
				require.Contains(t, out.Error, tt.want)
			})
		})
	}
}

// A tool in progress is cancelled by its context. A tool that has not begun is not recorded as
// started.
func TestTimeout_CancelsToolAndStartsNone(t *testing.T) {
	t.Parallel()
	const agent = greeter + "timeout: 1m\n"
	synctest.Test(t, func(t *testing.T) {
		h := &house{onTool: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		p := project(t, "agents/main.yaml", agent, "models/main.yaml", "steps: [{turn: 1, tool_calls: [{name: charge}]}, {text: done}]")
		require.Equal(t, runerror.Timeout, h.engine().Execute(t.Context(), input(p, h)).ErrorCode)

		late := &house{}
		in := input(p, late)
		in.Gate = func(context.Context) error { time.Sleep(2 * time.Minute); return nil }
		out := late.engine().Execute(t.Context(), in)
		require.Equal(t, runerror.Timeout, out.ErrorCode)
		require.Empty(t, late.called)
		for _, e := range append(late.appended, out.Trailing...) {
			require.NotEqual(t, dispatchapi.JournalToolStarted, e.Kind)
		}
	})
}

// A run whose last answer was appended completes, regardless of when its runner reports.
func TestTimeout_CompleteJournalIsInTime(t *testing.T) {
	t.Parallel()
	p := project(t, "agents/main.yaml", greeter, "models/main.yaml", "steps: [{text: done}]")
	first := &house{}
	whole := first.engine().Execute(t.Context(), input(p, first))
	in := input(p, &house{})
	in.Prior, in.Spent = append(first.appended, whole.Trailing...), 24*time.Hour // A slow machine appends before the end.
	require.Equal(t, "done", (&house{}).engine().Execute(t.Context(), in).Output)
}
