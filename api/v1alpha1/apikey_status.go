// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ObjectKind returns "APIKey".
func (k *APIKey) ObjectKind() string { return "APIKey" }

// SpecID returns spec.id, "" where it is not set.
func (k *APIKey) SpecID() string { return string(k.Spec.ID) }

// CommonStatus returns what every status has.
func (k *APIKey) CommonStatus() *ObjectStatus { return &k.Status.ObjectStatus }

// MarkReady: the key is in effect as asked. An empty message gets a plain one.
func (k *APIKey) MarkReady(message string) { markReady(k, message) }

// MarkReconciling: work is under way.
func (k *APIKey) MarkReconciling(reason, message string) {
	markReconciling(k, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (k *APIKey) MarkStalled(reason, message string) { markStalled(k, reason, message) }

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (k *APIKey) MarkIDTaken(holder string) { markIDTaken(k, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (k *APIKey) MarkReferenceMissing(kind, name string) { markReferenceMissing(k, kind, name) }

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (k *APIKey) MarkSecretMissing(name string) { markSecretMissing(k, name) }

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (k *APIKey) MarkSecretInvalid(name, problem string) { markSecretInvalid(k, name, problem) }

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (k *APIKey) MarkProjectMissing() { markProjectMissing(k) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (k *APIKey) MarkStoreUnavailable(cause error) { markStoreUnavailable(k, cause) }

// IsReady says whether Ready is True for the current generation.
func (k *APIKey) IsReady() bool { return isTrueNow(k, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (k *APIKey) IsStalled() bool { return isTrueNow(k, ConditionStalled) }

// MarkRevoked: the key was revoked. That is as asked, so nothing stalls.
func (k *APIKey) MarkRevoked() { markEnded(k, ReasonRevoked, "revoked: the key is refused") }

// MarkExpired: the key's time is over.
func (k *APIKey) MarkExpired() {
	markEnded(k, ReasonExpired, "expired: the key is refused; set a later spec.expiresAt, or create another key")
}

func markEnded(k *APIKey, reason, message string) {
	set(k, ConditionReady, metav1.ConditionTrue, reason, message)
	remove(k, ConditionReconciling)
	remove(k, ConditionStalled)
	k.Status.ObservedGeneration = k.Generation
}
