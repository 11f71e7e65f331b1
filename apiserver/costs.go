// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/store"
)

// CostUnknown is why no cost is told.
type CostUnknown string

// Reasons why no cost is told.
const (
	unknownPrice CostUnknown = "no_price"
	differing    CostUnknown = "currencies_differ"
	unknownRate  CostUnknown = "no_rate"
)

// Schema describes the type.
func (CostUnknown) Schema(r huma.Registry) *huma.Schema {
	return enumeration(r, "CostUnknown", "Why no cost is told: of none of the models a price is known, their prices are in several currencies "+
		"(where there is a parameter convert_costs_to, ask for one by it), or for the day of some call no exchange rate is known.", string(unknownPrice), string(differing), string(unknownRate))
}

// Costing is what calls of models have cost.
type Costing struct {
	Cost          Null[Cost]        `json:"cost" doc:"What calls of models cost, as far as their prices are known; null where none is known, and where cost_unknown says why."`
	UnpricedCalls *int64            `json:"unpriced_calls" doc:"How many calls of models are not in the cost, because no price of theirs is known; null where nothing is told of costs: in lists of runs, of a run that has not ended, and of what has used tokens and whose calls are not stored any more."`
	CostUnknown   Null[CostUnknown] `json:"cost_unknown" doc:"Why the cost is null; null where it is not, where no model was called, and where unpriced_calls is null."`
}

// ModelUsage is what calls of one model have used.
type ModelUsage struct {
	Model      string     `json:"model" doc:"The model's reference, provider/model; other of the models that are not told apart." example:"openai/gpt-5"`
	Calls      int64      `json:"calls" doc:"How often it was called."`
	TokenUsage TokenUsage `json:"token_usage" doc:"The tokens of these calls."`
	Costing
}

// CostsQuery says in which currency costs are told.
type CostsQuery struct {
	ConvertCostsTo Currency `query:"convert_costs_to" doc:"Converts costs to this currency, by the European Central Bank's reference rate of the day of each call; without it they are in that of the prices."`
}

// maxRateAge is how many days before a call the rate may be of by which its cost is converted: no
// weekend and no holidays last as long.
const maxRateAge = 10

// exchange converts amounts of money; the zero one converts none.
type exchange struct {
	to    store.Currency
	rates []store.Rate // dollars for a euro, oldest first
}

// exchange reads the rates by which the cost of calls is converted.
func (s *Server) exchange(ctx context.Context, to Currency, calls []store.Calls) (exchange, error) {
	e := exchange{to: store.Currency(to)}
	foreign := slices.DeleteFunc(slices.Clone(calls), func(c store.Calls) bool {
		return to == "" || c.Cost.Currency == "" || c.Cost.Currency == e.to
	})
	if len(foreign) == 0 {
		return e, nil
	}
	byDay := func(a, b store.Calls) int { return cmp.Compare(a.Day, b.Day) }
	var err error
	e.rates, err = s.store.Rates(ctx, store.USD, slices.MinFunc(foreign, byDay).Day-maxRateAge, slices.MaxFunc(foreign, byDay).Day)
	if err != nil {
		return e, fmt.Errorf("reading exchange rates: %w", err)
	}
	return e, nil
}

// on is the rate of a day: the last one that the bank has told until then.
func (e exchange) on(day store.Day) (micros int64, known bool) {
	at, found := slices.BinarySearchFunc(e.rates, day, func(r store.Rate, day store.Day) int { return cmp.Compare(r.Day, day) })
	if !found {
		at--
	}
	if at < 0 || e.rates[at].Day < day-maxRateAge {
		return 0, false
	}
	return e.rates[at].Micros, true
}

// convert is a cost of a day in the currency that is asked for; false without a rate.
func (e exchange) convert(of store.Cost, day store.Day) (store.Cost, bool) {
	if e.to == "" || of.Currency == e.to {
		return of, true
	}
	rate, known := e.on(day)
	if !known {
		return store.Cost{}, false
	}
	const micros = 1_000_000
	times, by := rate, int64(micros)
	if of.Currency == store.USD {
		times, by = by, times
	}
	n := new(big.Int).Mul(big.NewInt(of.Nanos), big.NewInt(times))
	n.Div(n.Add(n, big.NewInt(by/2)), big.NewInt(by)) // to the nearest
	if !n.IsInt64() {
		n.SetInt64(store.MaxSum)
	}
	return store.Cost{Currency: e.to, Nanos: n.Int64()}, true
}

