// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"time"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// pendingEvent is an event that waits for its commit.
type pendingEvent struct {
	ctx    context.Context //nolint:containedctx // of the request, which may end while the event waits
	since  time.Time
	event  store.Event
	answer chan commitAnswer // capacity 1
}

type commitAnswer struct {
	admission store.Admission
	err       error
}

// isAbandoned reports whether a long-waiting event has lost its client. Such an event is not committed. A
// new event is committed even if its client has disconnected.
func (p *pendingEvent) isAbandoned(now time.Time) bool {
	return now.Sub(p.since) > maxCommitWait && p.ctx.Err() != nil
}

// batchEntry is an event of a batch, with other waiting events of the same idempotency key. Only one of
// them is sent to the store.
type batchEntry struct {
	*pendingEvent
	others []*pendingEvent
}

// collect returns a batch of waiting events within its limits, and separately the events without a
// client.
func collect(waiting *quota.FairQueue[*pendingEvent], now time.Time) (batch []*batchEntry, gone []*pendingEvent) {
	size, runs, keyed := 0, 0, map[eventKey]*batchEntry{}
	for len(batch) < maxBatchEvents && size < maxBatchBytes && runs < maxBatchRuns {
		project, p, ok := waiting.Next()
		if !ok {
			break
		}
		waiting.Pop(project)
		if p.isAbandoned(now) {
			gone = append(gone, p)
			continue
		}
		key, named := eventKeyOf(p.event)
		if first := keyed[key]; named && first != nil {
			first.others = append(first.others, p)
			continue
		}
		e := &batchEntry{pendingEvent: p}
		if named {
			keyed[key] = e
		}
		batch = append(batch, e)
		size += len(p.event.Input)
		runs += len(p.event.Runs)
	}
	return batch, gone
}

// eventKey is an idempotency key of a connector.
type eventKey struct {
	connector store.Key
	key       string
}

func eventKeyOf(e store.Event) (key eventKey, named bool) {
	if e.Idempotency == nil {
		return eventKey{}, false
	}
	return eventKey{store.Key{ProjectID: e.ProjectID, ID: e.ConnectorID}, e.Idempotency.Key}, true
}

// resultOfSameKey returns the result of an event with the same key as a stored event of the same batch. It
// returns false if the event must be stored separately: the first event was not recorded, or the
// two events were checked against different data.
func resultOfSameKey(first store.Event, told store.Admission, other store.Event) (store.Admission, bool) {
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
