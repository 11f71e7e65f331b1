// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Deployment brings one version of the project's agents into an environment: it
// is built and, when all is well, made live. It is an event: what it asks for
// cannot be changed, its outcome is kept for good, and another version is another
// Deployment. A newer one to the same environment (created later or, within one
// second, with the later name) cancels those that are pending or building. apps/v1
// has a kind of this name too: say `kubectl get adep` or
// `deployments.agentplatform.dev`.
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
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="the name of a Deployment must be at most 63 lower-case letters, digits and '-': its pods carry it as a label"
type Deployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the deployment is asked to be. All of it but cancel and
	// activation is immutable.
	//
	// +required
	Spec DeploymentSpec `json:"spec"`

	// Status is what the controllers have found and done.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status DeploymentStatus `json:"status,omitempty"`
}

// DeploymentSpec is what a deployment is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the Deployment is created, and neither set, changed nor removed later"
// +kubebuilder:validation:XValidation:rule="self.environment == oldSelf.environment",message="environment is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.source == oldSelf.source",message="source is immutable: a Deployment is one version; create another Deployment"
// +kubebuilder:validation:XValidation:rule="has(self.redeployOf) == has(oldSelf.redeployOf) && (!has(self.redeployOf) || self.redeployOf == oldSelf.redeployOf)",message="redeployOf is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.?skipFailedConnectors.orValue(false) == oldSelf.?skipFailedConnectors.orValue(false)",message="skipFailedConnectors is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="self.?skipTests.orValue(false) == oldSelf.?skipTests.orValue(false)",message="skipTests is immutable: create another Deployment"
// +kubebuilder:validation:XValidation:rule="!oldSelf.?cancel.orValue(false) || self.?cancel.orValue(false)",message="cancel cannot be taken back: create another Deployment"
type DeploymentSpec struct {
	// ID is the deployment's id in the REST API. Without it the id derives from
	// the project's id and the object's name.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Environment is the name of the Environment to deploy to.
	//
	// +required
	Environment EnvironmentName `json:"environment"`

	// Source says what is deployed.
	//
	// +required
	Source DeploymentSource `json:"source"`

	// RedeployOf is the id of the deployment that this one repeats. It is shown; and
	// where the commit is the same one, it is built from the same folder of the
	// repository, whatever git.path of the Project has become.
	//
	// +optional
	RedeployOf DeploymentID `json:"redeployOf,omitempty"`

	// SkipFailedConnectors lets the deployment go live although connectors of its
	// code cannot be applied; those stay as they are.
	//
	// +optional
	SkipFailedConnectors bool `json:"skipFailedConnectors,omitempty"`

	// SkipTests leaves the test phase out: the repository's tests are read and
	// checked, and not run.
	//
	// +optional
	SkipTests bool `json:"skipTests,omitempty"`

	// Cancel stops a deployment that is pending or building. It cannot be taken
	// back, and does nothing to a deployment that has ended.
	//
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// Activation makes a deployed deployment the live one of its environment
	// (again), as in a rollback. A new deployment activates itself.
	//
	// +optional
	Activation *DeploymentActivation `json:"activation,omitempty"`
}

// DeploymentSource says what is deployed.
//
// +kubebuilder:validation:XValidation:rule="has(self.git) != has(self.bundle)",message="give one of git and bundle: a commit of the project's repository, or what was uploaded"
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

// DeploymentBundleSource names what was uploaded to the project.
type DeploymentBundleSource struct {
	// Digest is the SHA-256 of the bytes that were uploaded.
	//
	// +required
	Digest UploadDigest `json:"digest"`
}

// UploadDigest names bytes by their SHA-256.
//
// +kubebuilder:validation:MaxLength=71
// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="must be sha256: and 64 hexadecimal digits in lower case"
type UploadDigest string

// DeploymentGitSource names a commit of the project's repository.
type DeploymentGitSource struct {
	// Branch is the branch to build. Without it: the environment's branch, else
	// the repository's default branch.
	//
	// +optional
	Branch GitBranch `json:"branch,omitempty"`

	// Commit is the commit to build. Without it: the head of the branch when the
	// build starts.
	//
	// +optional
	Commit GitCommit `json:"commit,omitempty"`
}

