// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// counted is a model with request metrics.
type counted struct {
	Model
	provider string
	metrics  *metrics.Runner
}

func (r *Registry) counted(provider string, llm Model) Model {
	if r.Metrics == nil {
		return llm
	}
	return counted{Model: llm, provider: provider, metrics: r.Metrics}
}

// Generate implements Model.
func (c counted) Generate(ctx context.Context, req *Request) (*Answer, error) {
	begin := time.Now()
	answer, err := c.Model.Generate(ctx, req)
	c.metrics.Asked(c.provider, outcome(ctx, err), time.Since(begin), tokensOf(answer, err))
	return answer, err
}

// outcome returns ok, cancelled, or the code of the error. For a request that timed out it returns
// the reason.
func outcome(ctx context.Context, err error) string {
	failure, known := AsError(givenUp(ctx, err))
	_, slow := AsError(context.Cause(ctx))
	switch {
	case err == nil:
		return metrics.OutcomeOK
	case ctx.Err() != nil && !slow:
		return metrics.OutcomeCancelled
	case known:
		return string(failure.Code)
	}
	return metrics.Other
}

// tokensOf returns the tokens of a response, also of an unusable one.
func tokensOf(answer *Answer, err error) metrics.Tokens {
	var u *dispatchapi.TokenUsage
	if failure, ok := AsError(err); ok {
		u = failure.Usage
	} else if answer != nil {
		u = answer.Usage
	}
	if u == nil {
		return metrics.Tokens{}
	}
	return metrics.Tokens{Input: u.InputTokens, Output: u.OutputTokens, Thinking: u.ThinkingTokens, CachedInput: u.CachedInputTokens}
}
