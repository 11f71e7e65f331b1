// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// NotReadyMessage returns the message of the controller about an object that is not ready.
func NotReadyMessage(o v1alpha1.ConditionedObject) string {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	if ready == nil || ready.Message == "" || ready.Status == metav1.ConditionTrue {
		return "the platform has not processed the object yet"
	}
	return ready.Message
}

// IsStalledBy reports whether a controller has rejected an object for a reason.
func IsStalledBy(o v1alpha1.ConditionedObject, reason string) bool {
	return v1alpha1.IsStalled(o) && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == reason
}

// DurationMS returns a duration in milliseconds, or nil.
func DurationMS(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// MaxClockSkew is how far an earlier decision may be ahead of this process's clock.
const MaxClockSkew = time.Minute
