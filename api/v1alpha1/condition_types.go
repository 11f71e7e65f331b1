// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of all kinds, as kstatus reads them. A positive condition is good when it is True. A
// negative condition is bad or unfinished when it is True, and absent otherwise.
const (
	// ConditionReady: the object is in effect as its spec asks. Positive. It summarizes the other
	// conditions. It is Unknown during the first reconciliation and never absent after it.
	ConditionReady = "Ready"
	// ConditionReconciling: the controller is working, or waits for something that can happen
	// without a change. Negative; absent when the reconciliation is complete.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the object needs a change by a user. Reason and message have the remedy.
	// Negative.
	ConditionStalled = "Stalled"
)

// Conditions of a Deployment. Each is positive, Unknown during its step, and absent before its
// step.
const (
	// ConditionSourceFetched: the commit or the uploaded bundle was fetched.
	ConditionSourceFetched = "SourceFetched"
	// ConditionBuilt: the repository is valid and its bundle is stored.
	ConditionBuilt = "Built"
	// ConditionTestsPassed: all test cases passed, or there are none (reason Skipped).
	ConditionTestsPassed = "TestsPassed"
	// ConditionConnectorsApplied: the connectors in code match the bundle, or the bundle has none
	// (reason Skipped).
	ConditionConnectorsApplied = "ConnectorsApplied"
	// ConditionLive: the environment runs this version. False after another version went live;
	// absent before the first activation.
	ConditionLive = "Live"
)

// Conditions of a Connector.
const (
	// ConditionSecretReady: the connector's secrets are derived or read, and its child Secret
	// contains them. Positive.
	ConditionSecretReady = "SecretReady"
	// ConditionRoutesReady: the projection that the gateway reads is committed for this generation.
	// Positive.
	ConditionRoutesReady = "RoutesReady"
	// ConditionDelivering: an outbound connector sends its deliveries. False while it is paused or
	// disabled, or while its destination fails; the message has the start time. Positive; absent
	// for other connectors.
	ConditionDelivering = "Delivering"
)

// Conditions of a ConnectorLink.
const (
	// ConditionReferencesResolved: connector, environment and agent exist. Positive.
	ConditionReferencesResolved = "ReferencesResolved"
)

// Conditions of a Project.
const (
	// ConditionNetworkReady: the NetworkPolicies of the project's pods, and the certificate that
	// they trust, exist. No pod is created before. Positive.
	ConditionNetworkReady = "NetworkReady"
	// ConditionPlanInvalid: the plan in the Namespace's annotation cannot be read, and the
	// platform's default plan applies. Negative.
	ConditionPlanInvalid = "PlanInvalid"
)

// Conditions of an Environment.
const (
	// ConditionRunnersReady: the requested number of runners is ready to claim runs. Positive.
	ConditionRunnersReady = "RunnersReady"
	// ConditionDeploymentLive: the environment has a live deployment. Positive. Ready does not
	// depend on it, because a new environment has none.
	ConditionDeploymentLive = "DeploymentLive"
	// ConditionSourceFollowed: the commit that spec.git asks for is live or being deployed.
	// Positive; absent if spec.git follows nothing.
	ConditionSourceFollowed = "SourceFollowed"
	// ConditionSourceSeen: the last poll found the head of the followed branch. Positive; absent if
	// no branch is followed, and before the first poll.
	ConditionSourceSeen = "SourceSeen"
	// ConditionToolsDrifted: MCP servers changed or removed tools that the live deployment pins.
	// Negative; absent otherwise.
	ConditionToolsDrifted = "ToolsDrifted"
)

// Reasons that several kinds use.
const (
	// ReasonSucceeded: the object matches its spec.
	ReasonSucceeded = "Succeeded"
	// ReasonProgressing: the controller is working.
	ReasonProgressing = "Progressing"
	// ReasonSuspended: spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonDisabled: spec.enabled is false.
	ReasonDisabled = "Disabled"
	// ReasonProjectMissing: the namespace has no Project, or it is not ready.
	ReasonProjectMissing = "ProjectMissing"
	// ReasonReferenceMissing: an object that the spec names does not exist yet.
	ReasonReferenceMissing = "ReferenceMissing"
	// ReasonSecretMissing: a Secret that the spec names does not exist yet.
	ReasonSecretMissing = "SecretMissing"
	// ReasonSecretInvalid: a Secret that the spec names lacks a key or has an invalid value.
	ReasonSecretInvalid = "SecretInvalid"
	// ReasonInvalidSpec: the spec is invalid.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNotSupported: the spec uses an unsupported field, which the message names.
	ReasonNotSupported = "NotSupported"
	// ReasonIDTaken: another object has the ID.
	ReasonIDTaken = "IDTaken"
	// ReasonNameCollision: an object that the platform did not create has the name that the
	// controller needs. It is neither used nor changed.
	ReasonNameCollision = "NameCollision"
	// ReasonRefused: Kubernetes rejects an object of the controller, for example because of a quota
	// or a policy. The message has the error of Kubernetes.
	ReasonRefused = "Refused"
	// ReasonRestored: the data store was newer than the object, for example after a restore of
	// etcd. For events only.
	ReasonRestored = "Restored"
	// ReasonStoreUnavailable: the data store does not respond.
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
	// ReasonLimitReached: the project is at its limit of environments. For a ConnectorLink, the
	// connector or the agent is at its limit of links.
	ReasonLimitReached = "LimitReached"
	// ReasonNotAllowed: the plan does not allow spec.runner. The message names the fields and the
	// allowed values.
	ReasonNotAllowed = "NotAllowed"
	// ReasonRunnersStarting: not all runner pods are ready.
	ReasonRunnersStarting = "RunnersStarting"
	// ReasonRunnersFailing: runner pods cannot start. The message has the cause.
	ReasonRunnersFailing = "RunnersFailing"
	// ReasonToolsChanged: MCP servers changed or removed pinned tools. The message names them.
	ReasonToolsChanged = "ToolsChanged"
)

