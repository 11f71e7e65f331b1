// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"time"
)

// Currency is a currency by its ISO 4217 code; "" where no price is known.
type Currency string

// Currencies in which prices are.
const (
	USD Currency = "USD"
	EUR Currency = "EUR"
)

// Currencies are all of them.
var Currencies = []Currency{USD, EUR}

// Cost is an amount of money, to the billionth of its currency: sums of whole numbers are exact.
// The zero one is of what has no known price.
type Cost struct {
	Currency Currency
	Nanos    int64
}

// MaxCost is how many billionths one call of a model is recorded to cost at most: some 17,000
// dollars.
const MaxCost = 1 << 44

// Of a run MaxRunModels models are told apart at most, and in statistics MaxModels: those that have
// cost most. The calls of the others are added up as those of OtherModels. A journal has all names.
const (
	MaxRunModels = 32
	MaxModels    = 100
	OtherModels  = "other"
)

// MaxSum is how much a sum of costs or of tokens says at most, whatever was added up: some two
// billion dollars. Two of them together are a number still.
const MaxSum = 1 << 61

// Sum is two numbers together, up to MaxSum; one below 0 counts as none.
func Sum(a, b int64) int64 {
	of := func(n int64) int64 { return min(max(n, 0), MaxSum) }
	return of(of(a) + of(b))
}

// Plus is the usage of both together.
func (u TokenUsage) Plus(more TokenUsage) TokenUsage {
	return TokenUsage{
		Sum(u.InputTokens, more.InputTokens), Sum(u.OutputTokens, more.OutputTokens), Sum(u.ThinkingTokens, more.ThinkingTokens),
		Sum(u.CachedInputTokens, more.CachedInputTokens), Sum(u.TotalTokens, more.TotalTokens),
	}
}

// Bounded is the usage that is recorded of what a runner says. A cost in another currency than
// those that prices are in is none.
func (u ModelUsage) Bounded() *ModelUsage {
	u.TokenUsage = u.bounded()
	if !slices.Contains(Currencies, u.Cost.Currency) {
		u.Cost = Cost{}
	}
	u.Cost.Nanos = min(max(u.Cost.Nanos, 0), MaxCost)
	return &u
}

// Calls are numbers of calls of a model, on one day and by a price in one currency.
type Calls struct {
	// Model is its reference, provider/model, or OtherModels.
	Model string
	// Day is that of the calls, in UTC.
	Day Day
	// Number is how many calls these are, Usage and Cost are of all together.
	Number int64
	Usage  TokenUsage
	Cost   Cost
}

// Day is a day in UTC, as days since 1970.
type Day int64

// DayOf is the day of a moment.
func DayOf(t time.Time) Day { return Day(t.Unix() / int64((24 * time.Hour).Seconds())) }

// String is the date, as in 2026-01-31.
func (d Day) String() string { return d.Begin().Format(time.DateOnly) }

// Begin is when the day begins.
func (d Day) Begin() time.Time { return time.Unix(int64(d)*int64((24*time.Hour).Seconds()), 0).UTC() }

// Rate is a central bank's reference rate: what a euro was on a day, in millionths of another
// currency.
type Rate struct {
	Currency Currency
	Day      Day
	Micros   int64
}

// Rates keeps reference rates. They are of the whole platform.
type Rates interface {
	// PutRates keeps rates, in place of those of the same day and currency. Rates that are there
	// already cost no write.
	PutRates(ctx context.Context, rates []Rate) error
	// Rates are those of a currency from one day to another, both of them included, oldest first.
	Rates(ctx context.Context, currency Currency, from, to Day) ([]Rate, error)
	// LatestRate is the last day of which there is a rate of a currency; ErrNotFound without any.
	LatestRate(ctx context.Context, currency Currency) (Day, error)
}
