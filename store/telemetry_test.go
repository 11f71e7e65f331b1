// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// The sample is chosen by the ID of a run, so each attempt decides alike, and has about its share of the runs.
func TestTraceBucket_IsEven(t *testing.T) {
	t.Parallel()
	sampled, all := 0, store.Telemetry{SamplePercent: 100}
	for n := range 1000 {
		run := uuid.NewSHA1(uuid.Nil, []byte{byte(n), byte(n >> 8)})
		require.True(t, all.Exports(uuid.New(), run))
		require.Equal(t, store.TraceBucket(run), store.TraceBucket(run))
		if (store.Telemetry{SamplePercent: 25}).Exports(uuid.New(), run) {
			sampled++
		}
	}
	require.InDelta(t, 250, sampled, 60)
}
