// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"iter"
	"time"

	adkmodel "google.golang.org/adk/v2/model"

	"github.com/agentplatform/agentplatform/internal/pause"
)

// Policy says how failed requests are repeated.
type Policy struct {
	// Attempts counts the first one; at least 1.
	Attempts int
	// InitialDelay is waited before the second attempt and doubles up to MaxDelay.
	InitialDelay, MaxDelay time.Duration
	// Sleep waits, or returns the context's error; nil means real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// delay is the wait after a failed attempt, counted from 1. What the provider
// asks for is kept within MaxDelay.
func (p Policy) delay(attempt int, err *Error) time.Duration {
	d := p.InitialDelay
	for range attempt - 1 {
		if d *= 2; d >= p.MaxDelay {
			break
		}
	}
	return min(max(d, err.RetryAfter), p.MaxDelay)
}

// WithRetry repeats requests to the models in turn: the first one as often as
// the policy says, then the next one as often.
func WithRetry(policy Policy, first adkmodel.LLM, fallbacks ...adkmodel.LLM) adkmodel.LLM {
	if policy.Sleep == nil {
		policy.Sleep = pause.For
	}
	return &retrying{policy: policy, models: append([]adkmodel.LLM{first}, fallbacks...)}
}

type retrying struct {
	policy Policy
	models []adkmodel.LLM
}

// Name is the first model's.
func (r *retrying) Name() string { return r.models[0].Name() }

// GenerateContent implements model.LLM; it gives one answer or one error.
func (r *retrying) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, _ bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) {
		var failure error
		for _, llm := range r.models {
			resp, err := r.ask(ctx, llm, req)
			if err == nil {
				yield(resp, nil)
				return
			}
			failure = err
			if ctx.Err() != nil {
				break
			}
		}
		yield(nil, failure)
	}
}

func (r *retrying) ask(ctx context.Context, llm adkmodel.LLM, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
	for attempt := 1; ; attempt++ {
		resp, err := once(withAttempt(ctx, attempt), llm, req)
		if err == nil {
			return resp, nil
		}
		failure, ok := AsError(err)
		if ok && failure.Usage != nil {
			wasted(ctx, llm.Name(), failure)
		}
		if !ok || !failure.Retryable || attempt >= r.policy.Attempts || ctx.Err() != nil {
			return nil, err
		}
		if err := r.policy.Sleep(ctx, r.policy.delay(attempt, failure)); err != nil {
			return nil, errors.Join(failure, err)
		}
	}
}

// once takes the one answer of a model that does not stream, within the time of a
// request. The answer says by ModelVersion which model gave it.
func once(ctx context.Context, llm adkmodel.LLM, req *adkmodel.LLMRequest) (*adkmodel.LLMResponse, error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTime, errSlow)
	defer cancel()
	for resp, err := range llm.GenerateContent(limited, req, false) {
		if err != nil {
			return nil, givenUp(limited, err)
		}
		resp.ModelVersion = llm.Name()
		return resp, nil
	}
	return nil, &Error{Code: CodeInvalidAnswer, Message: "the model gave no answer", Retryable: true}
}

// Waste takes what answers have used that are of no use: of which model, and why.
type Waste func(model string, failure *Error)

type wasteKey struct{}

// WithWaste has the requests of a context tell of such answers.
func WithWaste(ctx context.Context, waste Waste) context.Context {
	return context.WithValue(ctx, wasteKey{}, waste)
}

func wasted(ctx context.Context, model string, failure *Error) {
	if waste, ok := ctx.Value(wasteKey{}).(Waste); ok {
		waste(model, failure)
	}
}

type attemptKey struct{}

func withAttempt(ctx context.Context, attempt int) context.Context {
	return context.WithValue(ctx, attemptKey{}, attempt)
}

// attemptOf is the number of the attempt that a request belongs to, from 1.
func attemptOf(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}
