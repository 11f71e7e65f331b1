// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Key is the primary key of a row. IDs are unique within a project only, so every statement uses
// both parts.
type Key struct{ ProjectID, ID uuid.UUID }

// String returns `project/id` for error texts.
func (k Key) String() string { return k.ProjectID.String() + "/" + k.ID.String() }

// ObjectRef identifies a Kubernetes object and its incarnation. The cluster follows from the lease,
// because a store serves one cluster at a time.
type ObjectRef struct {
	// Namespace, Kind, Name locate the object.
	Namespace, Kind, Name string
	// ObjectUID is the metadata.uid of the object. Another UID under the same name means that a
	// deletion was missed.
	ObjectUID string
	// Generation is the metadata.generation of the object. An older generation overwrites a newer
	// one only with Restored.
	Generation int64
	// Restored is set for an object whose generation is older than the stored one, if an uncached
	// read confirms it, for example after a restore of etcd. It is the StaleError.Writes before the
	// confirming read. The object wins if there was no write since.
	Restored int64
}

// String returns `Kind namespace/name` for error texts.
func (r ObjectRef) String() string { return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name) }

// SameObject reports whether both identify the same object in any incarnation.
func (r ObjectRef) SameObject(o ObjectRef) bool {
	return r.Namespace == o.Namespace && r.Kind == o.Kind && r.Name == o.Name
}

// Kinds of projected objects, as in ObjectRef.Kind.
const (
	KindProject       = "Project"
	KindEnvironment   = "Environment"
	KindDeployment    = "Deployment"
	KindConnector     = "Connector"
	KindConnectorLink = "ConnectorLink"
	KindAPIKey        = "APIKey"
)

// Kinds lists the kinds of objects that claim IDs.
var Kinds = []string{KindProject, KindEnvironment, KindDeployment, KindConnector, KindConnectorLink, KindAPIKey}

// Project is the projection of a project.
type Project struct {
	Ref         ObjectRef
	ID          uuid.UUID
	DisplayName string
	Limits      ProjectLimits
	// Retention is how long the project keeps history, at least MinRetention; 0 means the
	// platform's retention, which is always the maximum.
	Retention time.Duration
	// Telemetry is the export of traces; nil without one.
	Telemetry *Telemetry
	CreatedAt time.Time // set by the store
}

// Key returns the primary key of the project. It is the ID of the project in itself.
func (p Project) Key() Key { return Key{p.ID, p.ID} }

// Environment is the projection of an environment.
type Environment struct {
	Ref         ObjectRef
	ID          uuid.UUID
	ProjectID   uuid.UUID
	DisplayName string
	Slug        string
	Kind        string // standard | test
	// ObjectCreatedAt is the creation time of the object. It orders claims of a slug and of the
	// default.
	ObjectCreatedAt time.Time
	// Limit is the maximum number of environments in the project, 0 for no limit. Put uses it but
	// does not store it.
	Limit int

	// The store sets all fields below. Put ignores them.

	// LiveDeploymentID is the last activated deployment, or nil.
	LiveDeploymentID *uuid.UUID
	// LiveRank is the rank of its activation, 0 while nothing is live.
	LiveRank int64
	// LiveActivatedAt is the time of its activation.
	LiveActivatedAt *time.Time
	// LiveBundleDigest is the bundle of the live deployment ("sha256:…" hex), or "".
	LiveBundleDigest string
	// WantedBundleDigest is a bundle that runners are to prefetch, or "".
	WantedBundleDigest string
	CreatedAt          time.Time
}

// Key returns the primary key of the environment.
func (e Environment) Key() Key { return Key{e.ProjectID, e.ID} }

