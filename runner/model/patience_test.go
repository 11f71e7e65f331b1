// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/runner/model"
)

const completion = `{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}`

// slow is a service that sends the bytes of its response with equal pauses. After most bytes it
// sends nothing more.
type slow struct {
	header, each time.Duration
	most         int
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := pause.For(req.Context(), s.header); err != nil {
		return nil, err
	}
	text := completion
	if s.most > 0 {
		text = strings.Repeat(" ", 100) + text
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: &slowBody{ctx: req.Context(), slow: s, text: text},
	}, nil
}

type slowBody struct {
	ctx  context.Context //nolint:containedctx // a body has no other way to learn of its end
	slow slow
	text string
	sent int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.sent == len(b.text) {
		return 0, io.EOF
	}
	if b.slow.most == 0 {
		n := copy(p, b.text[b.sent:])
		b.sent += n
		return n, nil
	}
	wait := b.slow.each
	if b.sent == b.slow.most {
		wait = 24 * time.Hour
	}
	if err := pause.For(b.ctx, wait); err != nil {
		return 0, err
	}
	p[0] = b.text[b.sent]
	b.sent++
	return 1, nil
}

func (b *slowBody) Close() error { return nil }

func slowModel(t *testing.T, s slow, registry *prometheus.Registry) model.Model {
	t.Helper()
	models := &model.Registry{
		HTTP: &http.Client{Transport: s}, Metrics: metrics.NewRunner(registry, model.ProviderTypes, model.Codes),
		Providers: func() (runnerconfig.Providers, error) {
			return runnerconfig.Providers{Providers: []runnerconfig.Provider{{Prefix: "ours", Type: "openai", BaseURL: "https://models.example.com/v1"}}}, nil
		},
	}
	llm, err := models.Resolve("ours/m", nil, model.Settings{})
	require.NoError(t, err)
	return llm
}

// A request times out after two minutes without a byte, and after ten minutes in total. It is
// retried according to the agent.
func TestOpenAI_TimesOutSilentRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		service slow
		want    string // "" for a response
		after   time.Duration
	}{
		"no header":        {slow{header: time.Hour}, "sent nothing for 2m0s", 2 * time.Minute},
		"no body":          {slow{header: time.Minute, each: time.Hour, most: 9}, "sent nothing for 2m0s", 3 * time.Minute},
		"a body that ends": {slow{header: time.Minute, each: time.Minute, most: 5}, "sent nothing for 2m0s", 8 * time.Minute},
		"a body for ever":  {slow{header: time.Minute, each: time.Minute, most: 99}, "did not answer within 10m0s", 10 * time.Minute},
		"in time":          {slow{header: 119 * time.Second}, "", 119 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry, began := prometheus.NewRegistry(), time.Now()
				policy := model.Policy{Attempts: 2, InitialDelay: time.Second, MaxDelay: time.Second}
				_, err := ask(t.Context(), model.WithRetry(policy, slowModel(t, tt.service, registry)), user("hi"))
				if tt.want == "" {
					require.NoError(t, err)
					require.Equal(t, tt.after, time.Since(began))
					return
				}
				failure, ok := model.AsError(err)
				require.True(t, ok, "%v", err)
				require.Equal(t, runerror.ModelTimeout, failure.Code)
				require.True(t, failure.Retryable)
				require.Contains(t, failure.Message, tt.want)
				require.Equal(t, 2*tt.after+time.Second, time.Since(began), "two attempts")
				require.InDelta(t, 2, metrictest.Of(t, registry).Value(t, "agentplatform_runner_model_requests_total", "provider", "openai", "outcome", string(runerror.ModelTimeout)), 0)
			})
		})
	}
}

// The end of the run ends the request immediately. It counts as cancelled and not as a failure of
// the model.
func TestOpenAI_CancelsRequestWithRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("ended")
		for _, s := range []slow{{header: time.Hour}, {each: time.Hour, most: 9}} {
			registry := prometheus.NewRegistry()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(ended) })
			began := time.Now()
			_, err := ask(ctx, model.WithRetry(model.Policy{Attempts: 3}, slowModel(t, s, registry)), user("hi"))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, time.Minute, time.Since(began))
			require.InDelta(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_runner_model_requests_total", "provider", "openai", "outcome", metrics.OutcomeCancelled), 0)
		}
	})
}

// The limit also applies to models that are not services.
func TestRetry_LimitsRequestTimeOfAllModels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		llm := scripted(t, "steps: [{text: x, delay: 1h}]")
		_, err := ask(t.Context(), model.WithRetry(model.Policy{Attempts: 1}, llm), user("hi"))
		failure, ok := model.AsError(err)
		require.True(t, ok, "%v", err)
		require.Equal(t, runerror.ModelTimeout, failure.Code)
	})
}
