// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestABatchIsBounded: by what its transaction costs, whoever fills it.
func TestABatchIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event store.Event
		want  int
	}{
		"small events":      {store.Event{Runs: make([]store.EventRun, 1)}, maxBatchEvents},
		"of many runs":      {store.Event{Runs: make([]store.EventRun, 100)}, 11},
		"of large inputs":   {store.Event{Runs: make([]store.EventRun, 1), Input: make([]byte, 1<<20)}, 4},
		"one beyond bounds": {store.Event{Runs: make([]store.EventRun, 2*maxBatchRuns)}, 1},
	} {
		k := newCommitter(nil, nil)
		for range maxBatchEvents {
			k.queue <- &pending{event: c.event}
		}
		first := <-k.queue
		k.queue <- &pending{event: c.event}
		require.Len(t, k.collect(first), c.want, name)
	}
}