// Connector is the projection of a connector.
type Connector struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	Name          string // the display name for users and middleware (displayName, or else the object's name)
	Type, Mode    string // of a kind of package connector
	Enabled       bool
	Retired       bool
	DefinedInCode bool
	// Activation is the rank of the activation that a code-defined connector mirrors, 0 for any.
	// Put succeeds only while it equals the environment's LiveRank, and otherwise returns
	// ErrNotLive or ErrNothingLive. Put does not store it.
	Activation int64
	// Config is the connector's configuration in its REST shape, without credentials.
	Config json.RawMessage
	// Sealed holds the sealed credential fields; nil without credentials.
	Sealed []byte
	// SecretVersion is the version of the generated secret. It never decreases: a lower version
	// leaves the secrets unchanged.
	SecretVersion int64
	// SecretKey is the ID of the key from which the generated secret is derived, "" for a secret of
	// the user. SealedKey is the ID of the key that sealed Sealed, "" if nothing is sealed.
	SecretKey, SealedKey string
	// SecretDigest is the SHA-256 of the current secret; nil without authentication.
	SecretDigest []byte
	// SecretGracePeriod is how long the previous secret stays valid after SecretDigest changes.
	SecretGracePeriod time.Duration

	// The store sets all fields below. Put ignores them.

	// EnvironmentGone means that the environment does not exist. Enabled is then false.
	EnvironmentGone bool
	// DeploymentID is the deployment of the last activation that named a code-defined connector;
	// nil if none did.
	DeploymentID *uuid.UUID
	// Secrets are all digests that were valid when the connector was read, by the database's clock.
	Secrets []AcceptedSecret
	// Version increases with every change of the connector and its links.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Key returns the primary key of the connector.
func (c Connector) Key() Key { return Key{c.ProjectID, c.ID} }

// Sends reports whether the connector sends results. The other connectors start runs.
func (c Connector) Sends() bool { return c.Mode == "outbound" }

// Link is the projection of a connector link.
type Link struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	ConnectorID   uuid.UUID
	AgentName     string
	FilesRequired bool
	// Outbound is the policy of a link to an outbound connector; nil for other links.
	Outbound *OutboundPolicy
	// Activation is the same as for a Connector. A link that has one is defined in code.
	Activation int64
	// ObjectCreatedAt orders the links of a connector: a sync response comes from the oldest link.
	ObjectCreatedAt time.Time
	CreatedAt       time.Time // set by the store
	UpdatedAt       time.Time // set by the store
}

// Key returns the primary key of the link.
func (l Link) Key() Key { return Key{l.ProjectID, l.ID} }

// MaxContextHeaders is the maximum number of request headers that runs may see. MaxHeaderName and
// MaxHeaderValue limit the name and value of each in bytes.
const (
	MaxContextHeaders = 16
	MaxHeaderName     = 128
	MaxHeaderValue    = 1024
)

// MaxAcceptedSecrets is the maximum number of valid secrets of a webhook: each request is compared
// with all of them.
const MaxAcceptedSecrets = 16

// AcceptedSecret is the digest of a valid secret of a webhook.
type AcceptedSecret struct {
	SHA256 []byte `json:"sha256"`
	// NotAfter is nil for the current secret, and the end of the grace period for an older one. A
	// secret whose key was revoked expires with the key.
	NotAfter *time.Time `json:"not_after,omitempty"`
	// Version is the connector's secret version.
	Version int64 `json:"version,omitempty"`
	// Key is the ID of the key from which the secret is derived; "" for a secret of the user.
	Key string `json:"key,omitempty"`
}

// KeyEnds are the times at which secrets derived from revoked keys expire, by key ID.
type KeyEnds map[string]time.Time

// RotateSecrets returns the valid secrets after current becomes the current secret at now. Earlier
// secrets stay valid for at most grace, and expired ones are removed. A shorter grace ends all of
// them earlier, a longer one extends none. A secret of the same version whose key was revoked has
// no grace period: it expires with its key. A nil digest (no authentication) accepts none. At most
// the newest MaxAcceptedSecrets remain.
func RotateSecrets(accepted []AcceptedSecret, current AcceptedSecret, grace time.Duration, ends KeyEnds, now time.Time) []AcceptedSecret {
	if current.SHA256 == nil {
		return nil
	}
	out := []AcceptedSecret{current}
	for _, s := range accepted {
		if string(s.SHA256) == string(current.SHA256) {
			continue
		}
		end := now.Add(grace)
		if keyEnd, revoked := ends[s.Key]; revoked && s.Version == current.Version && current.Key != "" {
			end = keyEnd
		}
		if s.NotAfter == nil || s.NotAfter.After(end) {
			s.NotAfter = &end
		}
		if s.NotAfter.After(now) {
			out = append(out, s)
		}
	}
	return out[:min(len(out), MaxAcceptedSecrets)]
}

