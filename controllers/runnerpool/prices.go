// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"cmp"
	"fmt"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/pricing"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// pricesOf returns the prices of the models of a project's providers, and the platform's prices of
// other models.
func pricesOf(providers []v1alpha1.ModelProvider) (runnerconfig.Prices, error) {
	table, err := pricing.Known()
	if err != nil {
		return runnerconfig.Prices{}, err
	}
	out := runnerconfig.Prices{Prices: map[string]runnerconfig.Price{}}
	add := func(prefix, model string, currency v1alpha1.Currency, written pricing.Written) error {
		p, err := written.Price()
		out.Prices[prefix+"/"+model] = runnerconfig.Price{
			Currency: string(currency), Input: p.Input, CachedInput: p.CachedInput, Output: p.Output, Thinking: p.Thinking,
		}
		return err
	}
	for _, p := range providers {
		for model, written := range table.Of(cmp.Or(p.BaseURL, runnerconfig.OpenAIAddress)) {
			if err := add(p.Prefix, model, v1alpha1.CurrencyUSD, written); err != nil {
				return runnerconfig.Prices{}, fmt.Errorf("reading the platform's price table: %w", err)
			}
		}
		for _, price := range p.Prices {
			if err := add(p.Prefix, price.Model, cmp.Or(price.Currency, v1alpha1.CurrencyUSD), pricing.Written{
				Input: string(price.InputPerMillion), CachedInput: string(price.CachedInputPerMillion),
				Output: string(price.OutputPerMillion), Thinking: string(price.ThinkingPerMillion),
			}); err != nil {
				return runnerconfig.Prices{}, fmt.Errorf("reading the price of model %q of the provider %q: %w", price.Model, p.Prefix, err)
			}
		}
	}
	return out, nil
}
