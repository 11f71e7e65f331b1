// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// calm is for how long no trouble of a destination must have been seen until it is said that
// deliveries go out again, and how long one kind or reason is told before another: a destination
// that takes some and refuses others would else have its Connector written each time that is
// looked.
const calm = 10 * time.Minute

// Calm knows what Connectors tell of their destinations: the controller, which writes it, and
// Destinations, which looks for what is to be written, ask the same one. The zero value is ready.
type Calm struct {
	// Now is its clock; nil means time.Now.
	Now func() time.Time

	mutex sync.Mutex
	of    map[store.Key]*told
}

// trouble is a state of a destination other than DestinationDelivering, with its reason, that a Connector tells. The
// zero value is none.
type trouble struct {
	state  store.DestinationState
	reason string
	// paused is the generation of the Connector that is paused, else 0.
	paused int64
}

// troubleOf returns the trouble of a destination of a generation of the Connector.
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

// told is what is told of a destination.
type told struct {
	ref store.ObjectRef
	// is what is to be told since a time, said what the Connector says as far as is known.
	is, said trouble
	since    time.Time
	// last is when there was last seen to be trouble.
	last time.Time
}

// tell is what the generation of a Connector that ref names is to tell of a destination as it was
// seen just now. The caller writes it into the Connector, or has it looked at.
func (c *Calm) tell(ref store.ObjectRef, seen store.Destination) (is trouble, changed bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := time.Now()
	if c.Now != nil {
		now = c.Now()
	}
	t := c.of[seen.Connector]
	if t == nil {
		t = &told{}
	}
	t.ref = ref
	t.see(troubleOf(seen, ref.Generation), now)
	changed = t.is != t.said
	t.said = t.is
	switch {
	case t.is == trouble{}:
		delete(c.of, seen.Connector)
	case c.of == nil:
		c.of = map[store.Key]*told{seen.Connector: t}
	default:
		c.of[seen.Connector] = t
	}
	return t.is, changed
}

// see takes over what was seen, unless that is to wait.
func (t *told) see(seen trouble, now time.Time) {
	none := trouble{}
	if seen != none {
		t.last = now
	}
	switch {
	case seen == t.is:
		return
	case t.is == none, seen.paused != t.is.paused: // somebody has paused it, or resumed
	case seen.state == store.DestinationFailing:
	case seen == none && now.Sub(t.last) < calm, seen != none && now.Sub(t.since) < calm:
		return
	}
	t.is, t.since = seen, now
}

// others are those of which there is something to tell, but for those that were seen.
func (c *Calm) others(seen map[store.Key]bool) map[store.Key]store.ObjectRef {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	others := map[store.Key]store.ObjectRef{}
	for key, t := range c.of {
		if !seen[key] {
			others[key] = t.ref
		}
	}
	return others
}