// AcceptedAt returns the secrets that are valid at now, each with its expiry.
func AcceptedAt(secrets []AcceptedSecret, ends KeyEnds, now time.Time) []AcceptedSecret {
	var out []AcceptedSecret
	for _, s := range secrets {
		if end, revoked := ends[s.Key]; revoked && (s.NotAfter == nil || s.NotAfter.After(end)) {
			s.NotAfter = &end
		}
		if s.NotAfter == nil || s.NotAfter.After(now) {
			out = append(out, s)
		}
	}
	return out
}

// Projector writes the projection of objects that users own. ClaimID and each Put claim the ID for
// the object's kind and name in its project. They return *IDTakenError if another object has it,
// and *StaleError if a newer generation of the same incarnation is stored. A new ObjectUID first
// applies the effects of a deletion.
type Projector interface {
	// ClaimID claims the ID for the object and does nothing else. It comes first, so an ID is valid
	// only if its claim names that very object. An existing claim costs no write.
	ClaimID(ctx context.Context, key Key, ref ObjectRef) error
	PutProject(ctx context.Context, p Project) error
	// ProjectTelemetry returns the export of a project; nil without one.
	ProjectTelemetry(ctx context.Context, project uuid.UUID) (*Telemetry, error)
	// PutEnvironment also decides the slug. It returns
	//
	//   - *SlugTakenError if an older environment of the project has the slug. The environment is
	//     stored with an empty slug.
	//   - *LimitReachedError if e.Limit environments were claimed earlier and still exist. Only the
	//     claim is stored. A later Put puts it into effect, in the order of the claims.
	//   - ErrLeaving, with the claim stored, while runs of an earlier environment with the ID are
	//     open.
	PutEnvironment(ctx context.Context, e Environment) error
	// PutConnector returns *DuplicateError if another connector of the environment has the name.
	// The claim stays, and the row is not written. If the SecretVersion is below the stored one,
	// the secrets stay, the rest is written, and it returns *SecretVersionError.
	PutConnector(ctx context.Context, c Connector) error
	// DisableConnector disables the stored connector of ref and changes nothing else, so it needs
	// none of the data of a Put. A missing or disabled connector costs no write.
	DisableConnector(ctx context.Context, key Key, ref ObjectRef) error
	// PutLink keeps the claim, does not write the row and returns
	//
	//   - *DuplicateError if another link joins the same connector and agent;
	//   - *TooManyLinksError if the connector has MaxLinks other links;
	//   - *ActionTakenError if the agent has another tool with its action name in the environment;
	//   - *TooManyOutboundLinksError if the agent has MaxOutboundLinks other links to outbound
	//     connectors there.
	PutLink(ctx context.Context, l Link) error
	// Remove applies the deletion of the object that claims ref's kind and name in the project:
	//
	//   - Environment: open runs are cancelled, deployments are deactivated, connectors are
	//     disabled.
	//   - Project: connectors are disabled, and accepted events are still processed.
	//   - Connector: it is deleted with its links. A live connector in code stays and waits for
	//     another mirror.
	//
	// History stays. A missing object or another incarnation is no error. An empty ref.ObjectUID
	// means a claim that no object has taken over.
	Remove(ctx context.Context, projectID uuid.UUID, ref ObjectRef) error
}

// SlugTakenError means that an older environment has the slug.
type SlugTakenError struct {
	Slug   string
	Holder ObjectRef
}

// Error names slug and holder.
func (e *SlugTakenError) Error() string {
	return fmt.Sprintf("slug %q is taken by %s", e.Slug, e.Holder)
}

// DuplicateError means that an object with an earlier claim has a unique property: the name of a
// connector in its environment, or the connector and agent of a link.
type DuplicateError struct{ Holder ObjectRef }

// Error names the holder.
func (e *DuplicateError) Error() string { return fmt.Sprintf("%s exists already", e.Holder) }

// SecretVersionError means that a connector requests an older version of its secret than callers
// may know.
type SecretVersionError struct {
	// Asked is below Stored.
	Asked, Stored int64
}

