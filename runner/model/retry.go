// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"time"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

// Policy configures retries.
type Policy struct {
	// Attempts includes the first attempt; at least 1.
	Attempts int
	// InitialDelay is the pause before the second attempt. It doubles up to MaxDelay.
	InitialDelay, MaxDelay time.Duration
	// Sleep waits, or returns the error of the context; nil uses real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Delay returns the pause after a failed attempt, counted from 1. A pause that a service requests is limited to MaxDelay.
func (p Policy) Delay(attempt int, requested time.Duration) time.Duration {
	d := p.InitialDelay
	for range attempt - 1 {
		if d *= 2; d >= p.MaxDelay {
			break
		}
	}
	return min(max(d, requested), p.MaxDelay)
}

// WithRetry sends a request to the first model as often as the policy allows, and then to each
// fallback in the same way.
func WithRetry(policy Policy, first Model, fallbacks ...Model) Model {
	if policy.Sleep == nil {
		policy.Sleep = pause.For
	}
	return &retrying{policy: policy, models: append([]Model{first}, fallbacks...)}
}

type retrying struct {
	policy Policy
	models []Model
}

// Name returns the name of the first model.
func (r *retrying) Name() string { return r.models[0].Name() }

// Server returns the server of the first model.
func (r *retrying) Server() *runtrace.Server { return r.models[0].Server() }

// Generate implements Model.
func (r *retrying) Generate(ctx context.Context, req *Request) (*Answer, error) {
	var failure error
	for _, llm := range r.models {
		answer, err := r.askWithRetries(ctx, llm, req)
		if err == nil {
			return answer, nil
		}
		failure = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failure
}

func (r *retrying) askWithRetries(ctx context.Context, llm Model, req *Request) (*Answer, error) {
	for attempt := 1; ; attempt++ {
		answer, err := generateOnce(withAttempt(ctx, attempt), llm, req)
		if err == nil {
			return answer, nil
		}
		failure, ok := AsError(err)
		if ok {
			reportFailure(ctx, llm, failure)
		}
		if !ok || !failure.Retryable || attempt >= r.policy.Attempts || ctx.Err() != nil {
			return nil, err
		}
		if err := r.policy.Sleep(ctx, r.policy.Delay(attempt, failure.RetryAfter)); err != nil {
			return nil, errors.Join(failure, err)
		}
	}
}

// generateOnce returns the answer of a model within requestTime, with the name and the server of the model.
func generateOnce(ctx context.Context, llm Model, req *Request) (*Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTime, errSlow)
	defer cancel()
	answer, err := llm.Generate(limited, req)
	if err != nil {
		return nil, givenUp(limited, err)
	}
	answer.Model, answer.Server = llm.Name(), llm.Server()
	return answer, nil
}

// FailureRecorder records a failed attempt of a request, also an unusable response, which is paid.
type FailureRecorder func(llm Model, failure *Error)

type failureKey struct{}

// WithFailures sets the recorder of failed attempts for a context. Generate calls it before it returns.
func WithFailures(ctx context.Context, record FailureRecorder) context.Context {
	return context.WithValue(ctx, failureKey{}, record)
}

func reportFailure(ctx context.Context, llm Model, failure *Error) {
	if record, ok := ctx.Value(failureKey{}).(FailureRecorder); ok {
		record(llm, failure)
	}
}

type attemptKey struct{}

func withAttempt(ctx context.Context, attempt int) context.Context {
	return context.WithValue(ctx, attemptKey{}, attempt)
}

// attemptOf returns the number of the attempt of a request, from 1.
func attemptOf(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}
