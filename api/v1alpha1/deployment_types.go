// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Deployment builds one version of the project's agents and makes it live in an environment. It
// records an event: its spec is immutable and its outcome is kept. To deploy another version,
// create another Deployment. A newer Deployment to the same environment (by creation time, or by
// name within one second) cancels pending and building ones. apps/v1 also has a kind Deployment:
// use `kubectl get adep` or `deployments.agentplatform.dev`.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=adep,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.id`
// +kubebuilder:selectablefield:JSONPath=`.spec.environment`
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.live`
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.spec.environment`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Live",type=boolean,JSONPath=`.status.live`
// +kubebuilder:printcolumn:name="Commit",type=string,JSONPath=`.status.commit`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="the name of a Deployment must be at most 63 lower-case letters, digits and '-': its pods have it as a label"
type Deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the deployment. It is immutable except for cancel and
	// activation.
	//
	// +required
	Spec DeploymentSpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status DeploymentStatus `json:"status,omitempty"`
}

// DeploymentSpec is the desired state of a deployment.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: set it when the Deployment is created"
// +kubebuilder:validation:XValidation:rule="self.environment == oldSelf.environment",message="environment is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.source == oldSelf.source",message="source is immutable: a Deployment is one version; create another Deployment"
// +kubebuilder:validation:XValidation:rule="has(self.redeployOf) == has(oldSelf.redeployOf) && (!has(self.redeployOf) || self.redeployOf == oldSelf.redeployOf)",message="redeployOf is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.?skipFailedConnectors.orValue(false) == oldSelf.?skipFailedConnectors.orValue(false)",message="skipFailedConnectors is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.?skipTests.orValue(false) == oldSelf.?skipTests.orValue(false)",message="skipTests is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="!oldSelf.?cancel.orValue(false) || self.?cancel.orValue(false)",message="cancel cannot be reverted: create another Deployment"
type DeploymentSpec struct {
	// ID is the deployment's ID in the REST API. If it is not set, the ID derives from the
	// project's ID and the object's name.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Environment is the name of the Environment to deploy to.
	//
	// +required
	Environment EnvironmentName `json:"environment"`

	// Source is the commit or the upload to deploy.
	//
	// +required
	Source DeploymentSource `json:"source"`

	// RedeployOf is the ID of the deployment that this one repeats. If the commit is the same, the
	// build uses the same folder of the repository, even if git.path of the Project has changed.
	//
	// +optional
	RedeployOf DeploymentID `json:"redeployOf,omitempty"`

	// SkipFailedConnectors makes the deployment live even if connectors in code cannot be applied.
	// Those connectors do not change.
	//
	// +optional
	SkipFailedConnectors bool `json:"skipFailedConnectors,omitempty"`

	// SkipTests skips the test phase. The tests are still validated.
	//
	// +optional
	SkipTests bool `json:"skipTests,omitempty"`

	// Cancel stops a pending or building deployment. It cannot be reverted and has no effect on an
	// ended deployment.
	//
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// Activation makes a deployed version live again, for example for a rollback. A new deployment
	// activates itself.
	//
	// +optional
	Activation *DeploymentActivation `json:"activation,omitempty"`
}

// DeploymentSource is the commit or the upload to deploy.
//
// +kubebuilder:validation:XValidation:rule="has(self.git) != has(self.bundle)",message="set one of git and bundle: a commit of the project's repository, or an upload"
type DeploymentSource struct {
	// Git deploys a commit of the project's repository; `git: {}` is the head of
	// the environment's branch.
	//
	// +optional
	Git *DeploymentGitSource `json:"git,omitempty"`

	// Bundle deploys a folder that was uploaded to the project by the REST API.
	//
	// +optional
	Bundle *DeploymentBundleSource `json:"bundle,omitempty"`
}

// DeploymentBundleSource names an upload of the project.
type DeploymentBundleSource struct {
	// Digest is the SHA-256 of the upload.
	//
	// +required
	Digest UploadDigest `json:"digest"`
}

// UploadDigest is the SHA-256 of an upload.
//
// +kubebuilder:validation:MaxLength=71
// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 hexadecimal digits in lower case"
type UploadDigest string

// DeploymentGitSource names a commit of the project's repository.
type DeploymentGitSource struct {
	// Branch is the branch to build. Default: the environment's branch, else the repository's
	// default branch.
	//
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// Commit is the commit to build. Default: the head of the branch when the build starts.
	//
	// +optional
	Commit GitCommit `json:"commit,omitempty"`
}

