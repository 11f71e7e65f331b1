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
// deployment at a time, its own connectors, and a pool of runner pods that
// execute its runs.
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
// +kubebuilder:printcolumn:name="Followed",type=string,JSONPath=`.status.conditions[?(@.type=="SourceFollowed")].status`,description="Whether the commit that spec.git asks for is live or on its way"
// +kubebuilder:printcolumn:name="Runners",type=integer,JSONPath=`.status.runner.readyReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Commit",type=string,JSONPath=`.status.liveCommit`,priority=1,description="The commit that is live"
// +kubebuilder:printcolumn:name="Seen",type=string,JSONPath=`.status.seenCommit`,priority=1,description="The newest commit of the branch that is followed"
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
// +kubebuilder:validation:Enum=Standard;Test
type EnvironmentKind string

// Kinds of environments.
const (
	EnvironmentStandard EnvironmentKind = "Standard"
	EnvironmentTest     EnvironmentKind = "Test"
)

// EnvironmentSpec is what an environment is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the Environment is created, and neither set, changed nor removed later"
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

	// Kind is Standard or Test. A test environment does not count as the last one of
	// a project, and is not deleted by the REST API while somebody tests in it.
	//
	// +optional
	// +kubebuilder:default=Standard
	Kind EnvironmentKind `json:"kind,omitempty"`

	// TestEnvironment names another Environment of the project, whose configuration the
	// tests of deployments to this one are run with. Without it they are run with that
	// of this one.
	//
	// +optional
	TestEnvironment EnvironmentName `json:"testEnvironment,omitempty"`

	// Git says which branch of the project's repository is built for this
	// environment.
	//
	// +optional
	// +kubebuilder:default={}
	Git EnvironmentGit `json:"git,omitempty"`

	// Variables are values that the environment's agents and connectors are
	// configured with: {env.NAME} in prompts. Together they have at most 256 KiB.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Variables []EnvironmentVariable `json:"variables,omitempty"`

	// Runner says how the pool of runner pods looks.
	//
	// +optional
	// +kubebuilder:default={}
	Runner RunnerPool `json:"runner,omitempty"`

	// Suspend stops the controllers from starting deployments and from changing
	// runner pods. Webhooks and runs go on.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// VariableName is the name of a variable.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z_][A-Z0-9_]*$')",message="must be the name of a variable: capital letters, digits and '_', and no digit first"
type VariableName string

