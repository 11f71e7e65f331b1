// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Key is the primary key of a row. Ids are unique inside their project only, so
// nothing is found, changed or joined by less than both.
type Key struct{ ProjectID, ID uuid.UUID }

// String is `project/id`, as errors show it.
func (k Key) String() string { return k.ProjectID.String() + "/" + k.ID.String() }

// ObjectRef names a Kubernetes object and its incarnation. Which cluster it is
// in follows from the store's lease: one store serves one cluster at a time.
type ObjectRef struct {
	// Namespace, Kind, Name locate the object.
	Namespace, Kind, Name string
	// ObjectUID is the object's metadata.uid: another one under the same name
	// means deleted and re-created unseen.
	ObjectUID string
	// Generation is the object's metadata.generation; an older one overwrites
	// only where Restored says so.
	Generation int64
	// Restored is set for an object whose generation is older than what is
	// stored although an uncached read confirms it, as after a restore of etcd:
	// the StaleError.Writes that the confirmed read followed. The object wins
	// if nobody wrote since.
	Restored int64
}

// String is `Kind namespace/name`, as errors show it.
func (r ObjectRef) String() string { return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name) }

// SameObject says whether both name the same object, whatever the incarnation.
func (r ObjectRef) SameObject(o ObjectRef) bool {
	return r.Namespace == o.Namespace && r.Kind == o.Kind && r.Name == o.Name
}

// Kinds of projected objects, as ObjectRef.Kind holds them.
const (
	KindProject       = "Project"
	KindEnvironment   = "Environment"
	KindDeployment    = "Deployment"
	KindConnector     = "Connector"
	KindConnectorLink = "ConnectorLink"
	KindAPIKey        = "APIKey"
)

// Kinds are all kinds of objects that claim ids.
var Kinds = []string{KindProject, KindEnvironment, KindDeployment, KindConnector, KindConnectorLink, KindAPIKey}

// Project is the projection of a project.
type Project struct {
	Ref         ObjectRef
	ID          uuid.UUID
	DisplayName string
	Limits      ProjectLimits
	// Retention is for how long the project keeps history, at least MinRetention; 0 is as long as
	// the platform does, which is the most in any case.
	Retention time.Duration
	CreatedAt time.Time // set by the store
}

// Key is the project's primary key: it is a project of its own.
func (p Project) Key() Key { return Key{p.ID, p.ID} }

// Environment is the projection of an environment.
type Environment struct {
	Ref         ObjectRef
	ID          uuid.UUID
	ProjectID   uuid.UUID
	DisplayName string
	Slug        string
	Kind        string // standard | test
	// Priority orders claims of a slug and of the default: the object's
	// creation time.
	ObjectCreatedAt time.Time
	// Limit is how many environments the project may have, 0 for any number. It is
	// heeded on Put and not kept.
	Limit int

	// The rest is set by the store and ignored on Put.

	// LiveDeploymentID is the deployment activated last, or nil.
	LiveDeploymentID *uuid.UUID
	// LiveRank is that of its activation, 0 while nothing is live.
	LiveRank int64
	// LiveActivatedAt is when that was.
	LiveActivatedAt *time.Time
	// LiveBundleDigest is the bundle of the live deployment ("sha256:…" hex), or "".
	LiveBundleDigest string
	// WantedBundleDigest is a bundle that runners are to prefetch, or "".
	WantedBundleDigest string
	CreatedAt          time.Time
}

// Key is the environment's primary key.
func (e Environment) Key() Key { return Key{e.ProjectID, e.ID} }

