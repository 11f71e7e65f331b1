// SPDX-License-Identifier: Apache-2.0

package object

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// maxNote is the most bytes of an event's note.
const maxNote = 1000

// announce sends an event when Ready has another state or reason than before.
func (k *Keeper) announce(before, after v1alpha1.ConditionedObject) {
	was, is := before.CommonStatus().Condition(v1alpha1.ConditionReady), after.CommonStatus().Condition(v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if is.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	k.Event(after, kind, is.Reason, is.Message)
}

// Event records an event about an object.
func (k *Keeper) Event(o v1alpha1.ConditionedObject, kind, reason, note string) {
	if k.Events == nil {
		return
	}
	if len(note) > maxNote {
		note = note[:maxNote]
	}
	k.Events.Eventf(o, nil, kind, reason, "Reconcile", "%s", note)
}
