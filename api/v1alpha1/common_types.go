// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UUID is an ID that a user chose: a random UUID (version 4 or 7) in its canonical text form, in
// upper or lower case. IDs that the platform derives have another version, so a user cannot choose
// the ID of a future object.
//
// +kubebuilder:validation:MaxLength=36
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[47][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$')",message="must be a random UUID (version 4 or 7), such as 7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10; generate one with uuidgen"
type UUID string

// DeploymentID is the ID of a Deployment, chosen or derived.
//
// +kubebuilder:validation:MaxLength=36
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$')",message="must be the id of a Deployment, such as 7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10"
type DeploymentID string

// Name is the metadata.name of an object in the same namespace.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="must be the name of an object in this namespace: lower-case letters, digits, '-' and '.'"
type Name string

// QuantityPattern is the form of quantities of compute resources. It has no exponent: Kubernetes
// accepts "1e9.5", which is no quantity, and parses "1e-2147483648" for minutes.
const QuantityPattern = `^[0-9]{1,15}(\.[0-9]{1,9})?([mkMGTPE]|[KMGTPE]i)?$`

// DisplayName is a name for people. The generator hack/narrow writes the rule of
// internal/displayname.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type DisplayName string

// GitBranch is the name of a branch, without refs/heads/.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:XValidation:rule="self.matches('^[^-/.~^:?*\\\\[\\\\\\\\\\\\s][^~^:?*\\\\[\\\\\\\\\\\\s]*$') && !self.contains('..')",message="must be the name of a git branch, such as main or release/1.2"
type GitBranch string

// GitCommit is the full SHA-1 hash of a commit.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{40}$')",message="must be the full hash of a commit: 40 hexadecimal digits in lower case"
type GitCommit string

// AgentName is the name of an agent in its YAML file.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of an agent: lower-case letters, digits and '-'"
type AgentName string

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// Name is the name of the Secret.
	//
	// +required
	Name Name `json:"name"`
}

// SecretKeyReference names one key of a Secret in the same namespace.
type SecretKeyReference struct {
	// Name is the name of the Secret.
	//
	// +required
	Name Name `json:"name"`

	// Key is the key within the Secret's data.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="must be a key of a Secret: letters, digits, '-', '_' and '.'"
	Key string `json:"key"`
}

// ObjectStatus is the part of the status that all kinds share.
type ObjectStatus struct {
	// ObservedGeneration is the metadata.generation of the last completed reconciliation,
	// successful or not.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ID is the object's ID in the REST API and in webhook URLs: spec.id if it is set, else a
	// UUIDv5 of the project's ID and "Kind/name". It is empty while another object has the ID.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	ID string `json:"id,omitempty"`

	// Conditions describe the state of the object. Ready summarizes them.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
