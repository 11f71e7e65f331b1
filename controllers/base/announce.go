// SPDX-License-Identifier: Apache-2.0

package base

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/excerpt"
)

const (
	// maxNote is the size limit of an event's note in bytes.
	maxNote = 1000
	// eventInterval is the minimum time between two events of an object with the same reason. The
	// conditions show faster changes.
	eventInterval = time.Minute
	// eventCacheSize is the size of both caches: recent events by object and reason, and warnings by
	// object.
	eventCacheSize = 10_000
)

// eventKey is an object and a reason.
type eventKey struct {
	object types.UID
	reason string
}

// announce sends an event if Ready has a new status or reason. It sends none for progress and for the
// success that follows, because the status shows both and thousands of objects may be applied at once.
// After a warning, it sends an event for the success too.
func (b *Base) announce(before, after v1alpha1.ConditionedObject) {
	was, is := before.CommonStatus().Condition(v1alpha1.ConditionReady), after.CommonStatus().Condition(v1alpha1.ConditionReady)
	if is == nil || is.Reason == v1alpha1.ReasonProgressing || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	ready := is.Status
	if is.Reason == v1alpha1.ReasonBuildBlocked { // progress that cannot continue
		ready = metav1.ConditionFalse
	}
	warned := b.recordWarning(after.GetUID(), ready)
	if is.Reason == v1alpha1.ReasonSucceeded && !warned && (was == nil || was.Status == metav1.ConditionUnknown) {
		return
	}
	kind := corev1.EventTypeNormal
	if ready == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	b.Event(after, kind, is.Reason, is.Message)
}

// recordWarning records the new value of Ready. It reports whether the object had a warning since it was
// last ready. A restarted manager has no records.
func (b *Base) recordWarning(object types.UID, ready metav1.ConditionStatus) (warned bool) {
	b.makeCaches()
	warned, _ = b.warned.Get(object)
	switch {
	case ready == metav1.ConditionFalse:
		b.warned.Put(object, true)
	case ready == metav1.ConditionTrue && warned:
		b.warned.Put(object, false)
	}
	return warned
}

func (b *Base) makeCaches() {
	b.eventsOnce.Do(func() {
		b.recent = cache.New[eventKey, struct{}](eventCacheSize, eventInterval, b.Now)
		b.warned = cache.New[types.UID, bool](eventCacheSize, 0, b.Now)
	})
}

// Event records an event about an object, at most one per reason and minute.
func (b *Base) Event(o v1alpha1.ConditionedObject, kind, reason, note string) {
	if b.Events == nil {
		return
	}
	key := eventKey{o.GetUID(), reason}
	b.makeCaches()
	if _, sent := b.recent.Get(key); sent {
		return
	}
	b.recent.Put(key, struct{}{})
	b.Events.Eventf(o, nil, kind, reason, "Reconcile", "%s", excerpt.Of(note, maxNote, excerpt.Ellipsis))
}
