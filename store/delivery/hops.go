// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"slices"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
)

// addOrigins sets the hops of targets, one more than the events that started their runs, and the traceparents. Some starts
// are known.
func (s *Store) addOrigins(ctx context.Context, targets []target, starts []runrow.Start) error {
	known := make(map[store.Key]bool, len(starts))
	for _, start := range starts {
		known[start.Run] = true
	}
	var others []store.Key
	for _, t := range targets {
		if !known[t.run] {
			known[t.run], others = true, append(others, t.run)
		}
	}
	more, err := runrow.StartsOf(ctx, s.db, s.db.Reader(), others)
	if err != nil {
		return err
	}
	origins, err := runrow.OriginsByRun(ctx, s.db, s.db.Reader(), slices.Concat(starts, more))
	for i, t := range targets {
		from := origins[t.run]
		targets[i].hops, targets[i].traceparent = from.Hops+1, from.Traceparent
	}
	return err
}
