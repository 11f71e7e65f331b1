// SPDX-License-Identifier: Apache-2.0

// Package exchangerate stores exchange rates.
package exchangerate

import (
	"context"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Store has the exchange rates of currencies.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// PutRates implements store.Rates.
func (s *Store) PutRates(ctx context.Context, rates []store.Rate) error {
	var r sqldb.RowBatch
	for _, rate := range rates {
		r.Add(string(rate.Currency), int64(rate.Day), rate.Micros)
	}
	return sqldb.Wrap(s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		return r.Insert(ctx, tx, `INSERT INTO exchange_rates AS e (currency, day, micros) VALUES `, `(%, %, %)`,
			` ON CONFLICT (currency, day) DO UPDATE SET micros = excluded.micros WHERE e.micros <> excluded.micros`)
	}), "keeping %d exchange rates", len(rates))
}

// Rates implements store.Rates.
func (s *Store) Rates(ctx context.Context, currency store.Currency, from, to store.Day) ([]store.Rate, error) {
	rates, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (r store.Rate, err error) {
		err = row.Scan(&r.Currency, &r.Day, &r.Micros)
		return r, err
	}, `SELECT e.currency, e.day, e.micros FROM exchange_rates e WHERE e.currency = $1 AND e.day >= $2 AND e.day <= $3 ORDER BY e.day`, string(currency), int64(from), int64(to))
	return rates, sqldb.Wrap(err, "reading exchange rates of %s", currency)
}

// LatestRate implements store.Rates.
func (s *Store) LatestRate(ctx context.Context, currency store.Currency) (day store.Day, err error) {
	err = sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT e.day FROM exchange_rates e WHERE e.currency = $1 ORDER BY e.day DESC LIMIT 1`, string(currency)).Scan(&day))
	return day, sqldb.Wrap(err, "reading the latest exchange rate of %s", currency)
}
