// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of every kind, as kstatus reads them. Polarity: "positive" is good
// when True, "negative" is bad or unfinished when True and absent otherwise.
const (
	// ConditionReady: the object is in effect as its spec asks. Positive. It sums
	// up the others; Unknown while the first reconciliation is under way, never
	// absent once a controller has seen the object.
	ConditionReady = "Ready"
	// ConditionReconciling: the controller is at work or waits for something that
	// may come by itself. Negative; absent when it has come to an end.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: nothing goes on until somebody changes something; reason
	// and message say what. Negative; absent when it is well or under way.
	ConditionStalled = "Stalled"
)

// Conditions of a Deployment. Each is positive, Unknown while its step is under
// way, and absent while its step has not begun.
const (
	// ConditionSourceFetched: the commit or the uploaded bundle is there.
	ConditionSourceFetched = "SourceFetched"
	// ConditionBuilt: the repository is valid and its bundle is stored.
	ConditionBuilt = "Built"
	// ConditionTestsPassed: every test case passed, or there was none (reason
	// Skipped).
	ConditionTestsPassed = "TestsPassed"
	// ConditionConnectorsApplied: the code-defined connectors are as the bundle
	// has them, or it has none (reason Skipped).
	ConditionConnectorsApplied = "ConnectorsApplied"
	// ConditionLive: this is the version that the environment runs. False when
	// another one took over; absent before the deployment was ever live.
	ConditionLive = "Live"
)

// Conditions of a Connector.
const (
	// ConditionSecretReady: the connector's secrets are derived or read, and its
	// child Secret shows them. Positive.
	ConditionSecretReady = "SecretReady"
	// ConditionRoutesReady: the projection that the gateway reads is committed for
	// this generation. Positive.
	ConditionRoutesReady = "RoutesReady"
	// ConditionDelivering: an outbound connector sends what there is. False while it
	// is paused or disabled, or while its destination fails; the message says since
	// when. Positive; absent of others.
	ConditionDelivering = "Delivering"
)

// Conditions of a ConnectorLink.
const (
	// ConditionReferencesResolved: connector, environment and agent are there.
	// Positive.
	ConditionReferencesResolved = "ReferencesResolved"
)

// Conditions of a Project.
const (
	// ConditionNetworkReady: what stands around the project's pods is there: the
	// NetworkPolicies, and the certificate that they trust. No pod is made
	// before. Positive.
	ConditionNetworkReady = "NetworkReady"
	// ConditionPlanInvalid: the Namespace's annotation with the project's plan
	// cannot be read, and the platform's own plan holds in its place. Negative;
	// absent otherwise.
	ConditionPlanInvalid = "PlanInvalid"
)

// Conditions of an Environment.
const (
	// ConditionRunnersReady: as many runners as the pool asks for take runs.
	// Positive.
	ConditionRunnersReady = "RunnersReady"
	// ConditionDeploymentLive: the environment has a deployment that is live. Positive; it
	// says nothing of Ready, for an environment may have none yet.
	ConditionDeploymentLive = "DeploymentLive"
	// ConditionSourceFollowed: the commit that spec.git asks for is known, and is
	// live or on its way. Positive; absent where spec.git follows nothing.
	ConditionSourceFollowed = "SourceFollowed"
	// ConditionSourceSeen: at the last look it was seen where the branch stands that spec.git
	// follows. Positive; absent where it follows none, and until somebody has looked.
	ConditionSourceSeen = "SourceSeen"
)

// Reasons that several kinds use.
const (
	// ReasonSucceeded: all is as the spec asks.
	ReasonSucceeded = "Succeeded"
	// ReasonProgressing: the controller is at work.
	ReasonProgressing = "Progressing"
	// ReasonSuspended: spec.suspend holds the controllers back.
	ReasonSuspended = "Suspended"
	// ReasonDisabled: spec.enabled is false.
	ReasonDisabled = "Disabled"
	// ReasonProjectMissing: the namespace has no Project, or it is not ready.
	ReasonProjectMissing = "ProjectMissing"
	// ReasonReferenceMissing: an object that the spec names does not exist (yet).
	ReasonReferenceMissing = "ReferenceMissing"
	// ReasonSecretMissing: a Secret that the spec names does not exist (yet).
	ReasonSecretMissing = "SecretMissing"
	// ReasonSecretInvalid: a Secret that the spec names lacks a key, or holds
	// something of the wrong form.
	ReasonSecretInvalid = "SecretInvalid"
	// ReasonInvalidSpec: the spec asks for something that cannot be.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNotSupported: the spec asks for something that this release does not
	// do; the message names the field.
	ReasonNotSupported = "NotSupported"
	// ReasonIDTaken: another object holds the id.
	ReasonIDTaken = "IDTaken"
	// ReasonNameCollision: somebody else's object has the name of one that the
	// controller would make; it is neither used nor changed.
	ReasonNameCollision = "NameCollision"
	// ReasonRefused: Kubernetes refuses what the controller would make, as a quota or
	// a policy says; the message has Kubernetes' words.
	ReasonRefused = "Refused"
	// ReasonRestored: what the data store knew was younger than the object, as
	// after a restore of etcd. Of events only.
	ReasonRestored = "Restored"
	// ReasonStoreUnavailable: the data store does not answer.
	ReasonStoreUnavailable = "StoreUnavailable"
)

