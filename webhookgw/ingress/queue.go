// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"time"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// pending is an event that waits to be committed.
type pending struct {
	ctx    context.Context //nolint:containedctx // of the request, which may end while the event waits
	since  time.Time
	event  store.Event
	answer chan answer // holds one
}

type answer struct {
	admission store.Admission
	err       error
}

// gone says whether nobody waits for an event any more that waited for long: it is
// not committed. One that has just come is, whoever hung up: its caller meant it.
func (p *pending) gone(now time.Time) bool {
	return now.Sub(p.since) > patience && p.ctx.Err() != nil
}

// entry is an event of a batch, with the others under its idempotency key that
// came at the same moment: one of them is sent to the store.
type entry struct {
	*pending
	others []*pending
}

// collect takes a batch from what waits, within the bounds of one, and beside it
// those whose caller is gone.
func collect(waiting *quota.Turns[*pending], now time.Time) (batch []*entry, gone []*pending) {
	size, runs, keyed := 0, 0, map[eventKey]*entry{}
	for len(batch) < maxBatchEvents && size < maxBatchBytes && runs < maxBatchRuns {
		project, p, ok := waiting.Next()
		if !ok {
			break
		}
		waiting.Pop(project)
		if p.gone(now) {
			gone = append(gone, p)
			continue
		}
		key, named := keyOf(p.event)
		if first := keyed[key]; named && first != nil {
			first.others = append(first.others, p)
			continue
		}
		e := &entry{pending: p}
		if named {
			keyed[key] = e
		}
		batch = append(batch, e)
		size += len(p.event.Input)
		runs += len(p.event.Runs)
	}
	return batch, gone
}

// eventKey is an idempotency key, which is its connector's.
type eventKey struct {
	connector store.Key
	key       string
}

func keyOf(e store.Event) (key eventKey, named bool) {
	if e.Idempotency == nil {
		return eventKey{}, false
	}
	return eventKey{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}, true
}

// follows is the answer to an event under the same key as one that the store has
// answered in the same moment; false when it is to be asked for itself: the first
// was not recorded, or the two were checked against different things.
func follows(first store.Event, told store.Admission, other store.Event) (store.Admission, bool) {
	if told.Err != nil || told.Verdict != store.Accepted && told.Verdict != store.Repeated ||
		other.ConnectorVersion != first.ConnectorVersion || other.SecretNotAfter != nil {
		return store.Admission{}, false
	}
	told.Verdict = store.Repeated
	if a, b := first.Idempotency.Fingerprint, other.Idempotency.Fingerprint; a != nil && b != nil && !bytes.Equal(a, b) {
		told = store.Admission{Verdict: store.KeyReused}
	}
	return told, true
}
