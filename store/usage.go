// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"
)

// Currency is an ISO 4217 currency code; "" if no price is known.
type Currency string

// Currencies of prices.
const (
	USD Currency = "USD"
	EUR Currency = "EUR"
)

// Currencies lists all currencies.
var Currencies = []Currency{USD, EUR}

// Cost is an amount of money in billionths of its currency, so sums are exact. It is zero if the
// price is unknown.
type Cost struct {
	Currency Currency
	Nanos    int64
}

// MaxCost is the maximum recorded cost of a model call in billionths: some 17,000 dollars.
const MaxCost = 1 << 44

// MaxRunModels is the maximum number of models per run, and MaxModels in statistics, with the
// highest cost. Calls of other models are added up as OtherModels. A journal has all names.
const (
	MaxRunModels = 32
	MaxModels    = 100
	OtherModels  = "other"
)

// MaxSum is the maximum of a sum of costs or tokens: some two billion dollars. The sum of two of
// them does not overflow.
const MaxSum = 1 << 61

// Sum returns the sum of two numbers, at most MaxSum. Negative numbers count as 0.
func Sum(a, b int64) int64 {
	of := func(n int64) int64 { return min(max(n, 0), MaxSum) }
	return of(of(a) + of(b))
}

// Plus returns the sum of both.
func (u TokenUsage) Plus(more TokenUsage) TokenUsage {
	return TokenUsage{
		Sum(u.InputTokens, more.InputTokens), Sum(u.OutputTokens, more.OutputTokens), Sum(u.ThinkingTokens, more.ThinkingTokens),
		Sum(u.CachedInputTokens, more.CachedInputTokens), Sum(u.TotalTokens, more.TotalTokens),
	}
}

// Bounded returns the reported usage within the limits. A cost in an unsupported currency is
// dropped.
func (u ModelUsage) Bounded() *ModelUsage {
	u.TokenUsage = u.bounded()
	if !slices.Contains(Currencies, u.Cost.Currency) {
		u.Cost = Cost{}
	}
	u.Cost.Nanos = min(max(u.Cost.Nanos, 0), MaxCost)
	return &u
}

// Calls counts the calls of a model, on one day and with prices in one currency.
type Calls struct {
	// Model is the model reference, provider/model, or OtherModels.
	Model string
	// Day is the UTC day of the calls.
	Day Day
	// Number is the number of calls. Usage and Cost are their totals.
	Number int64
	Usage  TokenUsage
	Cost   Cost
}

// Day is a UTC day, in days since 1970.
type Day int64

// DayOf returns the day of a time.
func DayOf(t time.Time) Day { return Day(t.Unix() / int64((24 * time.Hour).Seconds())) }

// String returns the date, such as 2026-01-31.
func (d Day) String() string { return d.Begin().Format(time.DateOnly) }

// Begin returns the start of the day.
func (d Day) Begin() time.Time { return time.Unix(int64(d)*int64((24*time.Hour).Seconds()), 0).UTC() }

// Rate is a central bank's reference rate: the price of one euro on a day, in millionths of another
// currency.
type Rate struct {
	Currency Currency
	Day      Day
	Micros   int64
}

// Rates stores reference rates of the whole platform.
type Rates interface {
	// PutRates stores rates and replaces rates of the same day and currency. Unchanged rates cost
	// no write.
	PutRates(ctx context.Context, rates []Rate) error
	// Rates returns the rates of a currency from one day to another, both included, oldest first.
	Rates(ctx context.Context, currency Currency, from, to Day) ([]Rate, error)
	// LatestRate returns the last day with a rate of a currency; ErrNotFound without any.
	LatestRate(ctx context.Context, currency Currency) (Day, error)
}