// Reasons of a Project.
const (
	// ReasonInvalidPlan: the plan in the Namespace's annotation cannot be read.
	ReasonInvalidPlan = "InvalidPlan"
)

// Reasons of an Environment.
const (
	// ReasonSlugTaken: an older environment has the same slug.
	ReasonSlugTaken = "SlugTaken"
	// ReasonLimitReached: the project's limit of environments is reached; of a
	// ConnectorLink, that of the connector's links, or of the agent's that send.
	ReasonLimitReached = "LimitReached"
	// ReasonNotAllowed: spec.runner asks for what the plan does not allow; the
	// message names fields and what is allowed.
	ReasonNotAllowed = "NotAllowed"
	// ReasonRunnersStarting: runner pods are not all ready.
	ReasonRunnersStarting = "RunnersStarting"
	// ReasonRunnersFailing: runner pods cannot be started; the message says why.
	ReasonRunnersFailing = "RunnersFailing"
)

// Reasons of a Deployment.
const (
	// ReasonPending: the deployment waits for its turn.
	ReasonPending = "Pending"
	// ReasonBuilding: the build is under way.
	ReasonBuilding = "Building"
	// ReasonBuildBlocked: the build's pod does not run; the message says why.
	ReasonBuildBlocked = "BuildBlocked"
	// ReasonFetching: the source is being fetched.
	ReasonFetching = "Fetching"
	// ReasonPacking: the repository is validated and packed.
	ReasonPacking = "Packing"
	// ReasonTesting: the test phase is under way.
	ReasonTesting = "Testing"
	// ReasonConnecting: connector changes are checked and applied.
	ReasonConnecting = "Connecting"
	// ReasonFetchFailed: the source could not be fetched.
	ReasonFetchFailed = "FetchFailed"
	// ReasonFolderUnseen: the branch was seen at a commit, and not what git.path of the
	// Project holds there.
	ReasonFolderUnseen = "FolderUnseen"
	// ReasonBuildFailed: the repository is invalid, or its build broke.
	ReasonBuildFailed = "BuildFailed"
	// ReasonTestsFailed: at least one test case failed.
	ReasonTestsFailed = "TestsFailed"
	// ReasonConnectorsFailed: at least one connector of the code could not be
	// applied.
	ReasonConnectorsFailed = "ConnectorsFailed"
	// ReasonDeadlineExceeded: the build took too long.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonStoreRestored: the data store was restored from a backup that is
	// older than the deployment.
	ReasonStoreRestored = "StoreRestored"
	// ReasonCancelled: somebody cancelled the deployment, or a newer one
	// superseded it.
	ReasonCancelled = "Cancelled"
	// ReasonSkipped: the step had nothing to do.
	ReasonSkipped = "Skipped"
	// ReasonNameReused: the store knows this deployment's id with another source.
	ReasonNameReused = "NameReused"
	// ReasonDeploymentFailed: the Deployment of the commit that spec.git asks for
	// failed, or was cancelled.
	ReasonDeploymentFailed = "DeploymentFailed"
	// ReasonGitMissing: the project has no git repository to build from.
	ReasonGitMissing = "GitMissing"
	// ReasonEnvironmentGone: the environment was deleted, and a Deployment that the
	// platform made soon is.
	ReasonEnvironmentGone = "EnvironmentGone"
	// ReasonActivated: the deployment is live.
	ReasonActivated = "Activated"
	// ReasonNotLive: another deployment is live, or none is; an Environment and a connector
	// of the code have it while none is.
	ReasonNotLive = "NotLive"
)

// Reasons of a Connector.
const (
	// ReasonSecretVersionWentBack: spec.secretVersion is below the version that
	// is in effect.
	ReasonSecretVersionWentBack = "SecretVersionWentBack"
	// ReasonRetired: the code of what is live has the connector no more.
	ReasonRetired = "Retired"
	// ReasonNameTaken: another connector of the environment has the same name
	// for people.
	ReasonNameTaken = "NameTaken"
	// ReasonPaused: the destination has said that it wants no more deliveries.
	ReasonPaused = "Paused"
	// ReasonDestinationFailing: attempts fail in a row; deliveries wait for one that
	// succeeds.
	ReasonDestinationFailing = "DestinationFailing"
	// ReasonDeliveriesFailing: deliveries end without having been taken.
	ReasonDeliveriesFailing = "DeliveriesFailing"
)

// Reasons of a ConnectorLink.
const (
	// ReasonDuplicateLink: another link joins the same connector and agent.
	ReasonDuplicateLink = "DuplicateLink"
	// ReasonActionNameTaken: another link gives the agent a tool of that name.
	ReasonActionNameTaken = "ActionNameTaken"
	// ReasonAgentUnknown: the environment's live deployment has no such agent.
	ReasonAgentUnknown = "AgentUnknown"
)

// Reasons of an APIKey.
const (
	// ReasonRevoked: spec.revoked is true.
	ReasonRevoked = "Revoked"
	// ReasonExpired: the key's time is over.
	ReasonExpired = "Expired"
	// ReasonPermissionUnknown: the spec lists a permission that does not exist.
	ReasonPermissionUnknown = "PermissionUnknown"
)
