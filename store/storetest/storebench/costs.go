// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// readCosts reads the cost of a run, and exchange rates.
func (t *tour) readCosts() {
	t.requireSuccess(t.Store.RunCalls(t.ctx, t.key(uuid.Must(uuid.NewV7()))))
	t.NoError(t.Store.PutRates(t.ctx, []store.Rate{{Currency: store.USD, Day: 20_000, Micros: 1_100_000}}))
	t.requireSuccess(t.Store.Rates(t.ctx, store.USD, 20_000, 20_001))
	t.requireSuccess(t.Store.LatestRate(t.ctx, store.USD))
}
