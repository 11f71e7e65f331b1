// SPDX-License-Identifier: Apache-2.0

package pricing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/pricing"
)

// Each model has a price, and cached input never costs more than input.
func TestKnown_HasValidPrices(t *testing.T) {
	t.Parallel()
	table, err := pricing.Known()
	require.NoError(t, err)
	require.NotEmpty(t, table.Source)
	require.NotEmpty(t, table.Services)
	for host, models := range table.Services {
		require.NotEmpty(t, models, host)
		for model, written := range models {
			p, err := written.Price()
			require.NoError(t, err, model)
			require.Positive(t, p.Input, model)
			require.GreaterOrEqual(t, p.Output, p.Input, model)
			require.LessOrEqual(t, p.CachedInput, p.Input, model)
			require.Equal(t, p.Output, p.Thinking, model)
		}
	}
}

func TestOf_NeedsVendorAddress(t *testing.T) {
	t.Parallel()
	table, err := pricing.Known()
	require.NoError(t, err)
	for _, address := range []string{"https://api.openai.com/v1", "https://API.openai.com:443/v1/"} {
		require.Equal(t, pricing.Written{Input: "1.25", CachedInput: "0.125", Output: "10"}, table.Of(address)["gpt-5"], address)
	}
	for _, address := range []string{"", "http://api.openai.com/v1", "https://api.openai.com.example.com/v1", "https://proxy.example.com/api.openai.com", "%"} {
		require.Empty(t, table.Of(address), address)
	}
}

func TestParse_ReadsPrices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1": 1_000_000, "1.25": 1_250_000, "0.000001": 1, "9999.999999": 9_999_999_999} {
		t.Run(text, func(t *testing.T) {
			got, err := pricing.Parse(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	for _, text := range []string{"", "-1", "1.", ".5", "01", "1,5", "1e3", "10000", "0.0000001", "1 ", "NaN"} {
		_, err := pricing.Parse(text)
		require.Error(t, err, text)
	}
	p, err := pricing.Written{Input: "3", CachedInput: "0.3", Output: "15", Thinking: "5"}.Price()
	require.NoError(t, err)
	require.Equal(t, pricing.Price{Input: 3_000_000, CachedInput: 300_000, Output: 15_000_000, Thinking: 5_000_000}, p)
	_, err = pricing.Written{Input: "3"}.Price()
	require.Error(t, err)
}