// DeploymentActivation asks for a deployment to become live.
//
// +kubebuilder:validation:XValidation:rule="self.requestedAt >= oldSelf.requestedAt",message="requestedAt must not go back in time: a later time asks once more"
type DeploymentActivation struct {
	// RequestedAt is when the activation was asked for; a later time asks again. One that is more
	// than five minutes ahead is refused: remove activation, and ask with the time that it is.
	//
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Force makes the deployment live although connectors of its code cannot be
	// applied; those stay as they are. It belongs to the request: a later
	// requestedAt asks with the force of that time.
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

// DeploymentStep is what a building deployment is at.
//
// +kubebuilder:validation:Enum=Fetching;Packing;Testing;Connecting
type DeploymentStep string

// Steps of a building deployment, in their order.
const (
	StepFetching   DeploymentStep = "Fetching"
	StepPacking    DeploymentStep = "Packing"
	StepTesting    DeploymentStep = "Testing"
	StepConnecting DeploymentStep = "Connecting"
)

// DeploymentFailure says why a deployment failed.
//
// +kubebuilder:validation:Enum=BuildFailed;TestsFailed;ConnectorsFailed;DeadlineExceeded;StoreRestored
type DeploymentFailure string

// Reasons for which a deployment fails; they are condition reasons too.
const (
	FailureBuild      DeploymentFailure = ReasonBuildFailed
	FailureTests      DeploymentFailure = ReasonTestsFailed
	FailureConnectors DeploymentFailure = ReasonConnectorsFailed
	FailureDeadline   DeploymentFailure = ReasonDeadlineExceeded
	// FailureStoreRestored: the data store was restored from a backup that is
	// older than this deployment.
	FailureStoreRestored DeploymentFailure = ReasonStoreRestored
)

// ActivationResult is what became of a request to activate.
//
// +kubebuilder:validation:Enum=Activated;Superseded;ConnectorsFailed;NotDeployed;BundleGone;Failed
type ActivationResult string

// Results of an activation.
const (
	// ActivationActivated: the deployment became live.
	ActivationActivated ActivationResult = "Activated"
	// ActivationSuperseded: another deployment's activation was asked for later.
	ActivationSuperseded ActivationResult = "Superseded"
	// ActivationConnectorsFailed: a connector failed to apply, nothing changed.
	ActivationConnectorsFailed ActivationResult = "ConnectorsFailed"
	// ActivationNotDeployed: only a deployment with the phase Deployed can be
	// activated.
	ActivationNotDeployed ActivationResult = "NotDeployed"
	// ActivationBundleGone: what was built is not stored any more.
	ActivationBundleGone ActivationResult = "BundleGone"
	// ActivationFailed: the message says why.
	ActivationFailed ActivationResult = "Failed"
)

// DeploymentStatus is what the controllers have found and done. The store is the
// truth for a deployment's outcome; this is its copy.
type DeploymentStatus struct {
	ObjectStatus `json:",inline"`

	// Phase is the state of the deployment.
	//
	// +optional
	Phase DeploymentPhase `json:"phase,omitempty"`

	// Step is what a deployment in phase Building is at.
	//
	// +optional
	Step DeploymentStep `json:"step,omitempty"`

	// FailureReason says why a deployment in phase Failed failed.
	//
	// +optional
	FailureReason DeploymentFailure `json:"failureReason,omitempty"`

	// Message explains the phase to a person.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// Live says whether this is the live deployment of its environment. It is
	// always there, so that status.live=false can be selected.
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

	// Path is the folder of the repository that was built, the git.path that the Project
	// had when the build started, or that of what is built again; "" is the root. It is absent before, and of an upload.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Path *string `json:"path,omitempty"`

	// Bundle is what the build made.
	//
	// +optional
	Bundle *DeploymentBundle `json:"bundle,omitempty"`

	// AgentCount is how many agents the bundle has.
	//
	// +optional
	AgentCount int32 `json:"agentCount,omitempty"`

	// Agents are agents of the bundle, the first by name, up to 32 KiB of them; the
	// REST API lists them all.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Agents []DeploymentAgent `json:"agents,omitempty"`

	// Tests says how many test cases were run; without it none were, or not yet all.
	//
	// +optional
	Tests *DeploymentTests `json:"tests,omitempty"`

	// CommitStatus is what the repository's provider was told of the commit.
	//
	// +optional
	CommitStatus *DeploymentCommitStatus `json:"commitStatus,omitempty"`

	// Activation is what became of the last request in spec.activation.
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

	// ActivationRank orders the activations of all Deployments: each has a higher
	// one than those before, also within the second that activatedAt tells.
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

	// VariantOf is the agent of which this is an A/B variant.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	VariantOf string `json:"variantOf,omitempty"`
}

// DeploymentTests sums the test phase up.
type DeploymentTests struct {
	// Total is how many test cases were run.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// Failed is how many of them failed.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}

// CommitStatusReason says whether a provider was told of a commit.
//
// +kubebuilder:validation:Enum=Reported;ProviderUnknown;CredentialsMissing;Refused;Unreachable
type CommitStatusReason string

// Reasons of a commit's status.
const (
	// CommitStatusReported: the provider has taken state.
	CommitStatusReported CommitStatusReason = "Reported"
	// CommitStatusProviderUnknown: spec.git.provider of the Project names none, and
	// the host is nobody's who is known.
	CommitStatusProviderUnknown CommitStatusReason = "ProviderUnknown"
	// CommitStatusCredentialsMissing: the Secret of spec.git has no token.
	CommitStatusCredentialsMissing CommitStatusReason = "CredentialsMissing"
	// CommitStatusRefused: the provider has not taken it; the message has its answer.
	CommitStatusRefused CommitStatusReason = "Refused"
	// CommitStatusUnreachable: the provider gave no answer.
	CommitStatusUnreachable CommitStatusReason = "Unreachable"
)

// DeploymentCommitStatus is what the repository's provider was told of a commit.
type DeploymentCommitStatus struct {
	// State is the last one that the provider has taken: Pending, Success, Failure or
	// Error; empty for none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state,omitempty"`

	// Context is the name by which the provider knows that state; empty for none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Context string `json:"context,omitempty"`

	// Reason is Reported where that is the deployment's state of now, else why the
	// provider was not told of it.
	//
	// +required
	Reason CommitStatusReason `json:"reason"`

	// Message explains the reason to a person.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// DeploymentActivationStatus is what became of a request to activate.
type DeploymentActivationStatus struct {
	// RequestedAt is the time of the request, as spec.activation has it.
	//
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Result says whether the deployment became live.
	//
	// +required
	Result ActivationResult `json:"result"`

	// Message explains the result to a person.
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
