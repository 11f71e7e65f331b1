// SPDX-License-Identifier: Apache-2.0

package runnerconfig_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

func TestPrice_Nanos(t *testing.T) {
	t.Parallel()
	price := runnerconfig.Price{Input: 1_250_000, CachedInput: 125_000, Output: 10_000_000, Thinking: 5_000_000}
	for _, c := range []struct {
		name   string
		tokens runnerconfig.Tokens
		want   int64
	}{
		{"nothing", runnerconfig.Tokens{}, 0},
		{"a million of each", runnerconfig.Tokens{Input: 2_000_000, CachedInput: 1_000_000, Output: 1_000_000, Thinking: 1_000_000}, 1_250_000_000 + 125_000_000 + 10_000_000_000 + 5_000_000_000},
		{"a few", runnerconfig.Tokens{Input: 812, Output: 96}, 812*1250 + 96*10_000},
		{"one of the cache", runnerconfig.Tokens{Input: 1, CachedInput: 1}, 125},
		{"more of the cache than was read", runnerconfig.Tokens{Input: 1, CachedInput: 2}, 250},
		{"as much as a service can claim", runnerconfig.Tokens{Output: math.MaxInt64}, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, price.Nanos(c.tokens))
		})
	}
	for millionths, want := range map[int64]int64{499: 0, 500: 1, 1499: 1, 1500: 2} {
		t.Run(fmt.Sprint(millionths), func(t *testing.T) {
			require.Equal(t, want, runnerconfig.Price{Input: millionths}.Nanos(runnerconfig.Tokens{Input: 1}), "%d", millionths)
		})
	}
}

func TestParsePrices_ReadsWrittenPrices(t *testing.T) {
	t.Parallel()
	written := runnerconfig.Prices{Prices: map[string]runnerconfig.Price{"openai/gpt-5": {Currency: "USD", Input: 1, CachedInput: 2, Output: 3, Thinking: 4}}}
	data, err := json.Marshal(written)
	require.NoError(t, err)
	read, err := runnerconfig.ParsePrices(data)
	require.NoError(t, err)
	require.Equal(t, written, read)
	for _, text := range []string{"", `{"prices":[]}`, `{"prices":{"a/b":{"input":1}}}`, `{"prices":{"a/b":{"currency":"USD","output":-1}}}`} {
		_, err := runnerconfig.ParsePrices([]byte(text))
		require.ErrorContains(t, err, runnerconfig.PricesFile, text)
	}
}
