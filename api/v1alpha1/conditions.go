// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxMessage is the most bytes of a condition's message.
const maxMessage = 1024

// ConditionedObject is an object of this group, whatever its kind.
//
// +kubebuilder:object:generate=false
type ConditionedObject interface {
	runtime.Object
	metav1.Object

	// ObjectKind is the kind's name, such as "Environment"; unlike TypeMeta it is
	// always filled.
	ObjectKind() string
	// SpecID is spec.id, "" where it is not set.
	SpecID() string
	// CommonStatus is the part of the status that every kind has.
	CommonStatus() *ObjectStatus

	// Unsupported are the fields, with their values, that ask for what this
	// release does not do, such as "spec.mode: outbound". It looks at the spec
	// alone.
	Unsupported() []string
}

// summary is a kind some of whose conditions follow from what Ready says.
//
// +kubebuilder:object:generate=false
type summary interface {
	// readyWas sets the conditions that follow from Ready's new reason.
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

// Condition returns the condition of a type, nil when it is absent.
func (s *ObjectStatus) Condition(conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, conditionType)
}

// IsTrue says whether a condition is there and True.
func (s *ObjectStatus) IsTrue(conditionType string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, conditionType)
}

// set writes a condition for the object's present generation.
func set(o ConditionedObject, conditionType string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&o.CommonStatus().Conditions, metav1.Condition{
		Type:               conditionType,
		Status:             status,
		ObservedGeneration: o.GetGeneration(),
		Reason:             reason,
		Message:            clip(message),
	})
}

// remove makes a condition absent.
func remove(o ConditionedObject, conditionType string) {
	meta.RemoveStatusCondition(&o.CommonStatus().Conditions, conditionType)
}

// MarkReady ends a reconciliation: the object is in effect as asked. An empty
// message gets a plain one.
func MarkReady(o ConditionedObject, message string) {
	if message == "" {
		message = "in effect"
	}
	markEnded(o, ReasonSucceeded, message)
}

// markEnded ends a reconciliation well, for a reason of its own.
func markEnded(o ConditionedObject, reason, message string) {
	setReady(o, metav1.ConditionTrue, reason, message)
	remove(o, ConditionReconciling)
	remove(o, ConditionStalled)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

// MarkReconciling says that work is under way. It leaves observedGeneration
// behind: kstatus waits until the controller has come to an end.
func MarkReconciling(o ConditionedObject, reason, message string) {
	markUnderWay(o, metav1.ConditionUnknown, reason, message)
}

// MarkWaiting is MarkReconciling for what is wrong now and may mend itself, as
// when manifests are applied in no particular order: Ready is False.
func MarkWaiting(o ConditionedObject, reason, message string) {
	markUnderWay(o, metav1.ConditionFalse, reason, message)
}

func markUnderWay(o ConditionedObject, ready metav1.ConditionStatus, reason, message string) {
	setReady(o, ready, reason, message)
	set(o, ConditionReconciling, metav1.ConditionTrue, reason, message)
	remove(o, ConditionStalled)
}

// MarkStalled ends a reconciliation: somebody has to change something.
func MarkStalled(o ConditionedObject, reason, message string) {
	setReady(o, metav1.ConditionFalse, reason, message)
	set(o, ConditionStalled, metav1.ConditionTrue, reason, message)
	remove(o, ConditionReconciling)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

func setReady(o ConditionedObject, status metav1.ConditionStatus, reason, message string) {
	set(o, ConditionReady, status, reason, message)
	if s, ok := o.(summary); ok {
		s.readyWas(reason, clip(message))
	}
}

// MarkRetrying: something went wrong, problem, that may mend itself.
func MarkRetrying(o ConditionedObject, problem string) {
	markRetrying(o, ReasonProgressing, "trying again: "+problem)
}

// markRetrying leaves Ready alone where the present generation is in effect: that
// it could not be looked at again takes nothing from it.
func markRetrying(o ConditionedObject, reason, message string) {
	if !IsReady(o) {
		MarkReconciling(o, reason, message)
		return
	}
	set(o, ConditionReconciling, metav1.ConditionTrue, reason, message)
}

// MarkIDTaken: the object's id is held by holder, `Kind namespace/name`, of the
// same project.
func MarkIDTaken(o ConditionedObject, holder string) {
	o.CommonStatus().ID = ""
	MarkStalled(o, ReasonIDTaken, fmt.Sprintf("the id is held by %s; delete this one and create it with a new UUID as spec.id", holder))
}

// MarkReferenceMissing: the object of that kind and name, which the spec names,
// does not exist (yet).
func MarkReferenceMissing(o ConditionedObject, kind, name string) {
	MarkWaiting(o, ReasonReferenceMissing, fmt.Sprintf("%s %q does not exist in this namespace; create it, or correct the name", kind, name))
}

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func MarkSecretMissing(o ConditionedObject, name string) {
	MarkWaiting(o, ReasonSecretMissing, fmt.Sprintf("Secret %q does not exist in this namespace; create it, or correct the name", name))
}

// MarkSecretInvalid: a Secret that the spec names cannot be used, because of
// problem.
func MarkSecretInvalid(o ConditionedObject, name, problem string) {
	MarkWaiting(o, ReasonSecretInvalid, fmt.Sprintf("Secret %q cannot be used: %s", name, problem))
}

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func MarkProjectMissing(o ConditionedObject) {
	MarkWaiting(o, ReasonProjectMissing,
		fmt.Sprintf("this namespace has no Project that is ready; create one with the name %q, or see what it says", ProjectName))
}

// MarkStoreUnavailable: the data store does not answer. Its errors name hosts and
// users of the operator, so they are for the log alone.
func MarkStoreUnavailable(o ConditionedObject) {
	markRetrying(o, ReasonStoreUnavailable, "the data store does not answer; it is tried again, and the manager's log has the cause")
}

// IsReady says whether Ready is True for the current generation.
func IsReady(o ConditionedObject) bool { return isTrueNow(o, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func IsStalled(o ConditionedObject) bool { return isTrueNow(o, ConditionStalled) }

func isTrueNow(o ConditionedObject, conditionType string) bool {
	c := o.CommonStatus().Condition(conditionType)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.GetGeneration()
}

// clip cuts a message to maxMessage bytes, at the border of a character.
func clip(message string) string {
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
