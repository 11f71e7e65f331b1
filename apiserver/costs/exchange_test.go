// SPDX-License-Identifier: Apache-2.0

package costs

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

func calls(model string, day store.Day, currency store.Currency, nanos int64) store.Calls {
	return store.Calls{Model: model, Day: day, Number: 2, Usage: store.TokenUsage{TotalTokens: 7}, Cost: store.Cost{Currency: currency, Nanos: nanos}}
}

func number(n int64) *int64 { return &n }

// Costs have the currency of the prices, or are converted at the rate of the day. On a bank holiday the last rate
// before it applies.
func TestCosts_ConvertAtRateOfDay(t *testing.T) {
	t.Parallel()
	rates := []store.Rate{{Currency: store.USD, Day: 100, Micros: 1_250_000}, {Currency: store.USD, Day: 103, Micros: 1_600_000}}
	cost := func(currency Currency, amount float64) rest.Null[Cost] {
		return rest.Null[Cost]{Value: &Cost{Currency: currency, Amount: amount}}
	}
	unknown := func(why CostUnknown) rest.Null[CostUnknown] { return rest.Null[CostUnknown]{Value: &why} }
	for _, c := range []struct {
		name  string
		to    store.Currency
		calls []store.Calls
		want  Costing
	}{
		{name: "no call"},
		{name: "no price", calls: []store.Calls{calls("a", 100, "", 0)}, want: Costing{UnpricedCalls: number(2), CostUnknown: unknown(unknownPrice)}},
		{name: "no price converted", to: store.EUR, calls: []store.Calls{calls("a", 100, "", 0)}, want: Costing{UnpricedCalls: number(2), CostUnknown: unknown(unknownPrice)}},
		{name: "free", calls: []store.Calls{calls("a", 100, store.EUR, 0)}, want: Costing{Cost: cost("EUR", 0)}},
		{
			name: "some calls have a price", calls: []store.Calls{calls("a", 100, store.USD, 4_200_000), calls("b", 100, "", 0), calls("c", 1, store.USD, 1)},
			want: Costing{Cost: cost("USD", 0.004200001), UnpricedCalls: number(2)},
		},
		{
			name: "two currencies without conversion", calls: []store.Calls{calls("a", 100, store.USD, 1), calls("a", 100, store.EUR, 1)},
			want: Costing{CostUnknown: unknown(differing)},
		},
		{
			name: "conversion to the same currency", to: store.USD, calls: []store.Calls{calls("a", 1, store.USD, 5e8)}, want: Costing{Cost: cost("USD", 0.5)},
		},
		{
			name: "to euros, at the latest earlier rate", to: store.EUR,
			calls: []store.Calls{calls("a", 100, store.USD, 1e9), calls("a", 102, store.USD, 1e9), calls("a", 103, store.USD, 1e9), calls("a", 50, store.EUR, 1e9)},
			want:  Costing{Cost: cost("EUR", 0.8+0.8+0.625+1)},
		},
		{
			name: "sum above the maximum", calls: []store.Calls{calls("a", 1, store.USD, store.MaxSum), calls("b", 1, store.USD, store.MaxSum), calls("c", 1, store.USD, math.MaxInt64)},
			want: Costing{Cost: cost("USD", store.MaxSum/1e9)},
		},
		{name: "converted sum above the maximum", to: store.USD, calls: []store.Calls{calls("a", 100, store.EUR, 8e18)}, want: Costing{Cost: cost("USD", store.MaxSum/1e9)}},
		{name: "to dollars", to: store.USD, calls: []store.Calls{calls("a", 113, store.EUR, 3e9)}, want: Costing{Cost: cost("USD", 4.8)}},
		{name: "before the first rate", to: store.EUR, calls: []store.Calls{calls("a", 99, store.USD, 1), calls("a", 100, store.USD, 1)}, want: Costing{CostUnknown: unknown(unknownRate)}},
		{name: "long after the last rate", to: store.EUR, calls: []store.Calls{calls("a", 114, store.USD, 1)}, want: Costing{CostUnknown: unknown(unknownRate)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want.UnpricedCalls == nil {
				c.want.UnpricedCalls = number(0)
			}
			require.Equal(t, c.want, Exchange{to: c.to, rates: rates}.Costing(c.calls))
		})
	}
	got := Exchange{}.ByModel([]store.Calls{calls("a", 1, store.USD, 5e8), calls("a", 2, "", 0), calls("b", 1, store.EUR, 5e8)})
	require.Equal(t, []ModelUsage{
		{Model: "a", Calls: 4, TokenUsage: TokenUsage{TotalTokens: 14}, Costing: Costing{Cost: cost("USD", 0.5), UnpricedCalls: number(2)}},
		{Model: "b", Calls: 2, TokenUsage: TokenUsage{TotalTokens: 7}, Costing: Costing{Cost: cost("EUR", 0.5), UnpricedCalls: number(0)}},
	}, got)
	require.Equal(t, Costing{}, Exchange{}.CostingOf(nil, TokenUsage{TotalTokens: 1}), "the calls are no longer stored")
}
