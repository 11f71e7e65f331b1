// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// A trace has each request to a model with its server and the name of the model that answered, and the failed attempts of the
// request. No attribute has the rest of the server's address.
func TestModelRequest_RecordsAttempts(t *testing.T) {
	t.Parallel()
	const busy, broken, canary = `429`, `503`, "CANARY"
	named := strings.Replace(hello, "{", `{"model":"model-2026",`, 1)
	for name, row := range map[string]struct {
		answers []string
		// want are the error of each request and the errors of its attempts before.
		want [][]string
	}{
		"answer after errors":              {[]string{busy, broken, named}, [][]string{{"", "model_rate_limited", "model_unavailable"}}},
		"no answer":                        {[]string{broken, busy, broken}, [][]string{{"model_unavailable", "model_unavailable", "model_rate_limited"}}},
		"rejected":                         {[]string{`400`}, [][]string{{"model_request_rejected"}}},
		"errors around an unusable answer": {[]string{broken, noChoice, named}, [][]string{{"model_answer_invalid", "model_unavailable"}, {""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := slices.Clone(row.answers)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := left[0]
				left = left[1:]
				w.Header().Set("Content-Type", "application/json")
				if status := map[string]int{busy: 429, broken: 503, `400`: 400}[answer]; status != 0 {
					w.WriteHeader(status)
					answer = "{}"
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			h, in := &house{}, input(project(t, "agents/main.yaml", "name: main\nmodel: ours/model\ntemperature: 0.5\nmax_output_tokens: 2000\n"), nil)
			in.Journal = h
			out := engine.New(engine.Config{
				Models: &model.Registry{HTTP: server.Client(), Providers: func() (runnerconfig.Providers, error) {
					return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: server.URL + "/" + canary + "?key=" + canary}}}, nil
				}},
				Sleep: func(context.Context, time.Duration) error { return nil },
			}).Execute(t.Context(), in)
			journal := append(h.appended, out.Trailing...)
			for _, e := range journal {
				require.NotContains(t, string(e.Data), canary)
			}
			require.Equal(t, row.want, requestErrors(t, journal, server.URL))
		})
	}
}

// requestErrors returns the error of each model request in a journal, followed by the errors of its attempts before. It checks the
// other facts of the requests.
func requestErrors(t *testing.T, journal []dispatchapi.JournalEntry, server string) (got [][]string) {
	t.Helper()
	to, err := url.Parse(server)
	require.NoError(t, err)
	for _, s := range traceOf(t, journal).Spans {
		if s.Kind != runtrace.KindModel {
			continue
		}
		errors := []string{s.ErrorType}
		for _, e := range s.Events {
			require.Equal(t, "model", e.Attributes["gen_ai.request.model"])
			require.False(t, e.At.IsZero())
			errors = append(errors, e.Attributes["error.type"].(string))
		}
		got = append(got, errors)
		require.Equal(t, runtrace.ServerOf(to).Port, s.Attributes["server.port"])
		require.Equal(t, "127.0.0.1", s.Attributes["server.address"])
		require.InDelta(t, 0.5, s.Attributes["gen_ai.request.temperature"], 0)
		require.EqualValues(t, 2000, s.Attributes["gen_ai.request.max_tokens"])
		if s.ErrorType == "" {
			require.Equal(t, "model-2026", s.Attributes["gen_ai.response.model"])
		}
	}
	return got
}
