// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// drawCalls draws the model calls of a run that was queued at that time, some of them on the next
// day.
func drawCalls(c dice, at time.Time) (calls []store.Calls) {
	for range c.IntN(4) {
		cost := drawOne(c, store.Cost{}, store.Cost{Currency: store.USD, Nanos: c.Int64N(1e12)}, store.Cost{Currency: store.EUR, Nanos: c.Int64N(1e12)})
		calls = append(calls, store.Calls{
			Model: drawOne(c, "openai/one", "openai/two"), Day: store.DayOf(at.Add(time.Duration(c.Int64N(int64(30 * time.Hour))))), Number: 1,
			Usage: store.TokenUsage{InputTokens: c.Int64N(100), OutputTokens: c.Int64N(100), ThinkingTokens: 3, CachedInputTokens: 2, TotalTokens: 9}, Cost: cost,
		})
	}
	return calls
}

// writeCalls inserts the calls of a run as its journal does.
func (p pastRun) writeCalls(w *world) {
	for i, call := range p.calls {
		w.execStatement(`INSERT INTO model_calls (project_id, run_id, sequence, model, input_tokens, output_tokens, thinking_tokens,
				cached_input_tokens, total_tokens, currency, cost_nanos, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, w.project.ID.String(), p.id.String(), i+1, call.Model, call.Usage.InputTokens,
			call.Usage.OutputTokens, call.Usage.ThinkingTokens, call.Usage.CachedInputTokens, call.Usage.TotalTokens, string(call.Cost.Currency),
			call.Cost.Nanos, call.Day.Begin().Add(24*time.Hour-time.Microsecond).UnixMicro())
	}
}

// sumCalls adds up calls one by one.
func sumCalls(calls []store.Calls) (out []store.Calls) {
	for _, call := range calls {
		at := slices.IndexFunc(out, func(o store.Calls) bool {
			return o.Model == call.Model && o.Day == call.Day && o.Cost.Currency == call.Cost.Currency
		})
		if at < 0 {
			out = append(out, call)
			continue
		}
		o := &out[at]
		o.Number += call.Number
		o.Cost.Nanos += call.Cost.Nanos
		o.Usage.InputTokens += call.Usage.InputTokens
		o.Usage.OutputTokens += call.Usage.OutputTokens
		o.Usage.ThinkingTokens += call.Usage.ThinkingTokens
		o.Usage.CachedInputTokens += call.Usage.CachedInputTokens
		o.Usage.TotalTokens += call.Usage.TotalTokens
	}
	slices.SortFunc(out, func(a, b store.Calls) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Day, b.Day), cmp.Compare(a.Cost.Currency, b.Cost.Currency))
	})
	return out
}

// answered returns a journal entry with an answer of this cost.
func answered(sequence, nanos int64) store.JournalEntry {
	cost := store.Cost{}
	if nanos > 0 {
		cost = store.Cost{Currency: store.USD, Nanos: nanos}
	}
	return store.JournalEntry{Sequence: sequence, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{}`), Usage: &store.ModelUsage{
		Model: "openai/one", TokenUsage: store.TokenUsage{InputTokens: 2, OutputTokens: 1, TotalTokens: 3}, Cost: cost,
	}}
}

// endCostlyRuns ends runs with costs.
func (w *world) endCostlyRuns(n int) (runs []uuid.UUID) {
	w.singles(n)
	for _, c := range w.claim(n, lease) {
		done := completed(c)
		done.Journal = []store.JournalEntry{answered(1, 7)}
		w.NoError(w.complete(done))
		runs = append(runs, c.Run.ID)
	}
	return runs
}

