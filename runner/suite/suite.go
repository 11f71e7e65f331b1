// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// maxAtOnce is how many runs go on at once: each may hold the files of its case.
const maxAtOnce = 4

// Options say what to test, and with what.
type Options struct {
	// Project has the suites; Check found nothing in it.
	Project *bundle.Project
	// Only says which cases of an agent are run; nil means all.
	Only func(agent string, c *bundle.Case) bool
	// Models are asked where no mock stands in for them.
	Models engine.Models
	// Variables are engine.Config's.
	Variables func() (runnerconfig.Variables, error)
	// Prices are engine.Config's.
	Prices func() (runnerconfig.Prices, error)
	// Tools are the built-in tools; nil means those of the engine.
	Tools []engine.Tool
	// Timeout is of all runs together; 0 for none.
	Timeout time.Duration
	// Ended is told each case that ended, one at a time; nil tells nobody.
	Ended func(Progress)
	// Now is the clock by which runs are timed; nil means time.Now.
	Now func() time.Time
}

// Progress is a case that ended, and how far all are.
type Progress struct {
	Result
	Done, Failed, Total int
}

// Result is what became of a case.
type Result struct {
	// Agent is the name of the agent that was tested.
	Agent string
	Case  *bundle.Case
	// Passed: as many runs as the case wants were as expected.
	Passed    bool
	Successes int
	// Duration and Usage are of all its runs together.
	Duration time.Duration
	Usage    dispatchapi.TokenUsage
	// Costs are of all its runs together, by the days on which they began and by currency.
	Costs dispatchapi.DayCosts
	// Run is the number of the first run that was not as expected, from 1, and Findings
	// what was not in it; empty where all were.
	Run      int
	Findings []Finding
}

// Finding is something that is not as expected.
type Finding struct {
	// At is where the repository expects it.
	At       bundle.Position
	Expected string
	Got      string
}

// Run runs all cases and answers by agent and name. The error is that of ctx, or of a
// repository that Check refuses; a case that fails is none.
func Run(ctx context.Context, opts Options) ([]Result, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	trials, err := prepareAll(opts)
	if err != nil {
		return nil, err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if opts.Timeout > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, opts.Timeout, &lateError{fmt.Sprintf("the %s that all tests together may take were over", opts.Timeout)})
	}
	defer cancel()
	all := &board{ended: opts.Ended, total: len(trials)}
	var runs errgroup.Group
	runs.SetLimit(maxAtOnce)
	for _, t := range trials {
		for number := range t.Runs {
			runs.Go(func() error {
				t.outcomes[number] = t.try(bounded, number+1)
				all.count(t)
				return nil
			})
		}
	}
	_ = runs.Wait() // none has an error: whatever happens is an outcome
	if ctx.Err() != nil {
		return nil, fmt.Errorf("running the tests: %w", context.Cause(ctx))
	}
	slices.SortFunc(all.results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Case.Name, b.Case.Name))
	})
	return all.results, nil
}

// board collects the results of the cases whose runs have all ended.
type board struct {
	ended func(Progress)
	total int

	mu      sync.Mutex
	failed  int
	results []Result
}

// count counts a run of a case that ended.
func (b *board) count(t *trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.done++; t.done < t.Runs {
		return
	}
	r := t.result()
	b.results = append(b.results, r)
	if !r.Passed {
		b.failed++
	}
	if b.ended != nil {
		b.ended(Progress{Result: r, Done: len(b.results), Failed: b.failed, Total: b.total})
	}
}

// result sums a case up.
func (t *trial) result() Result {
	r := Result{Agent: t.agent, Case: t.Case}
	for i, o := range t.outcomes {
		r.Duration += o.took
		r.Usage.InputTokens += o.usage.InputTokens
		r.Usage.OutputTokens += o.usage.OutputTokens
		r.Usage.ThinkingTokens += o.usage.ThinkingTokens
		r.Usage.CachedInputTokens += o.usage.CachedInputTokens
		r.Usage.TotalTokens += o.usage.TotalTokens
		r.Costs = addCosts(r.Costs, o.costs...)
		switch {
		case len(o.findings) == 0:
			r.Successes++
		case r.Run == 0:
			r.Run, r.Findings = i+1, o.findings
		}
	}
	r.Passed = r.Successes >= enough(t.Runs, t.SuccessThreshold)
	return r
}

// addCosts adds costs to others, which are in the order of their days and currencies.
func addCosts(costs dispatchapi.DayCosts, more ...dispatchapi.DayCost) dispatchapi.DayCosts {
	for _, one := range more {
		at, found := slices.BinarySearchFunc(costs, one, func(a, b dispatchapi.DayCost) int {
			return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Currency, b.Currency))
		})
		if !found {
			costs = slices.Insert(costs, at, one)
			continue
		}
		costs[at].Calls += one.Calls
		costs[at].Nanos += one.Nanos
	}
	return costs
}

// enough is how many of the runs must be as expected.
func enough(runs int, threshold float64) int {
	const rounding = 1e-9
	return int(math.Ceil(threshold*float64(runs) - rounding))
}
