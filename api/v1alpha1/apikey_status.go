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

// SpecID returns spec.id, "" where it is not set.
func (k *APIKey) SpecID() string { return string(k.Spec.ID) }

// CommonStatus returns what every status has.
func (k *APIKey) CommonStatus() *ObjectStatus { return &k.Status.ObjectStatus }

// MarkRevoked: the key was revoked. That is as asked, so nothing stalls.
func (k *APIKey) MarkRevoked() { markEnded(k, ReasonRevoked, "revoked: the key is refused") }

// MarkExpired: the key's time is over.
func (k *APIKey) MarkExpired() {
	remedy := "set a later spec.expiresAt, or create another key"
	if len(k.Spec.Owner.Groups) > 0 {
		remedy = "a key with owner.groups ends a year after its creation at the latest: create another key, or set a later spec.expiresAt within that year"
	}
	markEnded(k, ReasonExpired, "expired: the key is refused; "+remedy)
}

// MarkInForce: the key is taken. The message says what of the spec does not
// count, and when a key ends whose spec does not say so.
func (k *APIKey) MarkInForce() {
	var notes []string
	if at := k.EndsAt(); at != nil && !at.Equal(k.Spec.ExpiresAt) {
		notes = append(notes, "until "+at.UTC().Format(time.RFC3339)+", for a key with owner.groups lasts a year")
	}
	if ignored := k.systemGroups(); len(ignored) > 0 {
		notes = append(notes, "without the groups of Kubernetes itself: "+strings.Join(ignored, ", "))
	}
	if len(notes) == 0 {
		MarkReady(k, "")
		return
	}
	MarkReady(k, "in effect "+strings.Join(notes, "; "))
}

// MarkUnknownPermissions: the spec lists permissions that do not exist. The
// others count.
func (k *APIKey) MarkUnknownPermissions(unknown []Permission) {
	names := make([]string, len(unknown))
	for i, p := range unknown {
		names[i] = string(p)
	}
	MarkStalled(k, ReasonPermissionUnknown, fmt.Sprintf(
		"spec.permissions: there is no permission %s, so it grants nothing; correct or remove it, the others count", strings.Join(names, ", ")))
}

// MarkUnknownEnvironments: the spec lists environments that do not exist (yet). The others count.
func (k *APIKey) MarkUnknownEnvironments(unknown []EnvironmentName) {
	names := make([]string, len(unknown))
	for i, name := range unknown {
		names[i] = fmt.Sprintf("%q", name)
	}
	MarkWaiting(k, ReasonReferenceMissing, fmt.Sprintf("spec.environments: there is no Environment %s in this namespace, so the key "+
		"reaches none of that name; create it, or name an Environment by its metadata.name; the others count", strings.Join(names, ", ")))
}

// systemGroups are the groups of the spec that do not count.
func (k *APIKey) systemGroups() []string {
	return slices.DeleteFunc(slices.Clone(k.Spec.Owner.Groups), func(g string) bool {
		return !isSystemGroup(g) || g == groupAuthenticated
	})
}
