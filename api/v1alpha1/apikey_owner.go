// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupsLifetime limits the lifetime of a key with groups, because the platform does not learn when
// its owner leaves a group.
const GroupsLifetime = 365 * 24 * time.Hour

// MaxOwnerGroups limits the groups of an owner. Each group is checked separately when the key is
// written.
const MaxOwnerGroups = 16

// Users and groups of Kubernetes itself.
const (
	systemPrefix         = "system:"
	groupAuthenticated   = "system:authenticated"
	groupServiceAccounts = "system:serviceaccounts"
	serviceAccountUser   = "system:serviceaccount:"
)

// Subject is a user with groups, as RBAC knows them.
//
// +kubebuilder:object:generate=false
type Subject struct {
	User   string
	Groups []string
}

// Subject returns the key's owner for access reviews. Groups of Kubernetes itself in the spec do
// not count. A service account has the groups that Kubernetes gives it and no others.
func (k *APIKey) Subject() Subject {
	owner := k.Spec.Owner
	user := owner.Name
	if owner.Kind == OwnerServiceAccount {
		user = serviceAccountUser + k.Namespace + ":" + owner.Name
	}
	if namespace, ok := serviceAccountNamespace(user); ok {
		return Subject{User: user, Groups: []string{groupServiceAccounts, groupServiceAccounts + ":" + namespace, groupAuthenticated}}
	}
	groups := slices.DeleteFunc(slices.Clone(owner.Groups), isSystemGroup)
	return Subject{User: user, Groups: append(groups, groupAuthenticated)}
}

// serviceAccountNamespace returns the namespace in a service account's user name,
// system:serviceaccount:<namespace>:<name>.
func serviceAccountNamespace(user string) (string, bool) {
	account, ok := strings.CutPrefix(user, serviceAccountUser)
	namespace, name, both := strings.Cut(account, ":")
	return namespace, ok && both && namespace != "" && name != "" && !strings.Contains(name, ":")
}

func isSystemGroup(group string) bool { return strings.HasPrefix(group, systemPrefix) }

// EndsAt returns when the key expires, or nil for never: spec.expiresAt, and with groups at most
// GroupsLifetime after the creation.
func (k *APIKey) EndsAt() *metav1.Time {
	if len(k.Spec.Owner.Groups) == 0 {
		return k.Spec.ExpiresAt
	}
	latest := metav1.NewTime(k.CreationTimestamp.Add(GroupsLifetime))
	if at := k.Spec.ExpiresAt; at != nil && at.Before(&latest) {
		return at
	}
	return &latest
}

// Ended reports whether the key is revoked or expired.
func (k *APIKey) Ended(now time.Time) bool {
	at := k.EndsAt()
	return k.Spec.Revoked || at != nil && !at.After(now)
}

// UnknownPermissions returns the permissions in the spec that do not exist.
func (k *APIKey) UnknownPermissions() []Permission {
	return slices.DeleteFunc(slices.Clone(k.Spec.Permissions), func(p Permission) bool {
		_, known := p.Access()
		return known
	})
}