// Connector is the projection of a connector.
type Connector struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	Name          string // the name that people and middleware use (displayName, else the object's name)
	Type          string // webhook | cron
	Mode          string // inbound | sync | outbound
	Enabled       bool
	Retired       bool
	DefinedInCode bool
	// Activation is the rank of the activation that a code-defined connector mirrors, 0
	// for any: it is put only while that is the environment's LiveRank, else ErrNotLive,
	// or ErrNothingLive.
	// It is heeded on Put and not kept.
	Activation int64
	// Config is the connector's configuration in its REST shape, without credentials.
	Config json.RawMessage
	// Sealed holds credential fields, sealed; nil when there are none.
	Sealed []byte
	// RequireAuthentication, TimeoutSeconds, FilesRequired, Signature and ContextHeaders
	// are taken out of Config because the gateway reads them for every request.
	RequireAuthentication bool
	TimeoutSeconds        int
	FilesRequired         bool
	// Signature is the scheme by which callers sign with the secret (github | gitlab |
	// stripe | slack | standard_webhooks); "" where they send it.
	Signature string
	// ContextHeaders are the names, in lower case, of the request headers that the runs
	// of an event see; at most MaxContextHeaders.
	ContextHeaders []string
	// SecretVersion is the version of the generated secret. It never goes back:
	// a lower one leaves the secrets as they are.
	SecretVersion int64
	// SecretKey is the id of the key that the generated secret derives from, ""
	// for a secret that the user brought; SealedKey that of the key that sealed
	// Sealed, "" where nothing is sealed.
	SecretKey, SealedKey string
	// SecretDigest is the SHA-256 of the secret that is valid now; nil without
	// authentication.
	SecretDigest []byte
	// SecretGracePeriod is how long the secret before stays valid once
	// SecretDigest changes.
	SecretGracePeriod time.Duration

	// The rest is set by the store and ignored on Put.

	// EnvironmentGone says that its environment is not there; then Enabled is false.
	EnvironmentGone bool
	// DeploymentID is the deployment whose file a code-defined connector is: that of the last
	// activation that named it. Nil where none did.
	DeploymentID *uuid.UUID
	// Secrets are all digests accepted at the time of reading, by the database's clock.
	Secrets []AcceptedSecret
	// Version rises with every change of the connector and of its links.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Key is the connector's primary key.
func (c Connector) Key() Key { return Key{c.ProjectID, c.ID} }

// Link is the projection of a connector link.
type Link struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	ConnectorID   uuid.UUID
	AgentName     string
	FilesRequired bool
	// Outbound is what a link to an outbound connector says; nil of others.
	Outbound *OutboundPolicy
	// Activation is as a Connector's; a link that has one is defined in code.
	Activation int64
	// ObjectCreatedAt orders the links of a connector: a sync answer is that
	// of the oldest.
	ObjectCreatedAt time.Time
	CreatedAt       time.Time // set by the store
	UpdatedAt       time.Time // set by the store
}

// Key is the link's primary key.
func (l Link) Key() Key { return Key{l.ProjectID, l.ID} }

// MaxContextHeaders is the most headers of a request that its runs see, MaxHeaderName and
// MaxHeaderValue are the most bytes of the name and of the value of one.
const (
	MaxContextHeaders = 16
	MaxHeaderName     = 128
	MaxHeaderValue    = 1024
)

// MaxAcceptedSecrets is the most secrets that a webhook accepts at a time: each
// request is compared with all of them.
const MaxAcceptedSecrets = 16

// AcceptedSecret is the digest of a secret that a webhook accepts.
type AcceptedSecret struct {
	SHA256 []byte `json:"sha256"`
	// NotAfter is nil for the current secret and ends the grace period of an
	// older one. A secret whose key was revoked ends with the key.
	NotAfter *time.Time `json:"not_after,omitempty"`
	// Version is the connector's secret version.
	Version int64 `json:"version,omitempty"`
	// Key is the id of the key that it derives from; "" for one that the user brought.
	Key string `json:"key,omitempty"`
}

// KeyEnds are the times after which nothing is accepted that derives from a
// revoked key, by the key's id.
type KeyEnds map[string]time.Time

