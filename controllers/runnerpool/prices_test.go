// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// Prices of the project win over prices of the platform, which apply only to the maker's own address.
func TestPricesOf_ProjectPricesWin(t *testing.T) {
	t.Parallel()
	got, err := pricesOf([]v1alpha1.ModelProvider{
		{Prefix: "openai", Type: v1alpha1.ModelProviderOpenAI, Prices: []v1alpha1.ModelPrice{
			{Model: "gpt-5", Currency: v1alpha1.CurrencyEUR, InputPerMillion: "1", OutputPerMillion: "2"},
			{Model: "vendor/tuned", InputPerMillion: "3", CachedInputPerMillion: "0.5", OutputPerMillion: "4", ThinkingPerMillion: "5"},
		}},
		{Prefix: "proxy", Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://proxy.example.com/v1"},
	})
	require.NoError(t, err)
	require.Equal(t, runnerconfig.Price{Currency: "EUR", Input: 1_000_000, CachedInput: 1_000_000, Output: 2_000_000, Thinking: 2_000_000}, got.Prices["openai/gpt-5"])
	require.Equal(t, runnerconfig.Price{Currency: "USD", Input: 3_000_000, CachedInput: 500_000, Output: 4_000_000, Thinking: 5_000_000}, got.Prices["openai/vendor/tuned"])
	require.Equal(t, runnerconfig.Price{Currency: "USD", Input: 150_000, CachedInput: 75_000, Output: 600_000, Thinking: 600_000}, got.Prices["openai/gpt-4o-mini"])
	require.NotContains(t, got.Prices, "proxy/gpt-5")
	_, err = pricesOf([]v1alpha1.ModelProvider{{Prefix: "a", Prices: []v1alpha1.ModelPrice{{Model: "b", InputPerMillion: "x", OutputPerMillion: "1"}}}})
	require.ErrorContains(t, err, `"b"`)
}
