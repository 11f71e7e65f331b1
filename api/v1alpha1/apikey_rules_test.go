// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newAPIKey() *v1alpha1.APIKey {
	return &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Name: "ci"},
		Spec: v1alpha1.APIKeySpec{
			Hash: strings.Repeat("0a", 32), KeyID: "Ab3dEf7h",
			Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci"},
		},
	}
}

const accountGroupsMessage = "a service account has the groups that Kubernetes gives it: remove groups"

var apiKeyBreaches = []breach[*v1alpha1.APIKey]{
	{
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(k *v1alpha1.APIKey) { k.Spec.ID = "one" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(k *v1alpha1.APIKey) { k.Spec.ID = derivedID },
	}, {
		name: "id set later", path: ".spec", update: true,
		message: "id is immutable: set it when the APIKey is created",
		change:  func(k *v1alpha1.APIKey) { k.Spec.ID = someID },
	}, {
		name: "the key itself", path: ".spec.hash", message: "must be the SHA-256 of the whole key: 64 hexadecimal digits in lower case",
		change: func(k *v1alpha1.APIKey) { k.Spec.Hash = "ap_Ab3dEf7h_0123456789012345678901234567_012345" },
	}, {
		name: "an end that is no time", path: ".spec.expiresAt", message: timeMessage,
		change: func(k *v1alpha1.APIKey) { k.Spec.ExpiresAt = &noTime },
	}, {
		name: "another hash", path: ".spec", update: true, message: "hash is immutable: for another key create another APIKey",
		change: func(k *v1alpha1.APIKey) { k.Spec.Hash = strings.Repeat("0b", 32) },
	}, {
		name: "key id that cannot be", path: ".spec.keyID", message: "must be the 8 letters and digits that follow ap_ in the key",
		change: func(k *v1alpha1.APIKey) { k.Spec.KeyID = "ap_Ab3d" },
	}, {
		name: "another key id", path: ".spec", update: true, message: "keyID is immutable: for another key create another APIKey",
		change: func(k *v1alpha1.APIKey) { k.Spec.KeyID = "00000000" },
	}, {
		name: "another owner", path: ".spec", update: true, message: "owner is immutable: for another owner create another APIKey",
		change: func(k *v1alpha1.APIKey) { k.Spec.Owner.Name = "another" },
	}, {
		name: "groups of a service account", path: ".spec.owner", message: accountGroupsMessage,
		change: func(k *v1alpha1.APIKey) { k.Spec.Owner.Groups = []string{"dev"} },
	}, {
		name: "groups of a user that is a service account", path: ".spec.owner", message: accountGroupsMessage,
		change: func(k *v1alpha1.APIKey) {
			k.Spec.Owner = v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "system:serviceaccount:argocd:deployer", Groups: []string{"dev"}}
		},
	}, {
		name: "no service account's name", path: ".spec.owner",
		message: "must be the name of a ServiceAccount of this namespace: lower-case letters, digits, '-' and '.'",
		change:  func(k *v1alpha1.APIKey) { k.Spec.Owner.Name = "a:b" },
	}, {
		name: "revocation taken back", path: ".spec", message: "revoked cannot be reverted: create another APIKey",
		before: func(k *v1alpha1.APIKey) { k.Spec.Revoked = true },
		change: func(k *v1alpha1.APIKey) { k.Spec.Revoked = false },
	}, {
		name: "permissions that do not narrow", path: ".spec",
		message: "permissions need access: Selected; with All the key has every permission",
		change:  func(k *v1alpha1.APIKey) { k.Spec.Permissions = []v1alpha1.Permission{"environments.view"} },
	}, {
		name: "environments that do not narrow", path: ".spec",
		message: "environments need environmentAccess: Selected; with All the key reaches every environment",
		change:  func(k *v1alpha1.APIKey) { k.Spec.Environments = []v1alpha1.EnvironmentName{"production"} },
	}, {
		name: "environment that cannot be", path: ".spec.environments[]", message: environmentMessage,
		change: func(k *v1alpha1.APIKey) {
			k.Spec.EnvironmentAccess, k.Spec.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"*"}
		},
	}, {
		name: "permission that cannot be", path: ".spec.permissions[]", message: "must be <section>.<action>, such as environments.view",
		change: func(k *v1alpha1.APIKey) {
			k.Spec.Access, k.Spec.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.*"}
		},
	},
}

func TestAPIKey_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newAPIKey, apiKeyBreaches)
}

func TestAPIKey_AcceptsValid(t *testing.T) {
	t.Parallel()
	accept(t, newAPIKey, []valid[*v1alpha1.APIKey]{
		{name: "as it is", change: func(*v1alpha1.APIKey) {}},
		{name: "nothing allowed", change: func(k *v1alpha1.APIKey) { k.Spec.Access = v1alpha1.AccessSelected }},
		{name: "narrow", change: func(k *v1alpha1.APIKey) {
			k.Spec.Access, k.Spec.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"connectors.link", "mcp_servers.view"}
			k.Spec.EnvironmentAccess, k.Spec.Environments = v1alpha1.AccessSelected, named[v1alpha1.EnvironmentName](256)
		}},
		{name: "revoked later", update: true, change: func(k *v1alpha1.APIKey) { k.Spec.Revoked = true }},
		{name: "a user with groups", change: func(k *v1alpha1.APIKey) {
			k.Spec.Owner = v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna@example.com", Groups: named[string](16)}
		}},
		{name: "renamed", update: true, change: func(k *v1alpha1.APIKey) { k.Spec.DisplayName = "CI" }},
	})
}
