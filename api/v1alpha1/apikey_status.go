// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ObjectKind returns "APIKey".
func (k *APIKey) ObjectKind() string { return "APIKey" }

// SpecID returns spec.id, or "" if it is not set.
func (k *APIKey) SpecID() string { return string(k.Spec.ID) }

// CommonStatus returns the part of the status that all kinds share.
func (k *APIKey) CommonStatus() *ObjectStatus { return &k.Status.ObjectStatus }

// MarkRevoked reports that the key was revoked as requested, so it is not stalled.
func (k *APIKey) MarkRevoked() { markEnded(k, ReasonRevoked, "revoked; the key is rejected") }

// MarkExpired reports that the key has expired.
func (k *APIKey) MarkExpired() {
	remedy := "set a later spec.expiresAt, or create another key"
	if len(k.Spec.Owner.Groups) > 0 {
		remedy = "a key with owner.groups expires at most a year after its creation; create another key, or set a later spec.expiresAt within that year"
	}
	markEnded(k, ReasonExpired, "expired; the key is rejected; "+remedy)
}

// MarkInForce reports that the key works. The message names ignored groups, and the expiry if the
// spec does not set one.
func (k *APIKey) MarkInForce() {
	var notes []string
	if at := k.EndsAt(); at != nil && !at.Equal(k.Spec.ExpiresAt) {
		notes = append(notes, "until "+at.UTC().Format(time.RFC3339)+", because a key with owner.groups is valid for a year")
	}
	if ignored := k.systemGroups(); len(ignored) > 0 {
		notes = append(notes, "without the groups of Kubernetes: "+strings.Join(ignored, ", "))
	}
	if len(notes) == 0 {
		MarkReady(k, "")
		return
	}
	MarkReady(k, "in effect "+strings.Join(notes, "; "))
}

// MarkUnknownPermissions reports permissions in the spec that do not exist. The other permissions
// work.
func (k *APIKey) MarkUnknownPermissions(unknown []Permission) {
	names := make([]string, len(unknown))
	for i, p := range unknown {
		names[i] = string(p)
	}
	MarkStalled(k, ReasonPermissionUnknown, fmt.Sprintf(
		"spec.permissions: unknown permission %s; correct or remove it; the other permissions are in effect", strings.Join(names, ", ")))
}

// MarkUnknownEnvironments reports environments in the spec that do not exist yet. The other
// environments work.
func (k *APIKey) MarkUnknownEnvironments(unknown []EnvironmentName) {
	names := make([]string, len(unknown))
	for i, name := range unknown {
		names[i] = fmt.Sprintf("%q", name)
	}
	MarkWaiting(k, ReasonReferenceMissing, fmt.Sprintf("spec.environments: this namespace has no Environment %s, so the key "+
		"cannot access it; create it, or use the metadata.name of an Environment; the other environments are in effect", strings.Join(names, ", ")))
}

// systemGroups returns the groups in the spec that do not count.
func (k *APIKey) systemGroups() []string {
	return slices.DeleteFunc(slices.Clone(k.Spec.Owner.Groups), func(g string) bool {
		return !isSystemGroup(g) || g == groupAuthenticated
	})
}