// Error names both versions.
func (e *SecretVersionError) Error() string {
	return fmt.Sprintf("secret version %d is lower than the current version %d", e.Asked, e.Stored)
}

// ProjectedObject is a claim: an ID and its object.
type ProjectedObject struct {
	Key Key
	Ref ObjectRef
}

// Sweeper lists the objects that the store knows, for the sweep of deleted ones.
type Sweeper interface {
	// ListProjected returns the claims of all kinds and projects, except for objects of an
	// activation that are not mirrored yet.
	ListProjected(ctx context.Context) ([]ProjectedObject, error)
}

// Routes reads the data that the gateway needs to accept a webhook.
type Routes interface {
	// Route returns the connector with its links, oldest link first; ErrNotFound if there is no
	// such connector.
	Route(ctx context.Context, connector Key) (Route, error)
	// ConnectorIDs returns a page of at most limit connector keys of all projects, in order, after
	// the given one.
	ConnectorIDs(ctx context.Context, after Key, limit int) ([]Key, error)
}

// Catalog reads the projection for the facade and the controllers.
type Catalog interface {
	// Holder returns the object with an ID; ErrNotFound if there is none. Its ObjectUID is empty
	// until it is mirrored.
	Holder(ctx context.Context, key Key) (ObjectRef, error)
	// Holders returns the claims of a kind in a project, by name.
	Holders(ctx context.Context, projectID uuid.UUID, kind string) ([]ProjectedObject, error)
	// Environment returns an environment; ErrNotFound if there is none.
	Environment(ctx context.Context, key Key) (Environment, error)
	// EnvironmentName returns the display name of an environment, also after its deletion while it
	// has history; ErrNotFound if it is unknown.
	EnvironmentName(ctx context.Context, key Key) (string, error)
	// DefaultEnvironment returns the ID of the project's recorded default environment: the first
	// created until it is deleted, then the oldest remaining. ErrNotFound if the project has no
	// environment.
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	// Connector returns a connector; ErrNotFound if there is none.
	Connector(ctx context.Context, key Key) (Connector, error)
	// ConnectorsOf returns the IDs of the connectors of an environment, also of a deleted one.
	ConnectorsOf(ctx context.Context, environment Key) ([]uuid.UUID, error)
	// HasAgent reports whether a deployment has an agent. A/B variants do not count, because runs
	// belong to their base agents.
	HasAgent(ctx context.Context, deployment Key, name string) (bool, error)
	// SendsByMiddleware reports whether middleware of an agent of a deployment may send over links.
	SendsByMiddleware(ctx context.Context, deployment Key, agent string) (bool, error)
	// AgentNames lists the agents of a deployment by name, without variants, at most limit.
	AgentNames(ctx context.Context, deployment Key, limit int) ([]string, error)
	// Agents lists the agents of an environment by name:
	//
	//   - agents of the live deployment and of the last 20 deployed before, without variants;
	//   - agents with open runs;
	//   - of the agents with past runs only, the MaxPastAgents whose runs ended last.
	Agents(ctx context.Context, environment Key) ([]AgentSummary, error)
	// Agent returns one of these agents, also one with past runs only that the list omits;
	// ErrNotFound if there is none.
	Agent(ctx context.Context, environment Key, name string) (AgentSummary, error)
	// HasRuns reports whether an environment has or had runs, also a deleted one. Of the ended runs
	// that wait for their rollup it reads the newest MaxWaiting.
	HasRuns(ctx context.Context, environment Key) (bool, error)
	// AgentConfig returns the live deployment of an environment and the configuration of an agent
	// in it, nil without one; ErrNotFound if it does not have the agent.
	AgentConfig(ctx context.Context, environment Key, name string) (deployment uuid.UUID, config json.RawMessage, err error)
}

// AgentSummary is an agent with its counts for the facade's list.
type AgentSummary struct {
	// Agent is nil if the live deployment does not have the agent.
	Agent          *Agent
	Name           string
	RunCount       int64
	QueueCount     int64
	LastActivityAt *time.Time
	// HasInboundConnector reports whether a connector that starts runs is linked.
	HasInboundConnector bool
}
