// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Agent is an agent of a bundle, as deployments record it.
type Agent struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Type        string `json:"type"`
	SourcePath  string `json:"source_path"`
	VariantOf   string `json:"variant_of,omitempty"`
	// TestName is the name of the variant; "" for an agent that is not a variant.
	TestName string `json:"test_name,omitempty"`
	// MaxConcurrentRuns is 0 without a limit.
	MaxConcurrentRuns int `json:"max_concurrent_runs,omitempty"`
	// Models are the different models that its keys name, as provider/model.
	Models []string `json:"models,omitempty"`
	// ConcurrencyKey and ConcurrencyDrop are the Expression and Drop of Concurrency.
	ConcurrencyKey  string `json:"concurrency_key,omitempty"`
	ConcurrencyDrop bool   `json:"concurrency_drop,omitempty"`
	// SendsByMiddleware is true if middleware of its runs may send over links of the mode
	// LinkMiddleware.
	SendsByMiddleware bool `json:"sends_by_middleware,omitempty"`
	// Config is the complete configuration with merged defaults; nil if agents are listed, see
	// Catalog.AgentConfig.
	Config json.RawMessage `json:"config,omitempty"`
}

// DeploymentSpec is a request for a deployment.
type DeploymentSpec struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	// Fingerprint is a digest of the source. Another source with the same ID is rejected with
	// ErrNameReused.
	Fingerprint string
	// SourceType is git or upload.
	SourceType string
	// Branch and Commit are the requested ones; both may be empty. An empty Branch becomes the
	// first branch that the build reports.
	Branch, Commit string
	// UploadDigest identifies the upload; "" for a deployment from Git.
	UploadDigest string
	// Lost means that the object has an outcome which the store does not know, for example after an
	// older store was restored. If the deployment is not recorded, it is then recorded as failed
	// (store_restored) and supersedes nothing.
	Lost bool
	// SkipTests, SkipFailedConnectors and RedeployOf are the fields of the object.
	SkipTests, SkipFailedConnectors bool
	RedeployOf                      *uuid.UUID
}

// Key returns the primary key of the deployment.
func (s DeploymentSpec) Key() Key { return Key{s.ProjectID, s.ID} }

// Environment returns the primary key of the deployment's environment.
func (s DeploymentSpec) Environment() Key { return Key{s.ProjectID, s.EnvironmentID} }

// Deployment is a deployment with its outcome.
type Deployment struct {
	DeploymentSpec
	// Sequence orders deployments of all environments by their start.
	Sequence int64
	Status   DeploymentStatus
	Phase    DeploymentPhase
	// EndPhase is the phase when the deployment failed or was cancelled; "" for other deployments,
	// and if the build had not begun.
	EndPhase      DeploymentPhase
	FailureReason FailureReason
	// Message explains the status to a user; "" without an explanation.
	Message string
	// Built is set when the build has succeeded and its bundle is stored. The controller then
	// activates the deployment.
	Built bool
	// Path is the folder passed to StartBuild; nil before, and if an earlier release started the
	// build.
	Path *string
	// ResolvedCommit, CommitMessage and Author describe the commit that was built.
	ResolvedCommit, CommitMessage, Author string
	BundleDigest                          string // "sha256:<hex>", "" until packed
	BundleSize                            int64  // bytes
	Agents                                []Agent
	TestResults                           json.RawMessage // REST shape, nil without tests; only Deployment reads them
	FailedTestCount                       int
	ConnectorResults                      json.RawMessage // REST shape, nil until connecting
	CreatedAt                             time.Time
	StartedAt, EndedAt, ActivatedAt       *time.Time
	// ActivationRank is the highest rank of the deployment's activations, 0 before the first. The
	// deployment with the highest rank in an environment is live.
	ActivationRank int64
	// ActivationRequestedAt is the Activation.RequestedAt of the last activation.
	ActivationRequestedAt *time.Time
}

// AgentNames returns the names of the deployment's agents.
func (d Deployment) AgentNames() []string {
	names := make([]string, len(d.Agents))
	for i, a := range d.Agents {
		names[i] = a.Name
	}
	return names
}

// ConnectorFile is a file in connectors/ that a build found in the repository.
type ConnectorFile struct {
	// Key is the stem of the file name. It identifies the connector.
	Key string `json:"key"`
	// Content is the YAML of the file. A build wrote it, so every reader validates it.
	Content string `json:"content"`
}

// BuildReport is the progress of a build; zero fields change nothing.
type BuildReport struct {
	Phase DeploymentPhase
	// Branch is recorded if the deployment has none yet.
	Branch                        string
	Commit, CommitMessage, Author string
}

// BuildResult ends a build. Either BundleDigest names a stored bundle, or FailureReason and Message
// explain its absence. If tests failed, both are set.
type BuildResult struct {
	BundleDigest  string
	Agents        []Agent
	Connectors    []ConnectorFile
	TestResults   json.RawMessage
	FailureReason FailureReason
	Message       string
}

// BuildLogPart is the part of a build's log from a chunk on.
type BuildLogPart struct {
	// Text is the text of the chunks. Next is the number of the following chunk, or the requested
	// number if there are no chunks.
	Text string
	Next int64
	// Status is the status of the deployment before the chunks were read. If it is terminal, no
	// more chunks follow.
	Status DeploymentStatus
}

