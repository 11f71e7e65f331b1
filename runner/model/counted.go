// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"iter"
	"time"

	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/metrics"
)

// counted is a model whose requests are counted.
type counted struct {
	adkmodel.LLM
	provider string
	metrics  *metrics.Runner
}

func (r *Registry) counted(provider string, llm adkmodel.LLM) adkmodel.LLM {
	if r.Metrics == nil {
		return llm
	}
	return counted{LLM: llm, provider: provider, metrics: r.Metrics}
}

// GenerateContent implements model.LLM; it gives one answer or one error.
func (c counted) GenerateContent(ctx context.Context, req *adkmodel.LLMRequest, stream bool) iter.Seq2[*adkmodel.LLMResponse, error] {
	return func(yield func(*adkmodel.LLMResponse, error) bool) {
		begin := time.Now()
		for resp, err := range c.LLM.GenerateContent(ctx, req, stream) {
			c.metrics.Asked(c.provider, outcome(ctx, err), time.Since(begin), spent(resp, err))
			yield(resp, err)
			return
		}
	}
}

// outcome is ok, cancelled, or the code of the error; that of a request which was
// given up is the reason for it.
func outcome(ctx context.Context, err error) string {
	failure, known := AsError(givenUp(ctx, err))
	_, slow := AsError(context.Cause(ctx))
	switch {
	case err == nil:
		return metrics.OutcomeOK
	case ctx.Err() != nil && !slow:
		return metrics.OutcomeCancelled
	case known:
		return failure.Code
	}
	return metrics.Other
}

// spent are the tokens of an answer, also of one that is of no use.
func spent(resp *adkmodel.LLMResponse, err error) metrics.Tokens {
	var u *genai.GenerateContentResponseUsageMetadata
	if failure, ok := AsError(err); ok {
		u = failure.Usage
	} else if resp != nil {
		u = resp.UsageMetadata
	}
	if u == nil {
		return metrics.Tokens{}
	}
	return metrics.Tokens{
		Input: int64(u.PromptTokenCount), Output: int64(u.CandidatesTokenCount),
		Thinking: int64(u.ThoughtsTokenCount), CachedInput: int64(u.CachedContentTokenCount),
	}
}
