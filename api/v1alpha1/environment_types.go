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

// Environment runs one version of the project's agents. It has one live deployment at a time, its
// own connectors and variables, and a pool of runner pods that execute its runs.
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
// +kubebuilder:printcolumn:name="Followed",type=string,JSONPath=`.status.conditions[?(@.type=="SourceFollowed")].status`,description="Whether the commit that spec.git asks for is live or being deployed"
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

	// Spec is the desired state of the environment.
	//
	// +required
	Spec EnvironmentSpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status EnvironmentStatus `json:"status,omitempty"`
}

// EnvironmentKind distinguishes standard and test environments.
//
// +kubebuilder:validation:Enum=Standard;Test
type EnvironmentKind string

// Kinds of environments.
const (
	EnvironmentStandard EnvironmentKind = "Standard"
	EnvironmentTest     EnvironmentKind = "Test"
)

// EnvironmentSpec is the desired state of an environment.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: set it when the Environment is created"
type EnvironmentSpec struct {
	// ID is the environment's ID in the REST API. If it is not set, the ID derives from the
	// project's ID and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// DisplayName is the environment's name for people. The slug derives from it. Default: the
	// object's name.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Kind is Standard or Test. A test environment does not count as the last one of a project, and
	// the REST API does not delete it during a test session.
	//
	// +optional
	// +kubebuilder:default=Standard
	Kind EnvironmentKind `json:"kind,omitempty"`

	// TestEnvironment names another Environment of the project. The tests of deployments to this
	// one use its configuration. Default: this environment.
	//
	// +optional
	TestEnvironment EnvironmentName `json:"testEnvironment,omitempty"`

	// Git selects the branch or commit to deploy.
	//
	// +optional
	// +kubebuilder:default={}
	Git EnvironmentGit `json:"git,omitempty"`

	// Variables are values for the environment's agents and connectors, such as {env.NAME} in
	// prompts. They have at most 256 KiB in total.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Variables []EnvironmentVariable `json:"variables,omitempty"`

	// OAuthApps are client registrations at authorization servers. HTTP tools, OpenAPI tools and MCP
	// servers name one as oauth_app and send its access token.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	OAuthApps []OAuthApp `json:"oauthApps,omitempty"`

	// Runner configures the pool of runner pods.
	//
	// +optional
	// +kubebuilder:default={}
	Runner RunnerPool `json:"runner,omitempty"`

	// Suspend stops new deployments and changes of runner pods. Webhooks and runs continue.
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

// EnvironmentVariable is a value that differs between environments. The value is in this object, in
// a Secret, or sealed.
//
// +kubebuilder:validation:XValidation:rule="(has(self.value) ? 1 : 0) + (has(self.secretKeyRef) ? 1 : 0) + (has(self.sealedValue) ? 1 : 0) == 1",message="a variable has exactly one of value, secretKeyRef and sealedValue"
type EnvironmentVariable struct {
	// Name is the name of the variable.
	//
	// +required
	Name VariableName `json:"name"`

	// Value is the value, readable to anyone who can read this object.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Value *string `json:"value,omitempty"`

	// SecretKeyRef names the key of a Secret that holds the value.
	//
	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`

	// SealedValue is a value that the REST API sealed. Only the REST API can write it; manifests
	// use secretKeyRef.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=12000
	SealedValue string `json:"sealedValue,omitempty"`

	// Sensitive hides a value in the REST API and from models. Values from Secrets and sealed
	// values are always sensitive.
	//
	// +optional
	Sensitive bool `json:"sensitive,omitempty"`
}

// EnvironmentGit selects the commits of an environment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.commit) || !self.?autoDeploy.orValue(false)",message="set either commit or autoDeploy: an environment that follows a branch cannot be pinned to a commit"
// +kubebuilder:validation:XValidation:rule="!has(self.intervalSeconds) || self.?autoDeploy.orValue(false)",message="intervalSeconds needs autoDeploy: other environments follow no branch"
type EnvironmentGit struct {
	// Branch is the branch that a deployment builds if it names none. Default: the repository's
	// default branch.
	//
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// Commit is the commit that the environment must run. The platform deploys it when this field
	// changes. If the commit was deployed here before and its Deployment still exists, the platform
	// activates it without a build.
	//
	// +optional
	Commit GitCommit `json:"commit,omitempty"`

	// AutoDeploy deploys each new head of the branch that changes git.path of the Project.
	//
	// +optional
	AutoDeploy bool `json:"autoDeploy,omitempty"`

	// IntervalSeconds is the poll interval of the branch. Default: 60 seconds. The shortest
	// interval in the project applies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// RunnerPool configures the runner pods of an environment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || self.maxReplicas >= (has(self.minReplicas) ? self.minReplicas : 1)",message="maxReplicas must be at least minReplicas",fieldPath=".maxReplicas"
type RunnerPool struct {
	// MinReplicas is the number of runner pods, or the minimum if maxReplicas is set. Without a
	// pod, runs wait.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas turns on autoscaling from minReplicas up to this number of runner pods. The pool
	// grows immediately. It shrinks if fewer pods were enough for five minutes, or for the window that
	// the platform operator sets. Default: no scaling.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Concurrency is the number of runs that one pod executes at the same time.
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

	// NodeSelector limits the nodes of runner pods.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations let runner pods be scheduled on tainted nodes.
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

	// ImagePullSecrets name the Secrets for pulling the runner image.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// Labels are added to runner pods. Labels of the platform take precedence.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to runner pods. Annotations of the platform take precedence.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RunnerResources are the compute resources of a container: quantities such as
// 500m, 2 or 1Gi, without an exponent.
type RunnerResources struct {
	// Requests are the guaranteed resources of a pod. Default: the requests of the plan.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Limits are the maximum resources of a pod, within the limits of the plan. Default: the limits
	// of the plan.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// EnvironmentStatus is the observed state of an environment.
type EnvironmentStatus struct {
	ObjectStatus `json:",inline"`

	// Slug is the environment's short name in the REST API, derived from its display name; empty
	// while another environment has it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Slug string `json:"slug,omitempty"`

	// Default is true for the project's default environment.
	//
	// +optional
	Default bool `json:"default,omitempty"`

	// LiveDeployment is the name of the live Deployment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LiveDeployment string `json:"liveDeployment,omitempty"`

	// LiveDeploymentID is the ID of the live deployment. It remains if the Deployment object is
	// deleted.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	LiveDeploymentID string `json:"liveDeploymentID,omitempty"`

	// LiveCommit is the commit of the live deployment; empty for an upload.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LiveCommit string `json:"liveCommit,omitempty"`

	// LivePath is the folder of the repository that the live deployment was built from; "" is the
	// root. It is absent for an upload.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	LivePath *string `json:"livePath,omitempty"`

	// ToolsDriftedAt is the time at which a tool was last added to the condition ToolsDrifted; absent
	// without the condition.
	//
	// +optional
	ToolsDriftedAt *metav1.Time `json:"toolsDriftedAt,omitempty"`

	// SeenCommit is the head of the followed branch at the last successful poll; empty if spec.git
	// follows no branch.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SeenCommit string `json:"seenCommit,omitempty"`

	// Git is the last deployment that spec.git caused.
	//
	// +optional
	Git *EnvironmentGitStatus `json:"git,omitempty"`

	// Runner is the state of the runner pool.
	//
	// +optional
	Runner RunnerPoolStatus `json:"runner,omitempty"`

	// TestSession is the test session that the REST API started.
	//
	// +optional
	TestSession *TestSession `json:"testSession,omitempty"`
}

// TestSession reserves a test environment. It expires automatically.
type TestSession struct {
	// Holder is a label of the program or person that tests.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Holder string `json:"holder"`

	// ExpiresAt is when the session expires unless it is renewed.
	//
	// +required
	ExpiresAt metav1.Time `json:"expiresAt"`
}

// EnvironmentGitStatus is the last deployment that spec.git caused.
type EnvironmentGitStatus struct {
	// Commit is the last commit that was deployed for spec.git or was already live.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Commit string `json:"commit,omitempty"`

	// Tree identifies the content of git.path of the Project at that commit. Commits that do not
	// change it are not deployed. If there is no path, or if the Git server does not support
	// partial fetches, each commit is deployed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Tree string `json:"tree,omitempty"`

	// Path is the git.path of the Project for that commit. A commit with another path is built
	// again.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Path *string `json:"path,omitempty"`

	// Variables is a digest of the environment's variables at that time, empty if there are none.
	// If it changes, a Deployment that failed because of its connectors is retried.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Variables string `json:"variables,omitempty"`

	// OAuthApps is a digest of the environment's OAuth apps at that time, empty if there are none. If
	// it changes, a Deployment whose build failed is retried.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OAuthApps string `json:"oauthApps,omitempty"`

	// ModelProviders is a digest of the prefixes of the project's model providers at that time, empty
	// if there are none. If it changes, a Deployment that failed because of a missing provider is
	// retried.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ModelProviders string `json:"modelProviders,omitempty"`

	// Deployment is the name of the Deployment that was created or activated.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Deployment string `json:"deployment,omitempty"`

	// Revision counts the decisions. It is part of the names of the Deployments, so each decision
	// has its own.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
}

// RunnerPoolStatus is the state of a pool of runner pods.
type RunnerPoolStatus struct {
	// Replicas is the number of runner pods.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// ReadyReplicas is the number of ready runner pods.
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
