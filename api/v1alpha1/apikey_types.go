// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIKey lets a program use the project's REST API. The object contains only a hash of the key, so
// the manifest can be stored in Git. `agentctl apikey create` generates a key and prints it once.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=apikeys,singular=apikey,shortName=akey,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.id`
// +kubebuilder:selectablefield:JSONPath=`.spec.keyID`
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Key ID",type=string,JSONPath=`.spec.keyID`
// +kubebuilder:printcolumn:name="Display name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner.name`
// +kubebuilder:printcolumn:name="Access",type=string,JSONPath=`.spec.access`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`,priority=1
type APIKey struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the key.
	//
	// +required
	Spec APIKeySpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status APIKeyStatus `json:"status,omitempty"`
}

// KeyAccess selects all permissions or environments, or only the listed ones.
//
// +kubebuilder:validation:Enum=All;Selected
type KeyAccess string

// Kinds of access.
const (
	AccessAll      KeyAccess = "All"
	AccessSelected KeyAccess = "Selected"
)

// Permission is required by an endpoint of the REST API, `<section>.<action>`.
//
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z_]*[.][a-z][a-z_]*$')",message="must be <section>.<action>, such as environments.view"
type Permission string

// APIKeySpec is the desired state of a key.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: set it when the APIKey is created"
// +kubebuilder:validation:XValidation:rule="self.hash == oldSelf.hash",message="hash is immutable: for another key create another APIKey"
// +kubebuilder:validation:XValidation:rule="self.keyID == oldSelf.keyID",message="keyID is immutable: for another key create another APIKey"
// +kubebuilder:validation:XValidation:rule="self.owner == oldSelf.owner",message="owner is immutable: for another owner create another APIKey"
// +kubebuilder:validation:XValidation:rule="!oldSelf.?revoked.orValue(false) || self.?revoked.orValue(false)",message="revoked cannot be reverted: create another APIKey"
// +kubebuilder:validation:XValidation:rule="self.access == 'Selected' || !has(self.permissions) || size(self.permissions) == 0",message="permissions need access: Selected; with All the key has every permission"
// +kubebuilder:validation:XValidation:rule="self.environmentAccess == 'Selected' || !has(self.environments) || size(self.environments) == 0",message="environments need environmentAccess: Selected; with All the key reaches every environment"
type APIKeySpec struct {
	// ID is the key's ID in the REST API. If it is not set, the ID derives from the project's ID
	// and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// DisplayName is the key's name for people. Default: the object's name.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Hash is the SHA-256 of the whole key, in hexadecimal digits. It is
	// immutable.
	//
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="must be the SHA-256 of the whole key: 64 hexadecimal digits in lower case"
	Hash string `json:"hash"`

	// KeyID is the part of the key after ap_. It identifies the key in lookups and lists, and is
	// immutable.
	//
	// +required
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z]{8}$')",message="must be the 8 letters and digits that follow ap_ in the key"
	KeyID string `json:"keyID"`

	// Access is All for all permissions of the owner, or Selected for the ones in permissions.
	//
	// +optional
	// +kubebuilder:default=All
	Access KeyAccess `json:"access,omitempty"`

	// Permissions are the permissions of a key with access Selected; possibly none. The permissions
	// of retrieval, approvals, judges and budgets have no effect in this release, because it has no
	// endpoints for them.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=200
	Permissions []Permission `json:"permissions,omitempty"`

	// EnvironmentAccess is All for all environments of the project, or Selected for the ones in
	// environments.
	//
	// +optional
	// +kubebuilder:default=All
	EnvironmentAccess KeyAccess `json:"environmentAccess,omitempty"`

	// Environments are the names of the Environments that a key with environmentAccess Selected
	// reaches; possibly none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Environments []EnvironmentName `json:"environments,omitempty"`

	// Owner is the user or service account that the key acts for. A key never has more permissions
	// than its owner. It is immutable.
	//
	// +required
	Owner KeyOwner `json:"owner"`

	// ExpiresAt is when the key ends. Default: never, or one year after its creation if
	// owner.groups is set.
	//
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Revoked ends the key. It cannot be reverted.
	//
	// +optional
	Revoked bool `json:"revoked,omitempty"`
}

// OwnerKind is the kind of an API key's owner.
//
// +kubebuilder:validation:Enum=User;ServiceAccount
type OwnerKind string

// Kinds of owners.
const (
	OwnerUser           OwnerKind = "User"
	OwnerServiceAccount OwnerKind = "ServiceAccount"
)

// KeyOwner is the user or service account that an API key acts for, as in Kubernetes RBAC. Only
// that owner, or a user that can impersonate it, can create or change the key.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'ServiceAccount' || self.name.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="must be the name of a ServiceAccount of this namespace: lower-case letters, digits, '-' and '.'",fieldPath=".name"
// +kubebuilder:validation:XValidation:rule="!has(self.groups) || size(self.groups) == 0 || self.kind == 'User' && !self.name.startsWith('system:serviceaccount:')",message="a service account has the groups that Kubernetes gives it: remove groups",fieldPath=".groups"
type KeyOwner struct {
	// Kind is User, or ServiceAccount for one of this namespace.
	//
	// +required
	Kind OwnerKind `json:"kind"`

	// Name is the user's or the service account's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Groups are the user's groups that the key acts with. Groups of Kubernetes itself, `system:…`,
	// do not count. A key with groups ends at most one year after its creation. A service account
	// has the groups that Kubernetes gives it.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Groups []string `json:"groups,omitempty"`
}

// APIKeyStatus is the observed state of a key.
type APIKeyStatus struct {
	ObjectStatus `json:",inline"`
}

// APIKeyList is a list of APIKeys.
//
// +kubebuilder:object:root=true
type APIKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIKey `json:"items"`
}
