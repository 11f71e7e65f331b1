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
func (c *Store) addOrigins(ctx context.Context, targets []target, starts []runrow.Start) error {
	known := make(map[store.Key]bool, len(starts))
	for _, s := range starts {
		known[s.Run] = true
	}
	var others []store.Key
	for _, t := range targets {
		if !known[t.run] {
			known[t.run], others = true, append(others, t.run)
		}
	}
	more, err := runrow.StartsOf(ctx, c.db, c.db.Reader(), others)
	if err != nil {
		return err
	}
	origins, err := runrow.OriginsByRun(ctx, c.db, c.db.Reader(), slices.Concat(starts, more))
	for i, t := range targets {
		from := origins[t.run]
		targets[i].hops, targets[i].traceparent = from.Hops+1, from.Traceparent
	}
	return err
}