// callsOfAgent returns the calls of the first agent in its statistics, without days.
func (w *world) callsOfAgent() (calls []store.Calls) {
	return ofNoDay(w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"}).Calls)
}

func ofNoDay(calls []store.Calls) (out []store.Calls) {
	for _, c := range calls {
		c.Day = 0
		out = append(out, c)
	}
	return sumCalls(out)
}

func costing(number, nanos int64) store.Calls {
	c := store.Calls{Model: "openai/one", Number: number, Usage: store.TokenUsage{InputTokens: 2 * number, OutputTokens: number, TotalTokens: 3 * number}}
	if nanos > 0 {
		c.Cost = store.Cost{Currency: store.USD, Nanos: nanos}
	}
	return c
}

var usagePromises = []promise{
	{"a model call is counted once, over repeats and resumes", withAgent(func(w *world) {
		w.singles(1)
		run := w.claim(1, lease)[0]
		key := run.Run.Key()
		first := []store.JournalEntry{answered(1, 5), answered(2, 0)}
		for range 2 {
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(run), first))
		}
		calls := w.runCalls(key)
		w.Equal([]store.Calls{costing(1, 0), costing(1, 5)}, ofNoDay(calls))
		w.LessOrEqual(w.readClock().Sub(calls[0].Day.Begin()), 2*aDay)
		w.Empty(w.callsOfAgent(), "rollups cover ended runs")
		w.NoError(w.s.Release(w.ctx, leaseOf(run), 0))
		run = w.claim(1, lease)[0]
		done := completed(run)
		done.Journal = []store.JournalEntry{answered(3, 6)}
		for range 2 {
			w.NoError(w.complete(done))
		}
		want := []store.Calls{costing(1, 0), costing(2, 11)}
		calls = w.runCalls(key)
		w.Equal(want, ofNoDay(calls))
		w.Equal(want, w.callsOfAgent())
		w.rollUpAll(1)
		w.Equal(want, w.callsOfAgent())
		w.NotEmpty(w.rebuild())
		w.Equal(want, w.callsOfAgent())
	})},
	{"failed and cancelled runs have costs", withAgent(func(w *world) {
		w.singles(2)
		claimed := w.claim(2, lease)
		for i, run := range claimed {
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(run), []store.JournalEntry{answered(1, int64(i+1))}))
		}
		failed := completed(claimed[0])
		failed.Status, failed.ErrorCode = store.RunFailed, "x"
		w.NoError(w.complete(failed))
		w.NoError(w.s.Cancel(w.ctx, claimed[1].Run.Key(), "x", "x"))
		for range 2 {
			w.Equal([]store.Calls{costing(2, 3)}, w.callsOfAgent())
			w.rollUpRows(10)
		}
	})},
	{"an erased run keeps its cost, rolled up or not", withAgent(func(w *world) {
		runs := w.endCostlyRuns(2)
		want := []store.Calls{costing(2, 14)}
		w.NoError(w.s.EraseRun(w.ctx, w.key(runs[0])))
		w.Equal(want, w.callsOfAgent())
		w.rollUpAll(10)
		w.Equal(want, w.callsOfAgent())
		w.NoError(w.s.EraseRun(w.ctx, w.key(runs[1])))
		w.NotEmpty(w.rebuild())
		w.Equal(want, w.callsOfAgent())
	})},
	{"rollups stay after their calls are deleted", withAgent(func(w *world) {
		w.endCostlyRuns(2)
		w.rollUpAll(10)
		w.countAllStored()
		w.forgets()
		w.untilTrimmed(100)
		w.Zero(w.queryCount(`SELECT count(*) FROM model_calls WHERE project_id = $1`))
		w.Equal([]store.Calls{costing(2, 14)}, w.callsOfAgent())
	})},
	{"with very many models the most expensive stay separate", withAgent(func(w *world) {
		now := w.readClock()
		const runs, each = 5, store.MaxRunModels + 8
		var nanos int64
		for i := range runs {
			run := pastRun{id: store.Stamp(newUUIDv7(), now.UnixMicro(), i), environment: w.environment.ID, agent: "first", status: store.RunCompleted}
			for m := range each {
				call := store.Calls{Model: fmt.Sprintf("openai/%d-%d", i, m), Day: store.DayOf(now), Number: 1, Usage: store.TokenUsage{InputTokens: 1}}
				call.Cost = store.Cost{Currency: store.USD, Nanos: int64(1000*i + m)}
				nanos += call.Cost.Nanos
				run.calls = append(run.calls, call)
			}
			run.insertInto(w)
			calls := w.runCalls(w.key(run.id))
			w.Len(calls, store.MaxRunModels+1)
			other := calls[slices.IndexFunc(calls, func(c store.Calls) bool { return c.Model == store.OtherModels })]
			w.EqualValues(8, other.Number)
			w.EqualValues(8*1000*i+28, other.Cost.Nanos)
		}
		told := func() {
			calls := w.callsOfAgent()
			w.Len(calls, store.MaxModels+1)
			number, sum := int64(0), int64(0)
			for _, c := range calls {
				number, sum = number+c.Number, sum+c.Cost.Nanos
				if c.Model != store.OtherModels {
					w.False(strings.HasPrefix(c.Model, "openai/0-"), "these have the lowest cost")
				}
			}
			w.EqualValues(runs*each, number)
			w.Equal(nanos, sum)
		}
		told()
		w.rollUpAll(1)
		told()
		w.EqualValues(runs*(store.MaxRunModels)+1, w.queryCount(`SELECT count(*) FROM usage_rollups WHERE project_id = $1 AND grain = 'hour'`))
		w.NotEmpty(w.rebuild())
		told()
		w.EqualValues(runs*each, w.queryCount(`SELECT count(*) FROM model_calls WHERE project_id = $1`), "which keep their names")
	})},
	{"the separate models of a run are the same before and after the rollup", withAgent(func(w *world) {
		now := w.readClock()
		for i, models := range []int{store.MaxRunModels + 8, 3, 1} {
			run := pastRun{id: store.Stamp(newUUIDv7(), now.UnixMicro(), i), environment: w.environment.ID, agent: "first", status: store.RunCompleted}
			for m := range models {
				call := store.Calls{Model: fmt.Sprintf("openai/%d", m), Day: store.DayOf(now), Number: 1, Usage: store.TokenUsage{InputTokens: 1}}
				call.Cost = store.Cost{Currency: store.USD, Nanos: int64(1 + m)}
				run.calls = append(run.calls, call)
			}
			run.insertInto(w)
		}
		before := w.callsOfAgent()
		w.Len(before, 3+store.MaxRunModels+1, "the first has also called models 0 to 7, which are no longer separate")
		w.rollUpAll(1)
		w.Equal(before, w.callsOfAgent())
	})},
	{"sums above the maximum are the maximum", withAgent(func(w *world) {
		now := w.readClock()
		dear := store.Calls{Model: "openai/one", Day: store.DayOf(now), Number: 1, Usage: store.TokenUsage{InputTokens: 1 << 60, OutputTokens: 3}, Cost: store.Cost{Currency: store.USD, Nanos: 1 << 60}}
		for i := range 3 {
			pastRun{
				id: store.Stamp(newUUIDv7(), now.UnixMicro(), i), environment: w.environment.ID, agent: "first", status: store.RunCompleted,
				usage: store.TokenUsage{InputTokens: 1 << 62}, calls: slices.Repeat([]store.Calls{dear}, 9),
			}.insertInto(w)
		}
		want := []store.Calls{{Model: "openai/one", Day: dear.Day, Number: 27, Usage: store.TokenUsage{InputTokens: store.MaxSum, OutputTokens: 81}, Cost: store.Cost{Currency: store.USD, Nanos: store.MaxSum}}}
		told := func() {
			s := w.runStatistics(store.StatisticsQuery{Environment: w.environment.Key(), AgentName: "first"})
			w.Equal(want, s.Calls)
			w.EqualValues(store.MaxSum, s.Usage.InputTokens)
		}
		told()
		w.rollUpAll(1)
		told()
		w.NotEmpty(w.rebuild())
		told()
	})},
	{"usage reported by a runner is limited", func(w *world) {
		u := store.ModelUsage{Model: "m", TokenUsage: store.TokenUsage{InputTokens: -1, TotalTokens: store.MaxTokens + 1}}
		u.Cost = store.Cost{Currency: "XXX", Nanos: 5}
		w.Zero(u.Bounded().Cost)
		w.Zero(u.Bounded().InputTokens)
		w.EqualValues(store.MaxTokens, u.Bounded().TotalTokens)
		for nanos, want := range map[int64]int64{-1: 0, 7: 7, store.MaxCost + 1: store.MaxCost} {
			u.Cost = store.Cost{Currency: store.EUR, Nanos: nanos}
			w.Equal(store.Cost{Currency: store.EUR, Nanos: want}, u.Bounded().Cost)
		}
	}},
	{"exchange rates belong to their days", func(w *world) {
		w.ErrorIs(errorOf(w.s.LatestRate(w.ctx, store.USD)), store.ErrNotFound)
		rate := func(day store.Day, micros int64) store.Rate {
			return store.Rate{Currency: store.USD, Day: day, Micros: micros}
		}
		for range 2 {
			w.NoError(w.s.PutRates(w.ctx, []store.Rate{rate(20, 1_100_000), rate(21, 1_200_000), rate(23, 1_300_000), {Currency: "CHF", Day: 24, Micros: 1}}))
		}
		w.NoError(w.s.PutRates(w.ctx, []store.Rate{rate(21, 1_250_000)}), "a bank may correct a rate")
		w.NoError(w.s.PutRates(w.ctx, nil))
		rates, err := w.s.Rates(w.ctx, store.USD, 21, 23)
		w.NoError(err)
		w.Equal([]store.Rate{rate(21, 1_250_000), rate(23, 1_300_000)}, rates)
		day, err := w.s.LatestRate(w.ctx, store.USD)
		w.NoError(err)
		w.EqualValues(23, day)
	}},
}
