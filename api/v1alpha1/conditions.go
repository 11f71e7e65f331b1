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

	// MarkReady ends a reconciliation: the object is in effect as asked.
	MarkReady(message string)
	// MarkReconciling says that work is under way, or that the controller waits
	// for something that may come by itself.
	MarkReconciling(reason, message string)
	// MarkStalled ends a reconciliation: somebody has to change something.
	MarkStalled(reason, message string)
	// MarkIDTaken: the object's id is held by holder, `Kind namespace/name`, of the
	// same project.
	MarkIDTaken(holder string)
	// MarkReferenceMissing: the object of that kind and name, which the spec
	// names, does not exist.
	MarkReferenceMissing(kind, name string)
	// MarkSecretMissing: the Secret does not exist.
	MarkSecretMissing(name string)
	// MarkSecretInvalid: the Secret cannot be used, because of problem.
	MarkSecretInvalid(name, problem string)
	// MarkProjectMissing: the namespace has no Project that is ready.
	MarkProjectMissing()
	// MarkStoreUnavailable: the data store does not answer. Its errors name hosts
	// and users of the operator, so they are for the log alone.
	MarkStoreUnavailable()

	// IsReady says whether Ready is True for the current generation.
	IsReady() bool
	// IsStalled says whether Stalled is True for the current generation.
	IsStalled() bool
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

func markReady(o ConditionedObject, message string) {
	if message == "" {
		message = "in effect"
	}
	set(o, ConditionReady, metav1.ConditionTrue, ReasonSucceeded, message)
	remove(o, ConditionReconciling)
	remove(o, ConditionStalled)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

// markReconciling leaves observedGeneration behind: kstatus waits until the
// controller has come to an end.
func markReconciling(o ConditionedObject, status metav1.ConditionStatus, reason, message string) {
	set(o, ConditionReady, status, reason, message)
	set(o, ConditionReconciling, metav1.ConditionTrue, reason, message)
	remove(o, ConditionStalled)
}

func markStalled(o ConditionedObject, reason, message string) {
	set(o, ConditionReady, metav1.ConditionFalse, reason, message)
	set(o, ConditionStalled, metav1.ConditionTrue, reason, message)
	remove(o, ConditionReconciling)
	o.CommonStatus().ObservedGeneration = o.GetGeneration()
}

// markWaiting is for what is wrong now and may mend itself, as when manifests
// are applied in no particular order.
func markWaiting(o ConditionedObject, reason, message string) {
	markReconciling(o, metav1.ConditionFalse, reason, message)
}

func markIDTaken(o ConditionedObject, holder string) {
	o.CommonStatus().ID = ""
	markStalled(o, ReasonIDTaken, fmt.Sprintf("the id is held by %s; delete this one and create it with a new UUID as spec.id", holder))
}

func markReferenceMissing(o ConditionedObject, kind, name string) {
	markWaiting(o, ReasonReferenceMissing, fmt.Sprintf("%s %q does not exist in this namespace; create it, or correct the name", kind, name))
}

func markSecretMissing(o ConditionedObject, name string) {
	markWaiting(o, ReasonSecretMissing, fmt.Sprintf("Secret %q does not exist in this namespace; create it, or correct the name", name))
}

func markSecretInvalid(o ConditionedObject, name, problem string) {
	markWaiting(o, ReasonSecretInvalid, fmt.Sprintf("Secret %q cannot be used: %s", name, problem))
}

func markProjectMissing(o ConditionedObject) {
	markWaiting(o, ReasonProjectMissing,
		fmt.Sprintf("this namespace has no Project that is ready; create one with the name %q, or see what it says", ProjectName))
}

func markStoreUnavailable(o ConditionedObject) {
	markWaiting(o, ReasonStoreUnavailable, "the data store does not answer; it is tried again, and the manager's log has the cause")
}

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
