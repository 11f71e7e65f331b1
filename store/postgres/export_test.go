// SPDX-License-Identifier: Apache-2.0

package postgres

import "github.com/jackc/pgx/v5"

// Tuned are the options with a change of how a test connects.
func (o Options) Tuned(tune func(config *pgx.ConnConfig)) Options {
	o.tune = tune
	return o
}
