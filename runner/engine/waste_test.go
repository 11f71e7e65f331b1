// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// answers of a model service, with 10 input and 5 output tokens each.
const (
	spentTokens = `"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
	noWords     = `{"choices":[{"finish_reason":"length","message":{"role":"assistant","content":""}}],` + spentTokens
	noChoice    = `{"choices":[],` + spentTokens
	hello       = `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hello"}}],` + spentTokens
	unsaid      = `{"choices":[]}`
)

// An unusable answer is requested again or fails the run. Its usage always counts.
func TestCost_CountsUnusableAnswers(t *testing.T) {
	t.Parallel()
	const failed, answered = dispatchapi.JournalModelFailure, dispatchapi.JournalModelAnswer
	for name, c := range map[string]struct {
		answers []string
		status  engine.Status
		kinds   []string
	}{
		"useful answer at the third request": {[]string{noWords, noChoice, hello}, engine.Completed, []string{failed, failed, answered}},
		"no useful answer":                   {[]string{noChoice, noChoice, noChoice}, engine.Failed, []string{failed, failed, failed}},
		"answer without token usage":         {[]string{unsaid, hello}, engine.Completed, []string{answered}},
		"useful answer":                      {[]string{hello}, engine.Completed, []string{answered}},
	} {
		t.Run(name, func(t *testing.T) {
			left := slices.Clone(c.answers)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, left[0])
				left = left[1:]
			}))
			h, in := &house{}, input(project(t, "agents/main.yaml", "name: main\nmodel: ours/model\n"), nil)
			in.Journal = h
			out := engine.New(engine.Config{
				Models: &model.Registry{HTTP: server.Client(), Providers: func() (runnerconfig.Providers, error) {
					return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: server.URL}}}, nil
				}},
				Prices: func() (runnerconfig.Prices, error) {
					return runnerconfig.Prices{Prices: map[string]runnerconfig.Price{"ours/model": {Currency: "USD", Input: 1000, Output: 1000}}}, nil
				},
				Sleep: func(context.Context, time.Duration) error { return nil },
			}).Execute(t.Context(), in)
			server.Close()
			require.Equal(t, c.status, out.Status)
			var kinds []string
			entries := append(h.appended, out.Trailing...)
			for _, e := range entries {
				kinds = append(kinds, e.Kind)
				require.Equal(t, &dispatchapi.Cost{Currency: "USD", Nanos: 15}, e.Usage.Cost)
				require.EqualValues(t, 15, e.Usage.TotalTokens)
			}
			require.Equal(t, c.kinds, kinds)
			require.EqualValues(t, 15*len(kinds), out.Usage.TotalTokens)

			// The next runner counts them too.
			in.Prior = entries
			if c.status == engine.Completed {
				again := engine.New(engine.Config{Models: &model.Registry{Providers: func() (runnerconfig.Providers, error) {
					return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: server.URL}}}, nil
				}}}).Execute(t.Context(), in)
				require.Equal(t, out.Output, again.Output)
				require.Equal(t, out.Usage, again.Usage)
			}
		})
	}
}
