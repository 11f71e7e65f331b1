// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func calls(model string, day store.Day, currency store.Currency, nanos int64) store.Calls {
	return store.Calls{Model: model, Day: day, Number: 2, Usage: store.TokenUsage{TotalTokens: 7}, Cost: store.Cost{Currency: currency, Nanos: nanos}}
}

func number(n int64) *int64 { return &n }

// TestCosts: what is told of calls, in the currency of their prices and converted by the rate of
// each one's day, which is the last one before where the bank was closed.
func TestCosts(t *testing.T) {
	t.Parallel()
	rates := []store.Rate{{Currency: store.USD, Day: 100, Micros: 1_250_000}, {Currency: store.USD, Day: 103, Micros: 1_600_000}}
	cost := func(currency Currency, amount float64) Null[Cost] {
		return Null[Cost]{Value: &Cost{Currency: currency, Amount: amount}}
	}
	unknown := func(why CostUnknown) Null[CostUnknown] { return Null[CostUnknown]{Value: &why} }
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
			name: "some have a price", calls: []store.Calls{calls("a", 100, store.USD, 4_200_000), calls("b", 100, "", 0), calls("c", 1, store.USD, 1)},
			want: Costing{Cost: cost("USD", 0.004200001), UnpricedCalls: number(2)},
		},
		{
			name: "two currencies", calls: []store.Calls{calls("a", 100, store.USD, 1), calls("a", 100, store.EUR, 1)},
			want: Costing{CostUnknown: unknown(differing)},
		},
		{
			name: "as they are", to: store.USD, calls: []store.Calls{calls("a", 1, store.USD, 5e8)}, want: Costing{Cost: cost("USD", 0.5)},
		},
		{
			name: "to euros, of the day and of the days after", to: store.EUR,
			calls: []store.Calls{calls("a", 100, store.USD, 1e9), calls("a", 102, store.USD, 1e9), calls("a", 103, store.USD, 1e9), calls("a", 50, store.EUR, 1e9)},
			want:  Costing{Cost: cost("EUR", 0.8+0.8+0.625+1)},
		},
		{
			name: "more than can be said", calls: []store.Calls{calls("a", 1, store.USD, store.MaxSum), calls("b", 1, store.USD, store.MaxSum), calls("c", 1, store.USD, math.MaxInt64)},
			want: Costing{Cost: cost("USD", store.MaxSum/1e9)},
		},
		{name: "more than can be said, converted", to: store.USD, calls: []store.Calls{calls("a", 100, store.EUR, 8e18)}, want: Costing{Cost: cost("USD", store.MaxSum/1e9)}},
		{name: "to dollars", to: store.USD, calls: []store.Calls{calls("a", 113, store.EUR, 3e9)}, want: Costing{Cost: cost("USD", 4.8)}},
		{name: "before the first rate", to: store.EUR, calls: []store.Calls{calls("a", 99, store.USD, 1), calls("a", 100, store.USD, 1)}, want: Costing{CostUnknown: unknown(unknownRate)}},
		{name: "long after the last rate", to: store.EUR, calls: []store.Calls{calls("a", 114, store.USD, 1)}, want: Costing{CostUnknown: unknown(unknownRate)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want.UnpricedCalls == nil {
				c.want.UnpricedCalls = number(0)
			}
			require.Equal(t, c.want, exchange{to: c.to, rates: rates}.costing(c.calls))
		})
	}
	got := exchange{}.byModel([]store.Calls{calls("a", 1, store.USD, 5e8), calls("a", 2, "", 0), calls("b", 1, store.EUR, 5e8)})
	require.Equal(t, []ModelUsage{
		{Model: "a", Calls: 4, TokenUsage: TokenUsage{TotalTokens: 14}, Costing: Costing{Cost: cost("USD", 0.5), UnpricedCalls: number(2)}},
		{Model: "b", Calls: 2, TokenUsage: TokenUsage{TotalTokens: 7}, Costing: Costing{Cost: cost("EUR", 0.5), UnpricedCalls: number(0)}},
	}, got)
}

// TestCostsOfTests: converted where it is asked for, and null with the reason without a rate.
func TestCostsOfTests(t *testing.T) {
	t.Parallel()
	const list = `[{"agent_name":"B","test_name":"x","costs":[{"day":100,"calls":3,"currency":"USD","nanos":2000000000},{"day":100,"calls":1,"currency":"","nanos":0}]},
		{"agent_name":"a","test_name":"x","cost":null}]`
	results := recordedResults([]byte(list))
	shown := exchange{to: store.EUR, rates: []store.Rate{{Currency: store.USD, Day: 98, Micros: 1_250_000}}}.testResults(results)
	require.Equal(t, "a", shown[0].AgentName)
	require.Equal(t, Costing{UnpricedCalls: number(0)}, shown[0].Costing, "of a release before")
	require.Equal(t, Costing{}, exchange{}.costingOf(nil, TokenUsage{TotalTokens: 1}), "its calls are gone")
	require.Equal(t, &Cost{Currency: "EUR", Amount: 1.6}, shown[1].Cost.Value)
	require.Equal(t, number(1), shown[1].UnpricedCalls)
	require.Equal(t, unknownRate, *exchange{to: store.EUR}.testResults(results)[1].CostUnknown.Value)
}

// TestCostsOfAnAgent: those of the window, by model; another currency than those that rates are of
// is refused by its name.
func TestCostsOfAnAgent(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := sample{path: "/agents/hello?environment_id={environment}"}.fill(t, w.ids)
	status, body := w.call(t, key, http.MethodGet, path+"&convert_costs_to=EUR", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	got := decode[AgentDetails](t, body)
	require.NotNil(t, got.UsageByModel)
	for _, of := range []string{path + "&", sample{path: "/deployments/{deployment}/test-runs?"}.fill(t, w.ids)} {
		status, body := w.call(t, key, http.MethodGet, of+"convert_costs_to=GBP", "")
		requireField(t, status, body, "query.convert_costs_to")
	}
}

// TestNothingIsToldOfWhatIsNotCounted: of a run that has not ended, in lists, and of one that has used
// tokens and of whose calls none is stored; 0 is what a run has that has used none.
func TestNothingIsToldOfWhatIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	_, body := w.call(t, key, http.MethodGet, "/runs", "")
	for _, run := range decode[RunList](t, body).Items {
		require.Zero(t, run.Costing)
	}
	_, body = w.call(t, key, http.MethodGet, "/runs/"+w.queued.String(), "")
	require.Zero(t, decode[Run](t, body).Costing)
	_, body = w.call(t, key, http.MethodGet, "/runs/"+w.completed.String(), "")
	require.Zero(t, decode[Run](t, body).Costing)
	_, body = w.call(t, key, http.MethodGet, "/runs/"+w.failed.String(), "")
	require.Equal(t, Costing{UnpricedCalls: number(0)}, decode[Run](t, body).Costing)
}
