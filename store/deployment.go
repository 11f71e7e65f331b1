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
	// TestName is the name of the variant; "" of an agent that is none.
	TestName string `json:"test_name,omitempty"`
	// MaxConcurrentRuns is 0 without a limit.
	MaxConcurrentRuns int `json:"max_concurrent_runs,omitempty"`
	// ConcurrencyKey and ConcurrencyDrop are Concurrency's Expression and Drop.
	ConcurrencyKey  string `json:"concurrency_key,omitempty"`
	ConcurrencyDrop bool   `json:"concurrency_drop,omitempty"`
	// Config is the agent's whole configuration, defaults folded in; nil where
	// agents are read, see Catalog.AgentConfig.
	Config json.RawMessage `json:"config,omitempty"`
}

// DeploymentSpec is what a deployment is asked to be.
type DeploymentSpec struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	// Fingerprint is a digest of the source; another one under the same id is
	// refused with ErrNameReused.
	Fingerprint string
	// SourceType is git or upload.
	SourceType string
	// Branch and Commit are as asked for; both may be empty. An empty Branch becomes the first
	// that the build reports.
	Branch, Commit string
	// UploadDigest names what was uploaded; "" of a deployment from git.
	UploadDigest string
	// Lost says that the object shows an end which the store does not know, as
	// after an older store was restored: what is not recorded is then recorded
	// as failed (store_restored), and supersedes nothing.
	Lost bool
	// SkipTests, SkipFailedConnectors and RedeployOf as in the object.
	SkipTests, SkipFailedConnectors bool
	RedeployOf                      *uuid.UUID
}

// Key is the deployment's primary key.
func (s DeploymentSpec) Key() Key { return Key{s.ProjectID, s.ID} }

// Environment is the primary key of the deployment's environment.
func (s DeploymentSpec) Environment() Key { return Key{s.ProjectID, s.EnvironmentID} }

// Deployment is a deployment with what became of it.
type Deployment struct {
	DeploymentSpec
	// Sequence orders deployments of all environments by their beginning.
	Sequence int64
	Status   DeploymentStatus
	Phase    DeploymentPhase
	// EndPhase is the phase in which the deployment failed or was cancelled; "" for
	// any other, and for one whose build had not begun.
	EndPhase      DeploymentPhase
	FailureReason FailureReason
	// Message explains the status to a person; "" when there is nothing to say.
	Message string
	// Built is set once the build reported success and its bundle is stored: the
	// controller activates next.
	Built bool
	// Path is the folder that StartBuild named; nil before, and where a release started the
	// build that did not say.
	Path *string
	// ResolvedCommit, CommitMessage and Author are of the commit that was built.
	ResolvedCommit, CommitMessage, Author string
	BundleDigest                          string // "sha256:<hex>", "" until packed
	BundleSize                            int64  // bytes
	Agents                                []Agent
	TestResults                           json.RawMessage // REST shape, nil without tests; only Deployment reads them
	FailedTestCount                       int
	ConnectorResults                      json.RawMessage // REST shape, nil until connecting
	CreatedAt                             time.Time
	StartedAt, EndedAt, ActivatedAt       *time.Time
	// ActivationRank is the highest of the deployment's activations, 0 before the
	// first; of those of an environment the highest is live.
	ActivationRank int64
	// ActivationRequestedAt is the Activation.RequestedAt that was carried out last.
	ActivationRequestedAt *time.Time
}

// AgentNames are the names of the deployment's agents.
func (d Deployment) AgentNames() []string {
	names := make([]string, len(d.Agents))
	for i, a := range d.Agents {
		names[i] = a.Name
	}
	return names
}

// ConnectorFile is a file of connectors/, as a build found it in the repository.
type ConnectorFile struct {
	// Key is the stem of its name, by which the connector is known.
	Key string `json:"key"`
	// Content is its YAML. A build writes it: whoever uses it validates it.
	Content string `json:"content"`
}

// BuildReport is what a build says of itself; zero fields change nothing.
type BuildReport struct {
	Phase DeploymentPhase
	// Branch is recorded if the deployment has none yet.
	Branch                        string
	Commit, CommitMessage, Author string
}

// BuildResult ends a build. Either BundleDigest names a stored bundle, or
// FailureReason and Message say why there is none; where tests failed there are both.
type BuildResult struct {
	BundleDigest  string
	Agents        []Agent
	Connectors    []ConnectorFile
	TestResults   json.RawMessage
	FailureReason FailureReason
	Message       string
}

// BuildLogPart is what was written of a build's log from some chunk on.
type BuildLogPart struct {
	// Text is that of the chunks together, Next the number that follows theirs: of the
	// chunk that was asked from, where there is none.
	Text string
	Next int64
	// Status is the deployment's before the chunks were read: of one that had ended
	// nothing more comes.
	Status DeploymentStatus
}