// Activation makes a deployed (or built) deployment the live one.
type Activation struct {
	Deployment Key
	// RequestedAt is the time of a user's request; nil for the deployment's own activation. Builds
	// that began before a request do not activate over it. A request is executed once: a repetition
	// with the same time is no error and undoes nothing.
	RequestedAt *time.Time
	// Connectors and Links are the new revisions of the connectors in the deployment's code. They
	// change together with the live pointer. Kept connectors stay as they are. All other
	// code-defined connectors of the environment are retired.
	Connectors []Connector
	Links      []Link
	Kept       []uuid.UUID
	// ConnectorResults are the results in REST shape. They are recorded on the deployment once it
	// is live; nil leaves the recorded ones.
	ConnectorResults json.RawMessage
}

// ActivationResult is the result of an activation.
type ActivationResult struct {
	// Live is false if the deployment became deployed but an activation that was requested after
	// its start stays live.
	Live        bool
	ActivatedAt time.Time
}

// Deployments stores deployments and their outcomes.
type Deployments interface {
	// BeginDeployment claims the ID and records a pending deployment. It keeps the upload of the
	// deployment, if there is one, for UploadKept from now. A deployment that is recorded under the
	// ID with the same fingerprint is returned unchanged. A deployment that was cancelled because
	// its object was deleted begins again for another object. Earlier pending and building
	// deployments of the environment are cancelled ("superseded"). It returns ErrNameReused or
	// *IDTakenError.
	BeginDeployment(ctx context.Context, spec DeploymentSpec) (Deployment, error)
	Deployment(ctx context.Context, key Key) (Deployment, error)
	// ListDeployments returns the newest deployments of an environment, newest first, without test
	// results: at most MaxDeployments, and fewer if they exceed MaxDeploymentsSize.
	ListDeployments(ctx context.Context, environment Key) ([]Deployment, error)
	// StartBuild moves a pending deployment to building, for a folder of the repository. "" is the
	// root of the repository or upload. A building deployment keeps its state and folder. It
	// returns ErrConflict if the deployment is terminal.
	StartBuild(ctx context.Context, key Key, path string) error
	// EndDeployment moves a non-terminal deployment to failed or cancelled, with reason and
	// message. It returns ErrConflict if the deployment is terminal. The build log, if there is
	// one, gets a final line with the message.
	EndDeployment(ctx context.Context, key Key, status DeploymentStatus, reason FailureReason, message string) error
	// ConnectorFiles returns the files in connectors/ that the build found, by key.
	ConnectorFiles(ctx context.Context, key Key) ([]ConnectorFile, error)
	// RecordConnectors records the connector results, in REST shape, of a deployment that is not
	// activated because of its connectors.
	RecordConnectors(ctx context.Context, key Key, results json.RawMessage) error
}

// Builds receives the reports of a running build.
type Builds interface {
	// ReportBuild records progress. It returns ErrConflict if the deployment is not building, and
	// ErrInvalid as BuildReport.Bounded and Allowed document. The commit is the deployment's, or
	// else the first one reported.
	ReportBuild(ctx context.Context, key Key, report BuildReport) error
	// AppendBuildLog appends a chunk of the build log. Chunks are numbered from 0, with ErrInvalid
	// above MaxLogNumber. A chunk that is stored already is ignored. Chunks beyond MaxBuildLog are
	// dropped, and a mark ends the log.
	AppendBuildLog(ctx context.Context, key Key, number int64, chunk string) error
	// BuildLog returns the whole log.
	BuildLog(ctx context.Context, key Key) (string, error)
	// BuildLogFrom returns the log from a chunk on. It returns ErrNotFound without the deployment.
	// Every new chunk and every change of the status sends a hint on TopicDeployment.
	BuildLogFrom(ctx context.Context, key Key, number int64) (BuildLogPart, error)
	// FinishBuild records the result of a build. With a bundle, Built is set and the deployment
	// stays building, in the phase connecting. Without a bundle the deployment fails. A repetition
	// is no error. It returns ErrConflict if the deployment is not building, ErrNotFound if the
	// bundle is not stored, and ErrTooLarge and ErrInvalid as BuildResult.Bounded documents.
	FinishBuild(ctx context.Context, key Key, result BuildResult) error
}

// Activations changes the live deployment.
type Activations interface {
	// RequestPrefetch asks the runners of an environment to fetch a bundle.
	RequestPrefetch(ctx context.Context, environment Key, digest string) error
	// Runners lists the runners of an environment that were seen within the given period, with
	// their bundles.
	Runners(ctx context.Context, environment Key, within time.Duration) ([]Runner, error)
	// Activate changes the live pointer and the connector revisions, and makes a built deployment
	// deployed, in one transaction. A repetition is no error. It returns
	//
	//   - ErrConflict if the deployment is neither built nor deployed;
	//   - ErrBundleGone if the deployment would become live and its bundle is no longer stored;
	//   - *ConnectorRefusedError, with nothing changed, if a connector or link cannot be projected:
	//     another object has its ID, or PutConnector or PutLink would reject it.
	//
	// A connector with a SecretVersion below the stored one keeps its secrets, without an error.
	Activate(ctx context.Context, a Activation) (ActivationResult, error)
	// CodeConnectors lists the code-defined connectors of an environment, in effect or not, by the
	// names of their objects. Activate retires the ones that are neither in Connectors nor in Kept.
	CodeConnectors(ctx context.Context, environment Key) ([]Connector, error)
}

// Runner is a runner process in its last known state.
type Runner struct {
	ID      string
	SeenAt  time.Time
	Digests []string
}
