// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnvironmentName is the name of an Environment.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of an Environment: lower-case letters, digits and '-'"
type EnvironmentName string

// Environment is a place in which agents of the project live: it has one live
// deployment at a time, its own variables and connectors, and a pool of runner
// pods that execute its runs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=aenv,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.runner.minReplicas,statuspath=.status.runner.replicas,selectorpath=.status.runner.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.id`
// +kubebuilder:selectablefield:JSONPath=`.spec.displayName`
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:selectablefield:JSONPath=`.status.slug`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.status.default`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Live",type=string,JSONPath=`.status.liveDeployment`,description="The deployment that is live"
// +kubebuilder:printcolumn:name="Runners",type=integer,JSONPath=`.status.runner.readyReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="the name of an Environment must be at most 40 lower-case letters, digits and '-'; spec.displayName takes any name"
type Environment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the environment is asked to be.
	//
	// +required
	Spec EnvironmentSpec `json:"spec"`

	// Status is what the controllers have found and done.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status EnvironmentStatus `json:"status,omitempty"`
}

// EnvironmentKind tells standard environments from those for tests.
//
// +kubebuilder:validation:Enum=standard;test
type EnvironmentKind string

// Kinds of environments.
const (
	EnvironmentStandard EnvironmentKind = "standard"
	EnvironmentTest     EnvironmentKind = "test"
)

// EnvironmentSpec is what an environment is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the Environment is created, and neither set, changed nor removed later"
// +kubebuilder:validation:XValidation:rule="!has(self.testEnvironment) || self.kind != 'test'",message="testEnvironment is for environments of kind standard; a test environment tests in itself"
type EnvironmentSpec struct {
	// ID is the environment's id in the REST API. Without it the id derives from
	// the project's id and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// DisplayName is the environment's name for people, from which its slug is
	// made. Without it the object's name is used.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Kind is standard or test. The last standard environment cannot be deleted
	// through the REST API.
	//
	// +optional
	// +kubebuilder:default=standard
	Kind EnvironmentKind `json:"kind,omitempty"`

	// Git says which commits of the project's repository are deployed here.
	//
	// +optional
	// +kubebuilder:default={}
	Git EnvironmentGit `json:"git,omitempty"`

	// Variables are given to the agents' code and to `${NAME}` in connector
	// files. A change reaches new runner pods; runs under way resume there.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Variables []Variable `json:"variables,omitempty"`

	// Runner says how the pool of runner pods looks.
	//
	// +optional
	// +kubebuilder:default={}
	Runner RunnerPool `json:"runner,omitempty"`

	// TestEnvironment is the name of the Environment, of kind test, in which the
	// test phase of deployments to this one runs. Without it tests run with this
	// environment's own variables.
	//
	// +optional
	TestEnvironment EnvironmentName `json:"testEnvironment,omitempty"`

	// Suspend stops the controllers from starting deployments and from changing
	// runner pods. Webhooks and runs go on.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// EnvironmentGit says which commits are deployed to an environment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.commit) || !has(self.autoDeploy) || !self.autoDeploy",message="commit pins the environment and autoDeploy follows the branch: set one of them"
type EnvironmentGit struct {
	// Branch is the branch whose head a new deployment builds. Without it the
	// repository's default branch is built.
	//
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// Commit moves the environment to that commit, each time it changes: the
	// promotion from one environment to the next is one changed line in Git.
	//
	// +optional
	Commit GitCommit `json:"commit,omitempty"`

	// AutoDeploy makes every new head of the branch a Deployment.
	//
	// +optional
	AutoDeploy bool `json:"autoDeploy,omitempty"`

	// Interval is how often the branch is looked at for autoDeploy, at least 10s.
	//
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$')",message="must be a duration such as 90s, 5m or 720h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') || duration(self) >= duration('10s')",message="interval must be at least 10s"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// Variable is a named value for agents' code.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.secretKeyRef)",message="a variable has either value or secretKeyRef"
// +kubebuilder:validation:XValidation:rule="!has(self.sensitive) || !self.sensitive || has(self.secretKeyRef)",message="a sensitive variable must come from a Secret: use secretKeyRef instead of value"
type Variable struct {
	// Name is the variable's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="must be letters, digits and '_', not beginning with a digit"
	Name string `json:"name"`

	// Value is the value itself, for everybody to read who may read the
	// Environment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Value *string `json:"value,omitempty"`

	// SecretKeyRef names the key of a Secret that holds the value.
	//
	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`

	// Sensitive makes the REST API answer ******** in place of the value.
	//
	// +optional
	Sensitive bool `json:"sensitive,omitempty"`
}

// RunnerPool says how the runner pods of an environment look.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
type RunnerPool struct {
	// MinReplicas is how many runner pods there are at least. With 0 the pool
	// goes away while nothing is queued, and the first run waits for a pod.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is how many runner pods there are at most, when many runs are
	// queued. Without it: minReplicas, at least 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Concurrency is how many runs one pod executes at once.
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Concurrency int32 `json:"concurrency,omitempty"`

	// Resources are the compute resources of a runner pod.
	//
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// NodeSelector says which nodes runner pods may go to.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations let runner pods go to tainted nodes.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Affinity prefers or forbids nodes for runner pods.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// RuntimeClassName names the RuntimeClass of runner pods, for sandboxes such
	// as gVisor or Kata.
	//
	// +optional
	RuntimeClassName Name `json:"runtimeClassName,omitempty"`

	// ImagePullSecrets name Secrets with which the runner image is pulled.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// Labels are added to runner pods; the platform's own win.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to runner pods; the platform's own win.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// EnvironmentStatus is what the controllers have found and done.
type EnvironmentStatus struct {
	ObjectStatus `json:",inline"`

	// Slug is the environment's short name in the REST API, made from its display
	// name; empty while another environment holds it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Slug string `json:"slug,omitempty"`

	// Default says that this is the project's default environment.
	//
	// +optional
	Default bool `json:"default,omitempty"`

	// LiveDeployment is the name of the Deployment that is live.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LiveDeployment string `json:"liveDeployment,omitempty"`

	// LiveDeploymentID is the id of the deployment that is live. It stays when
	// the object of that deployment is gone.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	LiveDeploymentID string `json:"liveDeploymentID,omitempty"`

	// LiveCommit is the commit of the deployment that is live; empty for an
	// uploaded bundle.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LiveCommit string `json:"liveCommit,omitempty"`

	// DeployedCommit is the commit for which spec.git last made a Deployment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DeployedCommit string `json:"deployedCommit,omitempty"`

	// Runner is the state of the runner pool.
	//
	// +optional
	Runner RunnerPoolStatus `json:"runner,omitempty"`
}

// RunnerPoolStatus is the state of a pool of runner pods.
type RunnerPoolStatus struct {
	// Replicas is how many runner pods there are.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// ReadyReplicas is how many of them take runs.
	//
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Selector is the label selector of the pool's pods, for autoscalers.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`
}

// EnvironmentList is a list of Environments.
//
// +kubebuilder:object:root=true
type EnvironmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Environment `json:"items"`
}
