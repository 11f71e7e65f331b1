// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestRetention_Minimum: with less than two days, open runs would be deleted.
func TestRetention_Minimum(t *testing.T) {
	t.Parallel()
	for _, retention := range []time.Duration{-time.Hour, time.Hour, store.MinRetention - 1} {
		_, err := New(Options{Retention: retention})
		require.ErrorContains(t, err, "is below the minimum of 48h0m0s")
	}
}
