// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"encoding/json"
	"fmt"
	"math/big"
)

// PricesFile is the file of models' prices in the Secret of a runner pool. It is read for each
// model response, so a changed price needs no new runner.
const PricesFile = "prices.json"

// Prices is the content of PricesFile: prices of models by reference, provider/model.
type Prices struct {
	Prices map[string]Price `json:"prices"`
}

// Price is the price of a million tokens, in millionths of the currency.
type Price struct {
	Currency    string `json:"currency"`
	Input       int64  `json:"input"`
	CachedInput int64  `json:"cached_input"`
	Output      int64  `json:"output"`
	Thinking    int64  `json:"thinking"`
}

// Tokens are the tokens of one call. CachedInput is the cached part of Input.
type Tokens struct{ Input, CachedInput, Output, Thinking int64 }

// Nanos returns the cost of a call in billionths of the currency, rounded to the nearest, half up.
func (p Price) Nanos(t Tokens) int64 {
	sum := new(big.Int)
	for _, of := range [][2]int64{{t.Input - min(t.CachedInput, t.Input), p.Input}, {t.CachedInput, p.CachedInput}, {t.Output, p.Output}, {t.Thinking, p.Thinking}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(of[0]), big.NewInt(of[1])))
	}
	// A millionth of a millionth is a thousandth of a billionth.
	const half, thousand = 500, 1000
	sum.Div(sum.Add(sum, big.NewInt(half)), big.NewInt(thousand))
	if !sum.IsInt64() {
		return 1<<63 - 1
	}
	return sum.Int64()
}

// ParsePrices parses the content of PricesFile.
func ParsePrices(data []byte) (Prices, error) {
	var p Prices
	if err := json.Unmarshal(data, &p); err != nil {
		return Prices{}, fmt.Errorf("reading %s: %w", PricesFile, err)
	}
	for model, price := range p.Prices {
		if price.Currency == "" || min(price.Input, price.CachedInput, price.Output, price.Thinking) < 0 {
			return Prices{}, fmt.Errorf("reading %s: the price of %q is invalid", PricesFile, model)
		}
	}
	return p, nil
}