// EnvironmentVariable is a value that differs between environments. It stands
// here, in a Secret of the user's, or sealed.
//
// +kubebuilder:validation:XValidation:rule="(has(self.value) ? 1 : 0) + (has(self.secretKeyRef) ? 1 : 0) + (has(self.sealedValue) ? 1 : 0) == 1",message="a variable has exactly one of value, secretKeyRef and sealedValue"
type EnvironmentVariable struct {
	// Name is what it is called by.
	//
	// +required
	Name VariableName `json:"name"`

	// Value is the value itself, readable to whoever reads this object.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Value *string `json:"value,omitempty"`

	// SecretKeyRef names the key of a Secret that holds the value.
	//
	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`

	// SealedValue is a value that the REST API has sealed; nobody else can write it.
	// Others use secretKeyRef.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=12000
	SealedValue string `json:"sealedValue,omitempty"`

	// Sensitive hides a value in the REST API, and keeps it out of what models are
	// told. Values of Secrets and sealed ones are sensitive in any case.
	//
	// +optional
	Sensitive bool `json:"sensitive,omitempty"`
}

// EnvironmentGit says where the commits of an environment come from.
//
// +kubebuilder:validation:XValidation:rule="!has(self.commit) || !self.?autoDeploy.orValue(false)",message="set either commit or autoDeploy: an environment that follows a branch is at no commit of somebody's choice"
// +kubebuilder:validation:XValidation:rule="!has(self.intervalSeconds) || self.?autoDeploy.orValue(false)",message="intervalSeconds is for environments with autoDeploy: no other follows a branch"
type EnvironmentGit struct {
	// Branch is the branch whose head a new deployment builds. Without it the
	// repository's default branch is built.
	//
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// Commit is the commit that the environment is to be at. Where it changes, the
	// commit is deployed; one that was deployed here before, and whose Deployment
	// is still there, is activated again without a build.
	//
	// +optional
	Commit GitCommit `json:"commit,omitempty"`

	// AutoDeploy deploys every new head of the branch, but for those that leave
	// git.path of the Project as it is.
	//
	// +optional
	AutoDeploy bool `json:"autoDeploy,omitempty"`

	// IntervalSeconds is how often the repository is asked for the branch's head.
	// Without it every 60 seconds. Of several environments of a project the
	// shortest counts.
	//
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// RunnerPool says how the runner pods of an environment look.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || self.maxReplicas >= (has(self.minReplicas) ? self.minReplicas : 1)",message="maxReplicas must be at least minReplicas",fieldPath=".maxReplicas"
type RunnerPool struct {
	// MinReplicas is how many runner pods there are; with maxReplicas, how many there are
	// at least. Without any pod runs wait.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas lets the pool scale by the runs that wait and those that are under way,
	// from minReplicas up to so many runner pods: up at once, down after five minutes (or as
	// long as the operator says) in which fewer would have done. Without it: the pool does not scale.
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
	Resources RunnerResources `json:"resources,omitempty"`

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

// RunnerResources are the compute resources of a container: quantities such as
// 500m, 2 or 1Gi, without an exponent.
type RunnerResources struct {
	// Requests are what a pod is guaranteed. Without it: what the plan says.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Limits are what a pod may use at most, and at most what the plan allows.
	// Without it: what the plan says.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu"
	Limits corev1.ResourceList `json:"limits,omitempty"`
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

	// LivePath is the folder of the repository that the deployment that is live was built
	// from; "" is the root. It is absent for an uploaded bundle.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	LivePath *string `json:"livePath,omitempty"`

	// SeenCommit is the newest commit of the branch that spec.git follows, as it was
	// last seen; empty where it follows none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SeenCommit string `json:"seenCommit,omitempty"`

	// Git is what spec.git has led to.
	//
	// +optional
	Git *EnvironmentGitStatus `json:"git,omitempty"`

	// Runner is the state of the runner pool.
	//
	// +optional
	Runner RunnerPoolStatus `json:"runner,omitempty"`

	// TestSession is who tests in a test environment, as the REST API was told.
	//
	// +optional
	TestSession *TestSession `json:"testSession,omitempty"`
}

// TestSession says that somebody tests in an environment. It ends by itself.
type TestSession struct {
	// Holder is who tests, in their own words.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder"`

	// ExpiresAt is when the session ends, unless it is renewed.
	//
	// +required
	ExpiresAt metav1.Time `json:"expiresAt"`
}

// EnvironmentGitStatus is what spec.git has led to.
type EnvironmentGitStatus struct {
	// Commit is the last one that was deployed for spec.git, or was live already.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Commit string `json:"commit,omitempty"`

	// Tree names what git.path of the Project held at that commit; commits that leave
	// it as it is are not deployed. Without a path, or where the server of the
	// repository does not tell, every commit is.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Tree string `json:"tree,omitempty"`

	// Path is the git.path of the Project that the commit was taken from: another one is
	// another source, of which the commit is built anew.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Path *string `json:"path,omitempty"`

	// Variables is a digest of the variables that the environment had then, empty without
	// any. A Deployment that failed by its connectors is tried again when it changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Variables string `json:"variables,omitempty"`

	// Deployment is the name of the Deployment that was made for it, or activated.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Deployment string `json:"deployment,omitempty"`

	// Revision counts what was decided so far. It is part of the names of the
	// Deployments, so that each decision has its own.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
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
