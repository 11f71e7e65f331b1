// SPDX-License-Identifier: Apache-2.0

// Package suite runs the tests of a repository. It runs each case with the engine of production and
// the case's mocks. It stores and sends nothing: the actions of a run are kept in memory until they
// are judged. It does not need dispatch, so a build and a command line run the same tests.
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
	"github.com/agentplatform/agentplatform/runner/script"
)

// maxAtOnce limits parallel runs, because each can hold the files of its case.
const maxAtOnce = 4

// Options configure a test run.
type Options struct {
	// Project has the suites. Check found no problems in it.
	Project *bundle.Project
	// Only selects the cases of an agent; nil selects all.
	Only func(agent string, c *bundle.Case) bool
	// Models answer requests without a mock.
	Models engine.Models
	// Variables are engine.Config's.
	Variables func() (runnerconfig.Variables, error)
	// Prices are engine.Config's.
	Prices func() (runnerconfig.Prices, error)
	// Tools are the built-in tools; nil means the tools of the engine.
	Tools []engine.Tool
	// Timeout limits all runs together; 0 for no limit.
	Timeout time.Duration
	// Ended is called for each ended case, one at a time; optional.
	Ended func(Progress)
	// Now is the clock for the duration of runs; nil means time.Now.
	Now func() time.Time
}

// Progress is an ended case and the total progress.
type Progress struct {
	Result
	Done, Failed, Total int
}

// Result is the result of a case.
type Result struct {
	// Agent is the name of the tested agent.
	Agent string
	Case  *bundle.Case
	// Passed is true if enough runs passed.
	Passed    bool
	Successes int
	// Duration and Usage are totals of all its runs.
	Duration time.Duration
	Usage    dispatchapi.TokenUsage
	// Costs are totals of all its runs by day and currency.
	Costs dispatchapi.DayCosts
	// Run is the number of the first failed run, from 1, and Findings are its findings; empty if
	// all runs passed. Notes are the rejected calls and the errors of scripts in that run.
	Run      int
	Findings []Finding
	Notes    []string
}

// Finding is a difference from the expected result.
type Finding struct {
	// At is the position of the expectation in the repository.
	At       bundle.Position
	Expected string
	Got      string
}

// Run runs all cases and returns the results sorted by agent and name. It returns the error of ctx,
// or of a repository that Check rejects. A failed case is no error.
func Run(ctx context.Context, opts Options) ([]Result, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	scripts, err := script.NewPool(script.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing scripts: %w", err)
	}
	defer scripts.Close()
	trials, err := prepareAll(opts, scripts)
	if err != nil {
		return nil, err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if opts.Timeout > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, opts.Timeout, &lateError{fmt.Sprintf("the %s for all tests together were over", opts.Timeout)})
	}
	defer cancel()
	all := &board{ended: opts.Ended, total: len(trials)}
	var runs errgroup.Group
	runs.SetLimit(maxAtOnce)
	for _, t := range trials {
		for number := range t.Runs {
			runs.Go(func() error {
				t.outcomes[number] = t.runOnce(bounded, number+1)
				all.countRun(t)
				return nil
			})
		}
	}
	_ = runs.Wait() // no error is possible: every end is an outcome
	if ctx.Err() != nil {
		return nil, fmt.Errorf("running the tests: %w", context.Cause(ctx))
	}
	slices.SortFunc(all.results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Case.Name, b.Case.Name))
	})
	return all.results, nil
}

// board collects the results of cases whose runs have ended.
type board struct {
	ended func(Progress)
	total int

	mu      sync.Mutex
	failed  int
	results []Result
}

// countRun counts an ended run of a case.
func (b *board) countRun(t *trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.done++; t.done < t.Runs {
		return
	}
	r := t.caseResult()
	b.results = append(b.results, r)
	if !r.Passed {
		b.failed++
	}
	if b.ended != nil {
		b.ended(Progress{Result: r, Done: len(b.results), Failed: b.failed, Total: b.total})
	}
}

// caseResult returns the result of a case.
func (t *trial) caseResult() Result {
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
			r.Run, r.Findings, r.Notes = i+1, o.findings, o.notes
		}
	}
	r.Passed = r.Successes >= requiredPasses(t.Runs, t.SuccessThreshold)
	return r
}

// addCosts adds costs to a list that is sorted by day and currency.
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

// requiredPasses returns the number of runs that must pass.
func requiredPasses(runs int, threshold float64) int {
	const rounding = 1e-9
	return int(math.Ceil(threshold*float64(runs) - rounding))
}
