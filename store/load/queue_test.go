// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// The limit holds over all agents and classes.
func TestQueueFigures_LimitCounts(t *testing.T) {
	t.Parallel()
	for queues, want := range map[int64]int64{0: 10_000, 1: 10_000, 10: 10_000, 11: 9_090, 50: 2_000, 100_000: 1, 1_000_000: 1} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			require.Equal(t, want, countOf(queues), queues)
			if queues <= store.MaxQueueCounted {
				require.LessOrEqual(t, queues*countOf(queues), int64(store.MaxQueueCounted))
			}
		})
	}
}
