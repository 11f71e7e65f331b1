// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupsLifetime is how long a key with groups lives at the most: nobody tells
// when its owner leaves one of them.
const GroupsLifetime = 365 * 24 * time.Hour

// MaxOwnerGroups is how many groups a key's owner may have: each is checked
// apart when the key is written.
const MaxOwnerGroups = 16

// Names and groups that Kubernetes itself gives.
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

// Subject is whom Kubernetes is asked about: the key's owner. Of the groups that
// the spec gives, those of Kubernetes itself do not count; a service account has
// the groups that Kubernetes gives it and no others.
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

// serviceAccountNamespace is the namespace of a service account's user name,
// system:serviceaccount:<namespace>:<name>.
func serviceAccountNamespace(user string) (string, bool) {
	account, ok := strings.CutPrefix(user, serviceAccountUser)
	namespace, name, both := strings.Cut(account, ":")
	return namespace, ok && both && namespace != "" && name != "" && !strings.Contains(name, ":")
}

func isSystemGroup(group string) bool { return strings.HasPrefix(group, systemPrefix) }

// EndsAt is when the key ends by time, nil for never: at spec.expiresAt, and
// with groups GroupsLifetime after its creation at the latest.
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

// Ended says whether the key is no longer in force: revoked, or its time is over.
func (k *APIKey) Ended(now time.Time) bool {
	at := k.EndsAt()
	return k.Spec.Revoked || at != nil && !at.After(now)
}

// UnknownPermissions are those that the spec lists and that do not exist.
func (k *APIKey) UnknownPermissions() []Permission {
	return slices.DeleteFunc(slices.Clone(k.Spec.Permissions), func(p Permission) bool {
		_, known := p.Access()
		return known
	})
}
