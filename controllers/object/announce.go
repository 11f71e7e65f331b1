// SPDX-License-Identifier: Apache-2.0

package object

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
)

const (
	// maxNote is the most bytes of an event's note.
	maxNote = 1000
	// eventInterval is the least time between two events of one reason about one
	// object; what flaps faster is told by the conditions.
	eventInterval = time.Minute
	// eventsKept is how many objects and reasons are told apart for that, and of how
	// many objects it is known whether they were warned about.
	eventsKept = 10_000
)

// eventKey is an object and a reason.
type eventKey struct {
	object types.UID
	reason string
}

// announce sends an event when Ready has another state or reason than before, and
// that is news: what is under way, and then in effect as it was asked for, its status
// tells, unless the last event about the object is a warning. Thousands of objects
// may be applied at once.
func (b *Base) announce(before, after v1alpha1.ConditionedObject) {
	was, is := before.CommonStatus().Condition(v1alpha1.ConditionReady), after.CommonStatus().Condition(v1alpha1.ConditionReady)
	if is == nil || is.Reason == v1alpha1.ReasonProgressing || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	ready := is.Status
	if is.Reason == v1alpha1.ReasonBuildBlocked { // under way, and it does not go on
		ready = metav1.ConditionFalse
	}
	warned := b.noteWarning(after.GetUID(), ready)
	if is.Reason == v1alpha1.ReasonSucceeded && !warned && (was == nil || was.Status == metav1.ConditionUnknown) {
		return
	}
	kind := corev1.EventTypeNormal
	if ready == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	b.Event(after, kind, is.Reason, is.Message)
}

// noteWarning notes what Ready has become, and says whether the object was warned
// about since it was ready. A manager that was started since does not know.
func (b *Base) noteWarning(object types.UID, ready metav1.ConditionStatus) (warned bool) {
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
		b.recent = cache.New[eventKey, struct{}](eventsKept, eventInterval, b.Now)
		b.warned = cache.New[types.UID, bool](eventsKept, 0, b.Now)
	})
}

// Event records an event about an object, at most one a reason and minute.
func (b *Base) Event(o v1alpha1.ConditionedObject, kind, reason, note string) {
	if b.Events == nil {
		return
	}
	key := eventKey{o.GetUID(), reason}
	b.makeCaches()
	if _, told := b.recent.Get(key); told {
		return
	}
	b.recent.Put(key, struct{}{})
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "")
	}
	b.Events.Eventf(o, nil, kind, reason, "Reconcile", "%s", note)
}
