// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// The number of models in memory is limited, however many an agent has called.
func TestBill_LimitsModels(t *testing.T) {
	t.Parallel()
	s := &Computation{bill: bill{}}
	const models = 5 * minBillEntries
	for i := range int64(models) {
		s.addCalls(price{model: strconv.FormatInt(i, 10)}, callCost{calls: 1, nanos: i})
		require.LessOrEqual(t, len(s.bill), minBillEntries)
	}
	calls := s.bill.limitModels(store.MaxModels).callList()
	require.Len(t, calls, store.MaxModels+1)
	for _, c := range calls {
		if c.Model == store.OtherModels {
			require.EqualValues(t, models-store.MaxModels, c.Number)
		} else {
			require.EqualValues(t, strconv.FormatInt(c.Cost.Nanos, 10), c.Model)
			require.GreaterOrEqual(t, c.Cost.Nanos, int64(models-store.MaxModels))
		}
	}
}
