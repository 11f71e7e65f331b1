// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"sync"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// spending counts what an agent and its steps did in a run. Each attempt counts what it replays and what it adds, so the
// sums cover all attempts.
type spending struct {
	mu     sync.Mutex
	calls  int
	tokens int64
	costs  map[string]int64 // billionths, by currency
}

// countCalls counts calls of tools, before they begin. It returns an error if an agent would exceed its limit.
func (s *stage) countCalls(calls int) error {
	for ; s != nil; s = s.within {
		s.spent.mu.Lock()
		s.spent.calls += calls
		exceeded := s.spent.calls > s.agent.Limits.ToolCalls && s.agent.Limits.ToolCalls > 0
		s.spent.mu.Unlock()
		if exceeded {
			return limitFailure(s.agent, "tool_calls", fmt.Sprintf("made more than %d tool calls", s.agent.Limits.ToolCalls))
		}
	}
	return nil
}

// countUsage counts the usage of a request to a model. price returns its cost, nil without a known price.
func (s *stage) countUsage(model string, usage dispatchapi.TokenUsage, price func(string, dispatchapi.TokenUsage) *dispatchapi.Cost) {
	for ; s != nil; s = s.within {
		var cost *dispatchapi.Cost
		if s.agent.Limits.Cost != "" {
			cost = price(model, usage)
		}
		s.spent.mu.Lock()
		s.spent.tokens += usage.TotalTokens
		if cost != nil {
			if s.spent.costs == nil {
				s.spent.costs = map[string]int64{}
			}
			s.spent.costs[cost.Currency] += cost.Nanos
		}
		s.spent.mu.Unlock()
	}
}

// admitRequest returns an error if an agent has spent its limit, so that no further model request may be sent.
func (s *stage) admitRequest() error {
	for ; s != nil; s = s.within {
		limits := s.agent.Limits
		nanos, currency := limits.CostLimit()
		s.spent.mu.Lock()
		tokens, cost, hasOther := s.spent.tokens, s.spent.costs[currency], len(s.spent.costs) > 1
		if _, has := s.spent.costs[currency]; !has {
			hasOther = len(s.spent.costs) > 0
		}
		s.spent.mu.Unlock()
		switch {
		case limits.Tokens > 0 && tokens >= limits.Tokens:
			return limitFailure(s.agent, "tokens", fmt.Sprintf("used %d tokens", tokens))
		case nanos > 0 && cost >= nanos:
			return limitFailure(s.agent, "cost", "spent "+limits.Cost)
		case nanos > 0 && hasOther:
			return &failure{code: runerror.RunLimitExceeded, message: fmt.Sprintf(
				"agent %q has a limit in %s (limits.cost), but the prices of its models have another currency; use their currency", s.agent.Name, currency)}
		}
	}
	return nil
}

func limitFailure(agent *bundle.Agent, key, did string) *failure {
	return &failure{code: runerror.RunLimitExceeded, message: fmt.Sprintf("agent %q %s in this run, which is its limit (limits.%s)", agent.Name, did, key)}
}
