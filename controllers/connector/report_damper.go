// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// dampingTime is the time without problems of a destination after which its Connector reports success, and
// the minimum time between two reported problems. Otherwise a destination that accepts only some deliveries
// would cause a write of its Connector at every check.
const dampingTime = 10 * time.Minute

// ReportDamper decides which state of their destinations Connectors report. The controller, which writes the
// state, and Destinations, which looks for changes, share one ReportDamper. The zero value is ready.
type ReportDamper struct {
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time

	mutex       sync.Mutex
	byConnector map[store.Key]*reportedState
}

// trouble is a reported state of a destination other than DestinationDelivering, with its reason. The
// zero value means no problem.
type trouble struct {
	state  store.DestinationState
	reason string
	// paused is the generation of the paused Connector, or 0.
	paused int64
}

// troubleOf returns the problem of a destination for a generation of the Connector.
func troubleOf(d store.Destination, generation int64) trouble {
	switch state, reason := d.State(generation); state {
	case store.DestinationDelivering:
		return trouble{}
	case store.DestinationPaused:
		return trouble{state, reason, generation}
	default:
		return trouble{state, reason, 0}
	}
}

// reportedState is the reported state of a destination.
type reportedState struct {
	ref store.ObjectRef
	// current is the state to report, since the time since. reported is the last known state of the Connector.
	current, reported trouble
	since             time.Time
	// last is the time of the last problem.
	last time.Time
}

// stateToReport returns the state that the Connector of ref reports, after the destination was read. The caller
// writes it to the Connector, or queues the Connector.
func (c *ReportDamper) stateToReport(ref store.ObjectRef, seen store.Destination) (is trouble, changed bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := time.Now()
	if c.Now != nil {
		now = c.Now()
	}
	t := c.byConnector[seen.Connector]
	if t == nil {
		t = &reportedState{}
	}
	t.ref = ref
	t.takeState(troubleOf(seen, ref.Generation), now)
	changed = t.current != t.reported
	t.reported = t.current
	switch {
	case t.current == trouble{}:
		delete(c.byConnector, seen.Connector)
	case c.byConnector == nil:
		c.byConnector = map[store.Key]*reportedState{seen.Connector: t}
	default:
		c.byConnector[seen.Connector] = t
	}
	return t.current, changed
}

// takeState takes over the state that was read, unless it must wait.
func (t *reportedState) takeState(seen trouble, now time.Time) {
	none := trouble{}
	if seen != none {
		t.last = now
	}
	switch {
	case seen == t.current:
		return
	case t.current == none, seen.paused != t.current.paused: // a user paused or resumed it
	case seen.state == store.DestinationFailing:
	case seen == none && now.Sub(t.last) < dampingTime, seen != none && now.Sub(t.since) < dampingTime:
		return
	}
	t.current, t.since = seen, now
}

// otherConnectors returns the connectors with a state to report, except for those in seen.
func (c *ReportDamper) otherConnectors(seen map[store.Key]bool) map[store.Key]store.ObjectRef {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	others := map[store.Key]store.ObjectRef{}
	for key, t := range c.byConnector {
		if !seen[key] {
			others[key] = t.ref
		}
	}
	return others
}