// Activation makes a deployed (or built) deployment the live one.
type Activation struct {
	Deployment Key
	// RequestedAt is when a person decided on it; nil for the deployment's own
	// activation. Builds that began before a decision will not activate over it.
	// A decision is carried out once: the deployment's last again, by the same
	// instant, is a repetition, which is no error and undoes nothing.
	RequestedAt *time.Time
	// Connectors and Links are the revisions of the deployment's code-defined
	// connectors; they flip together with the live pointer. Code-defined
	// connectors of the environment that are neither named nor Kept, which stay as
	// they are, are retired.
	Connectors []Connector
	Links      []Link
	Kept       []uuid.UUID
	// ConnectorResults is the REST shape of what was done, recorded on the
	// deployment once it is live; nil leaves it.
	ConnectorResults json.RawMessage
}

// ActivationResult says what an activation did.
type ActivationResult struct {
	// Live is false when the deployment became deployed but an activation that
	// came after its beginning stays live.
	Live        bool
	ActivatedAt time.Time
}

// Deployments keeps deployments and their outcomes.
type Deployments interface {
	// BeginDeployment claims the id and records a pending deployment, and keeps its upload
	// for UploadKept from now, if it is of one that is there; what is
	// recorded under the id with the same fingerprint is returned as it is.
	// What was cancelled because its object was deleted begins anew for another
	// object. Pending and building deployments of the environment that began before
	// are cancelled ("superseded"). Errors: ErrNameReused, *IDTakenError.
	BeginDeployment(ctx context.Context, spec DeploymentSpec) (Deployment, error)
	Deployment(ctx context.Context, key Key) (Deployment, error)
	// ListDeployments returns the newest deployments of an environment, newest
	// first, without their test results: at most MaxDeployments, and fewer where
	// they are beyond MaxDeploymentsSize.
	ListDeployments(ctx context.Context, environment Key) ([]Deployment, error)
	// StartBuild moves a pending deployment to building, of a folder of the repository: "" is
	// its root, and that of an upload. A building one stays, and so does its folder.
	// ErrConflict when it is terminal.
	StartBuild(ctx context.Context, key Key, path string) error
	// EndDeployment moves a deployment that is not terminal to failed or
	// cancelled, with reason and message; ErrConflict when it is terminal. A build's log, if
	// there is any, ends with a line that says so.
	EndDeployment(ctx context.Context, key Key, status DeploymentStatus, reason FailureReason, message string) error
	// ConnectorFiles returns the files of connectors/ that the build found, by key.
	ConnectorFiles(ctx context.Context, key Key) ([]ConnectorFile, error)
	// RecordConnectors records what would become of the connectors of a deployment that
	// is not activated for their sake, in the REST shape.
	RecordConnectors(ctx context.Context, key Key, results json.RawMessage) error
}

// Builds is what a running build reports.
type Builds interface {
	// ReportBuild records progress; ErrConflict when the deployment is not
	// building, ErrInvalid as BuildReport.Bounded and Allowed say: the commit is
	// the one that the deployment names, else the first that is reported.
	ReportBuild(ctx context.Context, key Key, report BuildReport) error
	// AppendBuildLog appends a chunk of the build's log. Chunks are numbered from
	// 0, ErrInvalid beyond MaxLogNumber; one that is stored already is ignored, and so is
	// what comes after MaxBuildLog, where the log ends with a mark.
	AppendBuildLog(ctx context.Context, key Key, number int64, chunk string) error
	// BuildLog returns the whole log.
	BuildLog(ctx context.Context, key Key) (string, error)
	// BuildLogFrom returns the log from a chunk on; ErrNotFound without the deployment.
	// Whatever is appended, and every change of the status, is hinted as TopicDeployment.
	BuildLogFrom(ctx context.Context, key Key, number int64) (BuildLogPart, error)
	// FinishBuild records a build's result: with a bundle, Built is set and the
	// deployment stays building, phase connecting; without one it becomes
	// failed. Repeating it is no error. ErrConflict when the deployment is not
	// building; ErrNotFound when the bundle is not stored; ErrTooLarge
	// and ErrInvalid as BuildResult.Bounded says.
	FinishBuild(ctx context.Context, key Key, result BuildResult) error
}

// Activations switches what is live.
type Activations interface {
	// RequestPrefetch asks the runners of an environment to fetch a bundle.
	RequestPrefetch(ctx context.Context, environment Key, digest string) error
	// Runners lists the runners of an environment that were seen within the
	// given period, with the bundles they hold.
	Runners(ctx context.Context, environment Key, within time.Duration) ([]Runner, error)
	// Activate flips the live pointer and the connector revisions, and makes a
	// built deployment deployed, in one transaction. Repeating it is no
	// error. ErrConflict when the deployment is neither built nor deployed;
	// ErrBundleGone when it would go live and its bundle is not stored any more;
	// *ConnectorRefusedError, with nothing changed, when a connector of the activation
	// or a link of one cannot be projected: its id is another object's, or it is what
	// PutConnector or PutLink refuse. A connector with a SecretVersion below the stored
	// one keeps its secrets, and is no error.
	Activate(ctx context.Context, a Activation) (ActivationResult, error)
	// CodeConnectors lists the code-defined connectors of an environment by the names of their
	// objects as they were written, in effect or not: Activate retires those of them that it
	// names neither among the Connectors nor the Kept.
	CodeConnectors(ctx context.Context, environment Key) ([]Connector, error)
}

// Runner is a runner process as the store has last heard of it.
type Runner struct {
	ID      string
	SeenAt  time.Time
	Digests []string
}