// RotateSecrets returns what is accepted once current becomes the current
// secret at now: those before stay valid for grace at most, what has expired
// goes. So a shorter grace ends all of them earlier, and a longer one none later.
// A secret of the same version whose key was revoked has no grace of the
// connector's: it ends with its key. A nil digest (no authentication) accepts none.
// Of many only the newest MaxAcceptedSecrets are.
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

// AcceptedAt are the secrets that are valid at now, each with its end.
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

// Projector writes the projection of objects that users own. ClaimID and each Put
// claim the id for the object's (kind, name) in its project: *IDTakenError when
// another object holds it; *StaleError when a newer generation of the same
// incarnation is stored already. A new ObjectUID first applies the effects of a
// deletion.
type Projector interface {
	// ClaimID makes the id the object's, and no more: it comes before everything
	// else that is done for an object, so that an id counts from then on, and
	// only, where the claim names that very object. What is claimed already
	// costs no write.
	ClaimID(ctx context.Context, key Key, ref ObjectRef) error
	PutProject(ctx context.Context, p Project) error
	// PutEnvironment also decides the slug: *SlugTakenError when an older
	// environment of the project holds it; the environment is stored all the same,
	// with an empty slug. *LimitReachedError when as many as e.Limit were claimed
	// before it and are still there: then the claim is all that is stored, and it
	// comes into effect with a later Put, in the order of the claims. ErrLeaving, with the
	// claim stored, as long as runs of an environment that had the id before are open.
	PutEnvironment(ctx context.Context, e Environment) error
	// PutConnector answers *DuplicateError when another connector of the
	// environment has the name; the claim stays, the row is not written. With a
	// SecretVersion below the stored one the secrets stay, the rest is written,
	// and the answer is a *SecretVersionError.
	PutConnector(ctx context.Context, c Connector) error
	// DisableConnector disables what is stored of the connector that ref names, and
	// changes nothing else: it needs nothing of what a Put has to know. What is not
	// stored, or disabled already, costs no write.
	DisableConnector(ctx context.Context, key Key, ref ObjectRef) error
	// PutLink answers *DuplicateError when another link joins the same connector
	// and agent, *TooManyLinksError when the connector has MaxLinks others,
	// *ActionTakenError when the agent has another tool of its action name in the
	// environment, *TooManyOutboundLinksError when it has MaxOutboundLinks others to
	// outbound connectors there; the claim stays, the row is not written.
	PutLink(ctx context.Context, l Link) error
	// Remove applies the deletion of the object that claims ref's kind and name
	// in the project: an environment's open runs are cancelled, its deployments
	// deactivated and its connectors disabled; a project's connectors are disabled
	// and what was accepted is worked off; a connector goes with its links, but one
	// of the code that is live, which waits for another mirror as it is; history stays.
	// Removing what is not there, or is another incarnation, is no error. An empty
	// ref.ObjectUID means a claim that no object has taken over.
	Remove(ctx context.Context, projectID uuid.UUID, ref ObjectRef) error
}

// SlugTakenError says that an older environment holds a slug.
type SlugTakenError struct {
	Slug   string
	Holder ObjectRef
}

// Error names slug and holder.
func (e *SlugTakenError) Error() string {
	return fmt.Sprintf("slug %q is taken by %s", e.Slug, e.Holder)
}

// DuplicateError says that an object which was claimed earlier has what may be
// there once: a connector's name in its environment, a link's connector and agent.
type DuplicateError struct{ Holder ObjectRef }

// Error names the holder.
func (e *DuplicateError) Error() string { return fmt.Sprintf("%s is there already", e.Holder) }

// SecretVersionError says that a connector asks for an older version of its
// secret than callers may have been told.
type SecretVersionError struct {
	// Asked is below Stored.
	Asked, Stored int64
}

// Error shows both versions.
func (e *SecretVersionError) Error() string {
	return fmt.Sprintf("secret version %d is behind %d, which is in effect", e.Asked, e.Stored)
}

// ProjectedObject is a claim: an id and the object that holds it.
type ProjectedObject struct {
	Key Key
	Ref ObjectRef
}