// costing adds up what calls have cost.
func (e exchange) costing(calls []store.Calls) (out Costing) {
	unpriced := int64(0)
	out.UnpricedCalls = &unpriced
	sums, unknown := map[store.Currency]int64{}, CostUnknown("")
	for _, c := range calls {
		if c.Cost.Currency == "" {
			unpriced += c.Number
			continue
		}
		cost, known := e.convert(c.Cost, c.Day)
		if !known {
			unknown = unknownRate
			continue
		}
		sums[cost.Currency] = store.Sum(sums[cost.Currency], cost.Nanos)
	}
	switch {
	case unknown != "":
	case len(sums) > 1:
		unknown = differing
	case len(sums) == 0 && unpriced > 0:
		unknown = unknownPrice
	}
	if unknown != "" {
		out.CostUnknown = Null[CostUnknown]{Value: &unknown}
		return out
	}
	for currency, nanos := range sums {
		const billion = 1e9
		out.Cost = Null[Cost]{Value: &Cost{Currency: Currency(currency), Amount: float64(nanos) / billion}}
	}
	return out
}

// byModel are the numbers of each model.
func (e exchange) byModel(calls []store.Calls) []ModelUsage {
	out := []ModelUsage{}
	for len(calls) > 0 { // they are in the order of their models
		n := slices.IndexFunc(calls, func(c store.Calls) bool { return c.Model != calls[0].Model })
		if n < 0 {
			n = len(calls)
		}
		of := ModelUsage{Costing: e.costing(calls[:n]), Model: calls[0].Model}
		var usage store.TokenUsage
		for _, c := range calls[:n] {
			of.Calls, usage = of.Calls+c.Number, usage.Plus(c.Usage)
		}
		of.TokenUsage = TokenUsage(usage)
		out, calls = append(out, of), calls[n:]
	}
	return out
}

// runCosting is what a run has cost that has ended: until then more may come, and nothing is told.
func (s *Server) runCosting(ctx context.Context, run store.Run) (Costing, error) {
	if run.EndedAt == nil {
		return Costing{}, nil
	}
	calls, err := s.store.RunCalls(ctx, run.Key())
	if err != nil {
		return Costing{}, fmt.Errorf("reading what run %s cost: %w", run.ID, err)
	}
	return exchange{}.costingOf(calls, TokenUsage(run.Usage)), nil
}

// costingOf tells nothing of what has used tokens and of which no calls are stored, or not any more.
func (e exchange) costingOf(calls []store.Calls, used TokenUsage) Costing {
	if len(calls) == 0 && used.TotalTokens > 0 {
		return Costing{}
	}
	return e.costing(calls)
}

// recordedResult is a test result with what its runs cost, as it was recorded.
type recordedResult struct {
	TestResult
	Costs []struct {
		Day, Calls, Nanos int64
		Currency          store.Currency
	} `json:"costs"`
}

func (r recordedResult) calls() (calls []store.Calls) {
	for _, c := range r.Costs {
		calls = append(calls, store.Calls{Day: store.Day(c.Day), Number: c.Calls, Cost: store.Cost{Currency: c.Currency, Nanos: c.Nanos}})
	}
	return calls
}

// recordedResults are test results as they were recorded, by agent and test.
func recordedResults(list json.RawMessage) []recordedResult {
	out := recorded[recordedResult](list)
	slices.SortStableFunc(out, func(a, b recordedResult) int {
		return cmp.Or(compareNames(a.AgentName, b.AgentName), compareNames(a.TestName, b.TestName))
	})
	return out
}

// testResults shows them.
func (e exchange) testResults(list []recordedResult) []TestResult {
	out := make([]TestResult, len(list))
	for i, r := range list {
		out[i] = r.TestResult
		var used TokenUsage
		if r.TokenUsage.Value != nil {
			used = *r.TokenUsage.Value
		}
		out[i].Costing = e.costingOf(r.calls(), used)
		if out[i].AgentRunIDs == nil {
			out[i].AgentRunIDs = []string{}
		}
	}
	return out
}

// TestRunsInput names a deployment whose test results are listed.
type TestRunsInput struct {
	DeploymentPath
	CostsQuery
}

// listTestRuns lists what became of the test cases, by agent and test name.
func (s *Server) listTestRuns(ctx context.Context, c *caller, in *TestRunsInput) (answer[[]TestResult], error) {
	d, err := s.deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return answer[[]TestResult]{}, err
	}
	results := recordedResults(d.TestResults)
	var calls []store.Calls
	for _, r := range results {
		calls = append(calls, r.calls()...)
	}
	e, err := s.exchange(ctx, in.ConvertCostsTo, calls)
	return plainly(e.testResults(results), err)
}
