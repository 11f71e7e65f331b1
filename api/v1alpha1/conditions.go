// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxMessage limits a condition's message, in bytes.
const maxMessage = 1024

// ConditionedObject is an object of any kind of this group.
//
// +kubebuilder:object:generate=false
type ConditionedObject interface {
	runtime.Object
	metav1.Object

	// ObjectKind returns the kind's name, such as "Environment". Unlike TypeMeta it is always set.
	ObjectKind() string
	// SpecID returns spec.id, or "" if it is not set.
	SpecID() string
	// CommonStatus returns the part of the status that all kinds share.
	CommonStatus() *ObjectStatus

	// Unsupported returns the unsupported fields of the spec with their values, such as "spec.mode:
	// outbound".
	Unsupported() []string
}

// summary is a kind with conditions that follow from Ready.
//
// +kubebuilder:object:generate=false
type summary interface {
	// readyWas sets the conditions that follow from the new reason of Ready.
	readyWas(reason, message string)
}

var (
	_ ConditionedObject = (*Project)(nil)
	_ ConditionedObject = (*Environment)(nil)
	_ ConditionedObject = (*Deployment)(nil)
	_ ConditionedObject = (*Connector)(nil)
	_ ConditionedObject = (*ConnectorLink)(nil)
	_ ConditionedObject = (*APIKey)(nil)
)

// Condition returns the condition of a type, or nil if it is absent.
func (s *ObjectStatus) Condition(conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, conditionType)
}

// IsTrue reports whether a condition is present and True.
func (s *ObjectStatus) IsTrue(conditionType string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, conditionType)
}

// setCondition writes a condition for the object's current generation.
func setCondition(o ConditionedObject, conditionType string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&o.CommonStatus().Conditions, metav1.Condition{
		Type:               conditionType,
		Status:             status,
		ObservedGeneration: o.GetGeneration(),
		Reason:             reason,
		Message:            truncateMessage(message),
	})
}

// removeCondition deletes a condition.
func removeCondition(o ConditionedObject, conditionType string) {
	meta.RemoveStatusCondition(&o.CommonStatus().Conditions, conditionType)
}

// MarkReady completes a reconciliation: the object matches its spec. An empty message gets a
// default.
func MarkReady(o ConditionedObject, message string) {
	if message == "" {
		message = "in effect"
	}
	markEnded(o, ReasonSucceeded, message)
}

// markEnded completes a reconciliation with success and the given reason.
func markEnded(o ConditionedObject, reason, message string) {
	setReady(o, metav1.ConditionTrue, reason, message)
	removeCondition(o, ConditionReconciling)
	removeCondition(o, ConditionStalled)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

// MarkReconciling reports that work is in progress. It does not change observedGeneration, because
// kstatus waits for it.
func MarkReconciling(o ConditionedObject, reason, message string) {
	markUnderWay(o, metav1.ConditionUnknown, reason, message)
}

// MarkWaiting is MarkReconciling with Ready False, for a problem that can go away without a change,
// such as manifests that are applied in any order.
func MarkWaiting(o ConditionedObject, reason, message string) {
	markUnderWay(o, metav1.ConditionFalse, reason, message)
}

func markUnderWay(o ConditionedObject, ready metav1.ConditionStatus, reason, message string) {
	setReady(o, ready, reason, message)
	setCondition(o, ConditionReconciling, metav1.ConditionTrue, reason, message)
	removeCondition(o, ConditionStalled)
}

// InvalidSpecMessage returns the message of ReasonInvalidSpec for a problem of a spec. A new object has no earlier values.
func InvalidSpecMessage(problem string) string {
	return problem + "; earlier valid values, if any, stay in effect"
}

// MarkStalled completes a reconciliation: a user has to change something.
func MarkStalled(o ConditionedObject, reason, message string) {
	setReady(o, metav1.ConditionFalse, reason, message)
	setCondition(o, ConditionStalled, metav1.ConditionTrue, reason, message)
	removeCondition(o, ConditionReconciling)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

func setReady(o ConditionedObject, status metav1.ConditionStatus, reason, message string) {
	setCondition(o, ConditionReady, status, reason, message)
	if s, ok := o.(summary); ok {
		s.readyWas(reason, truncateMessage(message))
	}
}

// MarkRetrying reports a temporary problem.
func MarkRetrying(o ConditionedObject, problem string) {
	markRetrying(o, ReasonProgressing, "trying again: "+problem)
}

// markRetrying does not change Ready if the current generation is in effect, because a failed check
// does not end that.
func markRetrying(o ConditionedObject, reason, message string) {
	if !IsReady(o) {
		MarkReconciling(o, reason, message)
		return
	}
	setCondition(o, ConditionReconciling, metav1.ConditionTrue, reason, message)
}

// MarkIDTaken reports that holder, `Kind namespace/name`, has the object's ID in the same project.
func MarkIDTaken(o ConditionedObject, holder string) {
	o.CommonStatus().ID = ""
	MarkStalled(o, ReasonIDTaken, fmt.Sprintf("%s holds the ID; delete this object and create it with a new UUID as spec.id", holder))
}

// MarkReferenceMissing reports that an object in the spec does not exist yet.
func MarkReferenceMissing(o ConditionedObject, kind, name string) {
	MarkWaiting(o, ReasonReferenceMissing, fmt.Sprintf("%s %q does not exist in this namespace; create it, or correct the name", kind, name))
}

// MarkSecretMissing reports that a Secret in the spec does not exist yet.
func MarkSecretMissing(o ConditionedObject, name string) {
	MarkWaiting(o, ReasonSecretMissing, fmt.Sprintf("Secret %q does not exist in this namespace; create it, or correct the name", name))
}

// MarkSecretInvalid reports that a Secret in the spec cannot be used.
func MarkSecretInvalid(o ConditionedObject, name, problem string) {
	MarkWaiting(o, ReasonSecretInvalid, fmt.Sprintf("Secret %q cannot be used: %s", name, problem))
}

// MarkProjectMissing reports that the namespace has no ready Project yet.
func MarkProjectMissing(o ConditionedObject) {
	MarkWaiting(o, ReasonProjectMissing,
		fmt.Sprintf("this namespace has no ready Project; create one with the name %q, or see its conditions", ProjectName))
}

// MarkStoreUnavailable reports that the data store does not respond. Its errors contain hosts and
// users of the platform operator, so only the log has them.
func MarkStoreUnavailable(o ConditionedObject) {
	markRetrying(o, ReasonStoreUnavailable, "the store is unavailable; the platform retries, and the manager's log has the cause")
}

// IsReady reports whether Ready is True for the current generation.
func IsReady(o ConditionedObject) bool { return isTrueNow(o, ConditionReady) }

// IsStalled reports whether Stalled is True for the current generation.
func IsStalled(o ConditionedObject) bool { return isTrueNow(o, ConditionStalled) }

func isTrueNow(o ConditionedObject, conditionType string) bool {
	c := o.CommonStatus().Condition(conditionType)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.GetGeneration()
}

// truncateMessage cuts a message to maxMessage bytes at a character boundary.
func truncateMessage(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const dots = "…"
	end := maxMessage - len(dots)
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + dots
}
