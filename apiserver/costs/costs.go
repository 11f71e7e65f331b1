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

// CostUnknown is the reason why a cost is unknown.
type CostUnknown string

// Reasons for unknown costs.
const (
	unknownPrice CostUnknown = "no_price"
	differing    CostUnknown = "currencies_differ"
	unknownRate  CostUnknown = "no_rate"
)

func (CostUnknown) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "CostUnknown", "Why there is no cost: no model has a known price; the prices are in several currencies (use the parameter "+
		"convert_costs_to if there is one); or the exchange rate of a day is unknown.", string(unknownPrice), string(differing), string(unknownRate))
}

// Costing has the tokens and the cost of model calls.
type Costing struct {
	Cost          rest.Null[Cost]        `json:"cost" doc:"Cost of the model calls whose prices are known; null if none is known and if cost_unknown gives a reason."`
	UnpricedCalls *int64                 `json:"unpriced_calls" doc:"Number of model calls without a known price, which the cost leaves out. Null if costs are not available: in lists of runs, for open runs, and if the calls are no longer stored."`
	CostUnknown   rest.Null[CostUnknown] `json:"cost_unknown" doc:"Why the cost is null; null if there is a cost, if no model was called, and if unpriced_calls is null."`
}

// ModelUsage is the usage of one model.
type ModelUsage struct {
	Model      string     `json:"model" doc:"The model's reference, provider/model; other for the remaining models together." example:"openai/gpt-5"`
	Calls      int64      `json:"calls" doc:"Number of calls."`
	TokenUsage TokenUsage `json:"token_usage" doc:"The tokens of these calls."`
	Costing
}

func (ModelUsage) Doc() string { return "The usage of one model by runs." }

// CostsQuery selects the currency of costs.
type CostsQuery struct {
	ConvertCostsTo Currency `query:"convert_costs_to" doc:"Converts costs to this currency with the reference rate of the European Central Bank on the day of each call. Default: the currency of the prices."`
}

// maxRateAge is the maximum age in days of an exchange rate at the time of a call. No weekend or holiday is as long.
const maxRateAge = 10

// Exchange converts amounts of money. The zero value converts nothing.
type Exchange struct {
	to    store.Currency
	rates []store.Rate // dollars per euro, oldest first
}

// NewExchange returns an exchange to a currency with daily rates, oldest first.
func NewExchange(to store.Currency, rates ...store.Rate) Exchange {
	return Exchange{to: to, rates: rates}
}

// Exchange reads the rates for a currency from the store.
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

// on returns the rate of a day, which is the last published rate until then.
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

// convert converts a cost of a day. It returns false if there is no rate.
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
	n.Div(n.Add(n, big.NewInt(by/2)), big.NewInt(by)) // round to the nearest
	if !n.IsInt64() {
		n.SetInt64(store.MaxSum)
	}
	return store.Cost{Currency: e.to, Nanos: n.Int64()}, true
}

// Costing adds up tokens and costs of calls.
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

// ByModel returns the usage per model.
func (e Exchange) ByModel(calls []store.Calls) []ModelUsage {
	out := []ModelUsage{}
	for len(calls) > 0 { // sorted by model
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

// RunCosting returns the cost of a run that has ended. Open runs have no cost yet.
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

// CostingOf returns an unknown cost if tokens were used but the calls are not stored.
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

func (TokenUsage) Doc() string { return "Counts of model tokens." }

// Cost is an amount of money.
type Cost struct {
	Currency Currency `json:"currency" doc:"The currency."`
	Amount   float64  `json:"amount" doc:"The amount in this currency." example:"0.0042"`
}

func (Cost) Doc() string { return "An amount of money." }

// NewCost returns the REST shape of a cost.
func NewCost(cost store.Cost) Cost {
	const billion = 1e9
	return Cost{Currency: Currency(cost.Currency), Amount: float64(cost.Nanos) / billion}
}

// Currency is an ISO 4217 currency code.
type Currency string

func (Currency) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "Currency", "An ISO 4217 currency code.", "EUR", "USD")
}
