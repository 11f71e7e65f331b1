// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
)

// PutRates implements store.Rates.
func (c *Core) PutRates(ctx context.Context, rates []store.Rate) error {
	var r rowBatch
	for _, rate := range rates {
		r.addRow(string(rate.Currency), int64(rate.Day), rate.Micros)
	}
	return wrap(c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		return r.insertRows(ctx, tx, `INSERT INTO exchange_rates AS e (currency, day, micros) VALUES `, `(%, %, %)`,
			` ON CONFLICT (currency, day) DO UPDATE SET micros = excluded.micros WHERE e.micros <> excluded.micros`)
	}), "keeping %d exchange rates", len(rates))
}

// Rates implements store.Rates.
func (c *Core) Rates(ctx context.Context, currency store.Currency, from, to store.Day) ([]store.Rate, error) {
	rates, err := collect(ctx, c.engine.Reader(), func(row scanner) (r store.Rate, err error) {
		err = row.Scan(&r.Currency, &r.Day, &r.Micros)
		return r, err
	}, `SELECT e.currency, e.day, e.micros FROM exchange_rates e WHERE e.currency = $1 AND e.day >= $2 AND e.day <= $3 ORDER BY e.day`, string(currency), int64(from), int64(to))
	return rates, wrap(err, "reading exchange rates of %s", currency)
}

// LatestRate implements store.Rates.
func (c *Core) LatestRate(ctx context.Context, currency store.Currency) (day store.Day, err error) {
	err = mapNoRows(c.engine.Reader().QueryRowContext(ctx, `SELECT e.day FROM exchange_rates e WHERE e.currency = $1 ORDER BY e.day DESC LIMIT 1`, string(currency)).Scan(&day))
	return day, wrap(err, "reading the latest exchange rate of %s", currency)
}
