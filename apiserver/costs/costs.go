// SPDX-License-Identifier: Apache-2.0

// Package costs computes and converts the costs of model calls, which runs, agents and tests of deployments show.
package costs

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// Reader computes costs for the responses of other resources.
type Reader struct {
	Store Store
}

// Store has the methods of the store that costs use.
type Store interface {
	store.History
	// Rates is a method of store.Rates.
	Rates(ctx context.Context, currency store.Currency, from, to store.Day) ([]store.Rate, error)
}

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
	return rest.Enumeration(r, "CostUnknown", "Why there is no cost: no model has a known price; the prices are in several currencies (use the parameter "+
		"convert_costs_to if there is one); or the exchange rate of a day is unknown.", string(unknownPrice), string(differing), string(unknownRate))
}

// Costing is what calls of models have cost.
type Costing struct {
	Cost          rest.Null[Cost]        `json:"cost" doc:"Cost of the model calls whose prices are known; null if none is known and if cost_unknown gives a reason."`
	UnpricedCalls *int64                 `json:"unpriced_calls" doc:"Number of model calls without a known price, which the cost leaves out. Null if costs are not available: in lists of runs, for open runs, and if the calls are no longer stored."`
	CostUnknown   rest.Null[CostUnknown] `json:"cost_unknown" doc:"Why the cost is null; null if there is a cost, if no model was called, and if unpriced_calls is null."`
}

// ModelUsage is what calls of one model have used.
type ModelUsage struct {
	Model      string     `json:"model" doc:"The model's reference, provider/model; other for the remaining models together." example:"openai/gpt-5"`
	Calls      int64      `json:"calls" doc:"Number of calls."`
	TokenUsage TokenUsage `json:"token_usage" doc:"The tokens of these calls."`
	Costing
}

// Doc describes the type.
func (ModelUsage) Doc() string { return "The usage of one model by runs." }

// CostsQuery says in which currency costs are told.
type CostsQuery struct {
	ConvertCostsTo Currency `query:"convert_costs_to" doc:"Converts costs to this currency with the reference rate of the European Central Bank on the day of each call. Default: the currency of the prices."`
}

// maxRateAge is how many days before a call the rate may be of by which its cost is converted: no
// weekend and no holidays last as long.
const maxRateAge = 10

// Exchange converts amounts of money; the zero one converts none.
type Exchange struct {
	to    store.Currency
	rates []store.Rate // dollars for a euro, oldest first
}

// NewExchange returns an exchange to a currency at the rates of days, oldest first.
func NewExchange(to store.Currency, rates ...store.Rate) Exchange {
	return Exchange{to: to, rates: rates}
}

// Exchange reads the rates by which the cost of calls is converted.
func (s *Reader) Exchange(ctx context.Context, to Currency, calls []store.Calls) (Exchange, error) {
	e := Exchange{to: store.Currency(to)}
	foreign := slices.DeleteFunc(slices.Clone(calls), func(c store.Calls) bool {
		return to == "" || c.Cost.Currency == "" || c.Cost.Currency == e.to
	})
	if len(foreign) == 0 {
		return e, nil
	}
	byDay := func(a, b store.Calls) int { return cmp.Compare(a.Day, b.Day) }
	var err error
	e.rates, err = s.Store.Rates(ctx, store.USD, slices.MinFunc(foreign, byDay).Day-maxRateAge, slices.MaxFunc(foreign, byDay).Day)
	if err != nil {
		return e, fmt.Errorf("reading exchange rates: %w", err)
	}
	return e, nil
}

// on is the rate of a day: the last one that the bank has told until then.
func (e Exchange) on(day store.Day) (micros int64, known bool) {
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
func (e Exchange) convert(of store.Cost, day store.Day) (store.Cost, bool) {
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

// Costing adds up what calls have cost.
func (e Exchange) Costing(calls []store.Calls) (out Costing) {
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
		out.CostUnknown = rest.Null[CostUnknown]{Value: &unknown}
		return out
	}
	for currency, nanos := range sums {
		cost := NewCost(store.Cost{Currency: currency, Nanos: nanos})
		out.Cost = rest.Null[Cost]{Value: &cost}
	}
	return out
}

// ByModel are the numbers of each model.
func (e Exchange) ByModel(calls []store.Calls) []ModelUsage {
	out := []ModelUsage{}
	for len(calls) > 0 { // they are in the order of their models
		n := slices.IndexFunc(calls, func(c store.Calls) bool { return c.Model != calls[0].Model })
		if n < 0 {
			n = len(calls)
		}
		of := ModelUsage{Costing: e.Costing(calls[:n]), Model: calls[0].Model}
		var usage store.TokenUsage
		for _, c := range calls[:n] {
			of.Calls, usage = of.Calls+c.Number, usage.Plus(c.Usage)
		}
		of.TokenUsage = TokenUsage(usage)
		out, calls = append(out, of), calls[n:]
	}
	return out
}

// RunCosting is what a run has cost that has ended: until then more may come, and nothing is told.
func (s *Reader) RunCosting(ctx context.Context, run store.Run) (Costing, error) {
	if run.EndedAt == nil {
		return Costing{}, nil
	}
	calls, err := s.Store.RunCalls(ctx, run.Key())
	if err != nil {
		return Costing{}, fmt.Errorf("reading what run %s cost: %w", run.ID, err)
	}
	return Exchange{}.CostingOf(calls, TokenUsage(run.Usage)), nil
}

// CostingOf tells nothing of what has used tokens and of which no calls are stored, or not any more.
func (e Exchange) CostingOf(calls []store.Calls, used TokenUsage) Costing {
	if len(calls) == 0 && used.TotalTokens > 0 {
		return Costing{}
	}
	return e.Costing(calls)
}

// TokenUsage counts model tokens.
type TokenUsage struct {
	InputTokens       int64 `json:"input_tokens" doc:"Tokens that the models read."`
	OutputTokens      int64 `json:"output_tokens" doc:"Tokens that the models wrote."`
	ThinkingTokens    int64 `json:"thinking_tokens" doc:"Tokens that the models used for thinking."`
	CachedInputTokens int64 `json:"cached_input_tokens" doc:"Input tokens that were read from a cache."`
	TotalTokens       int64 `json:"total_tokens" doc:"All tokens."`
}

// Doc describes the type.
func (TokenUsage) Doc() string { return "Counts of model tokens." }

// Cost is an amount of money.
type Cost struct {
	Currency Currency `json:"currency" doc:"The currency."`
	Amount   float64  `json:"amount" doc:"The amount in this currency." example:"0.0042"`
}

// Doc describes the type.
func (Cost) Doc() string { return "An amount of money." }

// NewCost returns a cost as it is shown.
func NewCost(cost store.Cost) Cost {
	const billion = 1e9
	return Cost{Currency: Currency(cost.Currency), Amount: float64(cost.Nanos) / billion}
}

// Currency is an ISO 4217 currency code.
type Currency string

// Schema describes the type.
func (Currency) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "Currency", "An ISO 4217 currency code.", "EUR", "USD")
}
