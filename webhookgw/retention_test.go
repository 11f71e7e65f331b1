// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestHistoryIsKeptForTwoDaysAtLeast: with less, what is open would be deleted.
func TestHistoryIsKeptForTwoDaysAtLeast(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{-time.Hour, time.Hour, store.MinRetention - 1} {
		_, err := New(Options{Retention: retention})
		require.ErrorContains(t, err, "history is kept for 48h0m0s at least")
	}
}