// DeploymentActivation requests that a deployment becomes live.
//
// +kubebuilder:validation:XValidation:rule="self.requestedAt >= oldSelf.requestedAt",message="requestedAt must not decrease: a later time is a new request"
type DeploymentActivation struct {
	// RequestedAt is the time of the request. A later time is a new request. A time more than five
	// minutes in the future is rejected: remove activation and use the current time.
	//
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Force makes the deployment live even if connectors in code cannot be applied. Those
	// connectors do not change. It applies to this request only.
	//
	// +optional
	Force bool `json:"force,omitempty"`
}

// DeploymentPhase is the state of a deployment.
//
// +kubebuilder:validation:Enum=Pending;Building;Deployed;Failed;Cancelled
type DeploymentPhase string

// States of a deployment: Pending → Building → Deployed, Failed or Cancelled.
const (
	DeploymentPending   DeploymentPhase = "Pending"
	DeploymentBuilding  DeploymentPhase = "Building"
	DeploymentDeployed  DeploymentPhase = "Deployed"
	DeploymentFailed    DeploymentPhase = "Failed"
	DeploymentCancelled DeploymentPhase = "Cancelled"
)

// DeploymentStep is a step of a build.
//
// +kubebuilder:validation:Enum=Fetching;Packing;Testing;Connecting
type DeploymentStep string

// Steps of a build in order.
const (
	StepFetching   DeploymentStep = "Fetching"
	StepPacking    DeploymentStep = "Packing"
	StepTesting    DeploymentStep = "Testing"
	StepConnecting DeploymentStep = "Connecting"
)

// DeploymentFailure is the reason for a failed deployment.
//
// +kubebuilder:validation:Enum=BuildFailed;TestsFailed;ModelProviderMissing;ConnectorsFailed;DeadlineExceeded;StoreRestored
type DeploymentFailure string

// Reasons for failed deployments. They are also condition reasons.
const (
	FailureBuild         DeploymentFailure = ReasonBuildFailed
	FailureTests         DeploymentFailure = ReasonTestsFailed
	FailureModelProvider DeploymentFailure = ReasonModelProviderMissing
	FailureConnectors    DeploymentFailure = ReasonConnectorsFailed
	FailureDeadline      DeploymentFailure = ReasonDeadlineExceeded
	// FailureStoreRestored: the data store was restored from a backup that is
	// older than this deployment.
	FailureStoreRestored DeploymentFailure = ReasonStoreRestored
)

// ActivationResult is the result of an activation request.
//
// +kubebuilder:validation:Enum=Activated;Superseded;ModelProviderMissing;ConnectorsFailed;NotDeployed;BundleGone;Failed
type ActivationResult string

// Results of an activation.
const (
	// ActivationActivated: the deployment became live.
	ActivationActivated ActivationResult = "Activated"
	// ActivationSuperseded: a later request activated another deployment.
	ActivationSuperseded ActivationResult = "Superseded"
	// ActivationModelProviderMissing: an agent names a model whose provider the project does not
	// have, and nothing changed.
	ActivationModelProviderMissing ActivationResult = ReasonModelProviderMissing
	// ActivationConnectorsFailed: a connector could not be applied, and nothing changed.
	ActivationConnectorsFailed ActivationResult = "ConnectorsFailed"
	// ActivationNotDeployed: the deployment does not have the phase Deployed.
	ActivationNotDeployed ActivationResult = "NotDeployed"
	// ActivationBundleGone: the build is no longer stored.
	ActivationBundleGone ActivationResult = "BundleGone"
	// ActivationFailed: the message has the cause.
	ActivationFailed ActivationResult = "Failed"
)

