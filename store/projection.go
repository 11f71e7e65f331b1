// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ObjectRef names a Kubernetes object over all clusters and incarnations.
type ObjectRef struct {
	// ClusterUID names the cluster: the uid of the kube-system namespace of the
	// one in which the platform's keys were made.
	ClusterUID string
	// Namespace, Kind, Name locate the object.
	Namespace, Kind, Name string
	// ObjectUID is the object's metadata.uid: another one under the same name
	// means deleted and re-created unseen.
	ObjectUID string
	// Generation is the object's metadata.generation; an older one never
	// overwrites.
	Generation int64
}

// String is `Kind namespace/name`, as errors show it.
func (r ObjectRef) String() string { return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name) }

// SameObject says whether both name the same object, whatever the incarnation.
func (r ObjectRef) SameObject(o ObjectRef) bool {
	return r.ClusterUID == o.ClusterUID && r.Namespace == o.Namespace && r.Kind == o.Kind && r.Name == o.Name
}

// Kinds of projected objects, as ObjectRef.Kind holds them.
const (
	KindProject       = "Project"
	KindEnvironment   = "Environment"
	KindDeployment    = "Deployment"
	KindConnector     = "Connector"
	KindConnectorLink = "ConnectorLink"
)

// Project is the projection of a project.
type Project struct {
	Ref               ObjectRef
	ID                uuid.UUID
	DisplayName       string
	RequestsPerMinute int
	CreatedAt         time.Time // set by the store
}

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

	// The rest is set by the store and ignored on Put.

	// LiveDeploymentID is the deployment activated last, or nil.
	LiveDeploymentID *uuid.UUID
	// LiveActivatedAt is when that was.
	LiveActivatedAt *time.Time
	// LiveBundleDigest is the bundle of the live deployment ("sha256:…" hex), or "".
	LiveBundleDigest string
	// WantedBundleDigest is a bundle that runners shall prefetch, or "".
	WantedBundleDigest string
	CreatedAt          time.Time
}

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
	// Config is the connector's configuration in its REST shape, without credentials.
	Config json.RawMessage
	// Sealed holds credential fields, sealed; nil when there are none.
	Sealed []byte
	// RequireAuthentication, TimeoutSeconds and FilesRequired are taken out of
	// Config because the gateway reads them for every request.
	RequireAuthentication bool
	TimeoutSeconds        int
	FilesRequired         bool
	// SecretDigest is the SHA-256 of the secret that is valid now; nil without
	// authentication.
	SecretDigest []byte
	// SecretGracePeriod is how long the secret before stays valid once
	// SecretDigest changes.
	SecretGracePeriod time.Duration

	// The rest is set by the store and ignored on Put.

	// Secrets are all digests accepted at present.
	Secrets []AcceptedSecret
	// Version rises with every change of the connector and of its links.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Link is the projection of a connector link.
type Link struct {
	Ref           ObjectRef
	ID            uuid.UUID
	ProjectID     uuid.UUID
	ConnectorID   uuid.UUID
	AgentName     string
	FilesRequired bool
	// Outbound are the link's outbound settings in their REST shape, or nil.
	Outbound json.RawMessage
	// ObjectCreatedAt orders the links of a connector: a sync answer is that
	// of the oldest.
	ObjectCreatedAt time.Time
	CreatedAt       time.Time // set by the store
	UpdatedAt       time.Time // set by the store
}

// AcceptedSecret is the digest of a secret that a webhook accepts.
type AcceptedSecret struct {
	SHA256 []byte `json:"sha256"`
	// NotAfter is nil for the current secret and ends the grace period of an
	// older one.
	NotAfter *time.Time `json:"not_after,omitempty"`
}

// RotateSecrets returns what is accepted once digest becomes the current
// secret at now: the one before stays valid for grace, what has expired goes.
// With the digest that is current already nothing changes but the expired
// ones going. A nil digest (no authentication) accepts none.
func RotateSecrets(accepted []AcceptedSecret, digest []byte, grace time.Duration, now time.Time) []AcceptedSecret {
	if digest == nil {
		return nil
	}
	out := []AcceptedSecret{{SHA256: digest}}
	for _, s := range accepted {
		if string(s.SHA256) == string(digest) {
			continue
		}
		if s.NotAfter == nil {
			end := now.Add(grace)
			s.NotAfter = &end
		}
		if s.NotAfter.After(now) {
			out = append(out, s)
		}
	}
	return out
}

// Projector writes the projection of objects that users own. Each Put claims
// the id for the object's (cluster, namespace, kind, name): *IDTakenError when
// another object holds it; ErrStale when a newer generation of the same
// incarnation is stored already (the caller has nothing to do). A Put with a
// new ObjectUID first applies the effects of a deletion.
type Projector interface {
	PutProject(ctx context.Context, p Project) error
	// PutEnvironment also decides the slug: *SlugTakenError when an older
	// environment of the project holds it; the environment is stored all the same,
	// with an empty slug.
	PutEnvironment(ctx context.Context, e Environment) error
	PutConnector(ctx context.Context, c Connector) error
	PutLink(ctx context.Context, l Link) error
	// Remove applies the deletion of the object with this id, if ref still holds
	// it: an environment's open runs are cancelled, its deployments deactivated
	// and its connectors disabled; a connector goes with its links; history
	// stays. Removing what is not there is no error. An empty ref.ObjectUID means
	// whatever incarnation, a nil id the one that ref's name claims.
	Remove(ctx context.Context, kind string, id uuid.UUID, ref ObjectRef) error
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

// ProjectedObject is one row of the projection, as the start-up sweep sees it.
type ProjectedObject struct {
	Ref ObjectRef
	ID  uuid.UUID
}

// Sweeper lists and removes rows whose objects are gone.
type Sweeper interface {
	// ListProjected returns the live rows of a cluster, all kinds.
	ListProjected(ctx context.Context, clusterUID string) ([]ProjectedObject, error)
}

// Routes is what the gateway reads before it takes a webhook.
type Routes interface {
	// Route returns the connector with its links, oldest link first; ErrNotFound
	// when no such connector exists.
	Route(ctx context.Context, connectorID uuid.UUID) (Route, error)
}

// Route is a connector as the gateway needs it, read in one snapshot.
type Route struct {
	Connector Connector
	Links     []Link
}

// Catalog reads the projection for people: the facade and the controllers.
type Catalog interface {
	// Environment returns one environment, ErrNotFound when there is none.
	Environment(ctx context.Context, id uuid.UUID) (Environment, error)
	// DefaultEnvironment returns the id of the environment that is remembered as
	// the project's default: the first created, until it is removed. ErrNotFound
	// when the project has no environment.
	DefaultEnvironment(ctx context.Context, projectID uuid.UUID) (uuid.UUID, error)
	// Connector returns one connector, ErrNotFound when there is none.
	Connector(ctx context.Context, id uuid.UUID) (Connector, error)
	// Agents lists the agents of an environment: those of the live deployment and
	// names with runs in the past, by name.
	Agents(ctx context.Context, environmentID uuid.UUID) ([]AgentSummary, error)
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
