// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// readCosts reads the cost of a run, and exchange rates.
func (t *tour) readCosts() {
	_, err := t.Store.RunCalls(t.ctx, t.key(uuid.Must(uuid.NewV7())))
	t.NoError(err)
	t.NoError(t.Store.PutRates(t.ctx, []store.Rate{{Currency: store.USD, Day: 20_000, Micros: 1_100_000}}))
	_, err = t.Store.Rates(t.ctx, store.USD, 20_000, 20_001)
	t.NoError(err)
	_, err = t.Store.LatestRate(t.ctx, store.USD)
	t.NoError(err)
}