// DeploymentStatus is the observed state of a deployment. The store has the authoritative outcome;
// this is a copy.
type DeploymentStatus struct {
	ObjectStatus `json:",inline"`

	// Phase is the state of the deployment.
	//
	// +optional
	Phase DeploymentPhase `json:"phase,omitempty"`

	// Step is the current step in the phase Building.
	//
	// +optional
	Step DeploymentStep `json:"step,omitempty"`

	// FailureReason is the reason for the phase Failed.
	//
	// +optional
	FailureReason DeploymentFailure `json:"failureReason,omitempty"`

	// Message explains the phase.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// Live is true if this is the live deployment of its environment. It is always set, so that
	// status.live=false can be selected.
	//
	// +optional
	// +kubebuilder:default=false
	Live bool `json:"live"`

	// Branch is the branch that was built.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`

	// Commit is the commit that was built.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Commit string `json:"commit,omitempty"`

	// Path is the folder of the repository that was built: git.path of the Project when the build
	// started, or the folder of the repeated deployment. "" is the root. It is absent before the
	// build and for an upload.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Path *string `json:"path,omitempty"`

	// Bundle is the result of the build.
	//
	// +optional
	Bundle *DeploymentBundle `json:"bundle,omitempty"`

	// AgentCount is the number of agents in the bundle.
	//
	// +optional
	AgentCount int32 `json:"agentCount,omitempty"`

	// Agents are the first agents of the bundle by name, up to 32 KiB. The REST API lists all of
	// them.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Agents []DeploymentAgent `json:"agents,omitempty"`

	// Tests counts the test cases. It is absent without tests and before their end.
	//
	// +optional
	Tests *DeploymentTests `json:"tests,omitempty"`

	// CommitStatus is the commit status at the Git provider.
	//
	// +optional
	CommitStatus *DeploymentCommitStatus `json:"commitStatus,omitempty"`

	// Activation is the result of the last request in spec.activation.
	//
	// +optional
	Activation *DeploymentActivationStatus `json:"activation,omitempty"`

	// StartedAt is when the build started.
	//
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// EndedAt is when the deployment was deployed, failed or was cancelled.
	//
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// ActivatedAt is when the deployment last became live.
	//
	// +optional
	ActivatedAt *metav1.Time `json:"activatedAt,omitempty"`

	// ActivationRank orders the activations of all Deployments. Each activation has a higher rank
	// than the ones before, even within one second.
	//
	// +optional
	ActivationRank int64 `json:"activationRank,omitempty"`
}

// DeploymentBundle is the bundle of a deployment.
type DeploymentBundle struct {
	// Digest is the SHA-256 of the bundle, "sha256:" and hexadecimal digits.
	//
	// +required
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest"`

	// Size is the bundle's size in bytes.
	//
	// +optional
	Size int64 `json:"size,omitempty"`
}

// DeploymentAgent is an agent of a bundle.
type DeploymentAgent struct {
	// Name is the agent's name.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Type is the agent's type, such as llm.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Type string `json:"type,omitempty"`

	// VariantOf is the agent with this A/B variant.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	VariantOf string `json:"variantOf,omitempty"`
}

// DeploymentTests counts the test cases.
type DeploymentTests struct {
	// Total is the number of test cases.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// Failed is the number of failed test cases.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}

// CommitStatusReason is the reason of a commit status.
//
// +kubebuilder:validation:Enum=Reported;ProviderUnknown;CredentialsMissing;Refused;Unreachable
type CommitStatusReason string

// Reasons of a commit status.
const (
	// CommitStatusReported: the provider has accepted the state.
	CommitStatusReported CommitStatusReason = "Reported"
	// CommitStatusProviderUnknown: spec.git.provider of the Project is not set and the host is
	// unknown.
	CommitStatusProviderUnknown CommitStatusReason = "ProviderUnknown"
	// CommitStatusCredentialsMissing: the Secret of spec.git has no token.
	CommitStatusCredentialsMissing CommitStatusReason = "CredentialsMissing"
	// CommitStatusRefused: the provider rejected the status. The message has its response.
	CommitStatusRefused CommitStatusReason = "Refused"
	// CommitStatusUnreachable: the provider did not respond.
	CommitStatusUnreachable CommitStatusReason = "Unreachable"
)

// DeploymentCommitStatus is the commit status at the Git provider.
type DeploymentCommitStatus struct {
	// State is the last state that the provider accepted: Pending, Success, Failure or Error; empty
	// if there is none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state,omitempty"`

	// Context is the name of the status at the provider; empty if there is none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Context string `json:"context,omitempty"`

	// Reason is Reported if the provider has the current state. Otherwise it is the reason why it
	// does not.
	//
	// +required
	Reason CommitStatusReason `json:"reason"`

	// Message explains the reason.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// DeploymentActivationStatus is the result of an activation request.
type DeploymentActivationStatus struct {
	// RequestedAt is the time of the request in spec.activation.
	//
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Result is the result of the request.
	//
	// +required
	Result ActivationResult `json:"result"`

	// Message explains the result.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// DeploymentList is a list of Deployments.
//
// +kubebuilder:object:root=true
type DeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Deployment `json:"items"`
}