// Reasons of a Deployment.
const (
	// ReasonPending: the deployment is queued.
	ReasonPending = "Pending"
	// ReasonBuilding: the build is in progress.
	ReasonBuilding = "Building"
	// ReasonBuildBlocked: the build's pod does not run. The message has the cause.
	ReasonBuildBlocked = "BuildBlocked"
	// ReasonFetching: the source is being fetched.
	ReasonFetching = "Fetching"
	// ReasonPacking: the repository is validated and packed.
	ReasonPacking = "Packing"
	// ReasonTesting: the test phase is in progress.
	ReasonTesting = "Testing"
	// ReasonConnecting: connector changes are checked and applied.
	ReasonConnecting = "Connecting"
	// ReasonFetchFailed: the source could not be fetched.
	ReasonFetchFailed = "FetchFailed"
	// ReasonFolderUnseen: the poll found the commit but could not read git.path of the Project.
	ReasonFolderUnseen = "FolderUnseen"
	// ReasonBuildFailed: the repository is invalid, or its build failed.
	ReasonBuildFailed = "BuildFailed"
	// ReasonTestsFailed: at least one test case failed.
	ReasonTestsFailed = "TestsFailed"
	// ReasonConnectorsFailed: at least one connector in code could not be applied.
	ReasonConnectorsFailed = "ConnectorsFailed"
	// ReasonModelProviderMissing: an agent names a model whose provider the project does not have.
	ReasonModelProviderMissing = "ModelProviderMissing"
	// ReasonDeadlineExceeded: the build took too long.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonStoreRestored: the data store was restored from a backup that is
	// older than the deployment.
	ReasonStoreRestored = "StoreRestored"
	// ReasonCancelled: a user cancelled the deployment, or a newer deployment superseded it.
	ReasonCancelled = "Cancelled"
	// ReasonSkipped: the step had nothing to do.
	ReasonSkipped = "Skipped"
	// ReasonNameReused: the store has this deployment's ID with another source.
	ReasonNameReused = "NameReused"
	// ReasonDeploymentFailed: the Deployment of the commit in spec.git failed or was cancelled.
	ReasonDeploymentFailed = "DeploymentFailed"
	// ReasonGitMissing: the project has no Git repository.
	ReasonGitMissing = "GitMissing"
	// ReasonEnvironmentGone: the environment was deleted, and the platform will delete this object,
	// which it created.
	ReasonEnvironmentGone = "EnvironmentGone"
	// ReasonActivated: the deployment is live.
	ReasonActivated = "Activated"
	// ReasonNotLive: another deployment is live, or none. Environments and connectors in code have
	// this reason while none is live.
	ReasonNotLive = "NotLive"
)

// Reasons of a Connector.
const (
	// ReasonSecretVersionWentBack: spec.secretVersion is below the version in effect.
	ReasonSecretVersionWentBack = "SecretVersionWentBack"
	// ReasonRetired: the live code no longer has the connector.
	ReasonRetired = "Retired"
	// ReasonNameTaken: another connector of the environment has the same display name.
	ReasonNameTaken = "NameTaken"
	// ReasonPaused: the destination returned 410.
	ReasonPaused = "Paused"
	// ReasonDestinationFailing: several attempts in a row failed. Deliveries wait for one that
	// succeeds.
	ReasonDestinationFailing = "DestinationFailing"
	// ReasonDeliveriesFailing: the destination does not accept deliveries.
	ReasonDeliveriesFailing = "DeliveriesFailing"
)

// Reasons of a ConnectorLink.
const (
	// ReasonDuplicateLink: another link joins the same connector and agent.
	ReasonDuplicateLink = "DuplicateLink"
	// ReasonActionNameTaken: another link gives the agent a tool with the same name.
	ReasonActionNameTaken = "ActionNameTaken"
	// ReasonAgentUnknown: the environment's live deployment has no such agent.
	ReasonAgentUnknown = "AgentUnknown"
	// ReasonMiddlewareMissing: no middleware of the live agent sends, so a link in the mode
	// Middleware has no effect.
	ReasonMiddlewareMissing = "MiddlewareMissing"
)

// Reasons of an APIKey.
const (
	// ReasonRevoked: spec.revoked is true.
	ReasonRevoked = "Revoked"
	// ReasonExpired: the key has expired.
	ReasonExpired = "Expired"
	// ReasonPermissionUnknown: the spec lists a permission that does not exist.
	ReasonPermissionUnknown = "PermissionUnknown"
)