// Sweeper lists what objects the store knows, for the sweep of those that are gone.
type Sweeper interface {
	// ListProjected returns the claims of all kinds and projects, but for those
	// of objects that an activation brought and that are yet to be mirrored.
	ListProjected(ctx context.Context) ([]ProjectedObject, error)
}

// Routes is what the gateway reads before it takes a webhook.
type Routes interface {
	// Route returns the connector with its links, oldest link first; ErrNotFound
	// when no such connector exists.
	Route(ctx context.Context, connector Key) (Route, error)
	// ConnectorIDs returns a page of the keys of all connectors of all projects, in
	// their order, of at most limit that come after one.
	ConnectorIDs(ctx context.Context, after Key, limit int) ([]Key, error)
}

// Route is a connector as the gateway needs it, read in one snapshot.
type Route struct {
	Connector Connector
	Links     []Link
	// Live says that a deployment is live in the environment; Concurrency is that of
	// its agents which are linked and whose runs take turns. When either changes, so
	// does the connector's version.
	Live        bool
	Concurrency map[string]Concurrency
}

// Catalog reads the projection for people: the facade and the controllers.
type Catalog interface {
	// Holder returns the object that holds an id, ErrNotFound when none does.
	// Its ObjectUID is empty while it is yet to be mirrored.
	Holder(ctx context.Context, key Key) (ObjectRef, error)
	// Holders returns the claims of a kind in a project, by name.
	Holders(ctx context.Context, projectID uuid.UUID, kind string) ([]ProjectedObject, error)
	// Environment returns one environment, ErrNotFound when there is none.
	Environment(ctx context.Context, key Key) (Environment, error)
	// EnvironmentName returns the name for people of an environment that is there, or has gone
	// as long as its history stays; ErrNotFound when nothing is known of it.
	EnvironmentName(ctx context.Context, key Key) (string, error)
	// DefaultEnvironment returns the id of the environment that is remembered as
	// the project's default: the first created, until it is removed, then the oldest left. ErrNotFound
	// when the project has no environment.
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	// Connector returns one connector, ErrNotFound when there is none.
	Connector(ctx context.Context, key Key) (Connector, error)
	// ConnectorsOf returns the ids of the connectors of an environment, be it gone or not.
	ConnectorsOf(ctx context.Context, environment Key) ([]uuid.UUID, error)
	// HasAgent says whether a deployment has an agent; A/B variants are none, for runs are of
	// their bases.
	HasAgent(ctx context.Context, deployment Key, name string) (bool, error)
	// AgentNames lists agents of a deployment but for variants by name, at most limit.
	AgentNames(ctx context.Context, deployment Key, limit int) ([]string, error)
	// Agents lists the agents of an environment: those of the live deployment and
	// of the last 20 deployed before, the variants of these left out, those that have open runs,
	// and of the names that have runs in the past alone the MaxPastAgents whose runs ended last,
	// by name.
	Agents(ctx context.Context, environment Key) ([]AgentSummary, error)
	// Agent returns one of these, also of the names in the past that a list leaves out;
	// ErrNotFound when there is none.
	Agent(ctx context.Context, environment Key, name string) (AgentSummary, error)
	// HasRuns says whether an environment has runs, or had some, be it gone or not.
	HasRuns(ctx context.Context, environment Key) (bool, error)
	// AgentConfig returns the live deployment of an environment and the
	// configuration of an agent in it, nil without one; ErrNotFound when it does not
	// hold the agent.
	AgentConfig(ctx context.Context, environment Key, name string) (deployment uuid.UUID, config json.RawMessage, err error)
}

// AgentSummary is an agent with its counts, as the facade lists it.
type AgentSummary struct {
	// Agent is nil when the live deployment does not hold the agent.
	Agent          *Agent
	Name           string
	RunCount       int64
	QueueCount     int64
	LastActivityAt *time.Time
	// HasInboundConnector says whether an inbound or sync connector is linked.
	HasInboundConnector bool
}
