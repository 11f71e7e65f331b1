// SPDX-License-Identifier: Apache-2.0

// Package connector projects Connectors into the store, from which the gateway serves them, and
// publishes their secrets.
package connector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch

// Store has the store methods that the controller needs.
type Store interface {
	PutConnector(ctx context.Context, c store.Connector) error
	DisableConnector(ctx context.Context, key store.Key, ref store.ObjectRef) error
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
	// Deployment and ConnectorFiles read the live deployment and the connectors in its code.
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	ConnectorFiles(ctx context.Context, key store.Key) ([]store.ConnectorFile, error)
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error)
}

// Reconciler reconciles Connectors.
type Reconciler struct {
	*base.Base
	Store Store
	// Keys derives secrets.
	Keys *secrets.Keys
	// Changed names connectors to reconcile, because their secrets must be derived again or the state of
	// their deliveries changed. It may be nil.
	Changed <-chan event.GenericEvent
	// GatewayURL is the public base of webhook URLs.
	GatewayURL string
	// Damper decides which state of their destinations outbound connectors report.
	Damper *ReportDamper
	// Metrics counts state changes of deliveries. If nil, nothing is recorded.
	Metrics *metrics.Manager
}

// Reconcile projects one Connector into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &v1alpha1.Connector{}
	return r.Base.Reconcile(ctx, req, c, func(ctx context.Context, key store.Key) (time.Duration, error) {
		row, code, err := r.findCodeRow(ctx, c, key)
		if err != nil {
			return 0, err
		}
		if err := r.disable(ctx, c, key, code); err != nil {
			return 0, err
		}
		within, environment, err := r.environmentOf(ctx, c)
		if err != nil && code {
			return r.handleOrphan(ctx, c, key, err)
		}
		if err != nil {
			return 0, err
		}
		ids := projection.Identity{Project: key.ProjectID, Environment: environment.ID, Connector: key.ID}
		switch {
		case code:
			return r.reconcileMirror(ctx, c, within, ids, row)
		case c.DefinedInCode():
			return r.reconcileMislabelled(ctx, c, ids)
		}
		return r.reconcileByType(ctx, c, ids, secrets.Credentials{})
	})
}

// environmentOf returns the environment of a connector and its row.
func (r *Reconciler) environmentOf(ctx context.Context, c *v1alpha1.Connector) (*v1alpha1.Environment, store.Environment, error) {
	if _, err := r.Project(ctx, c.Namespace); err != nil {
		return nil, store.Environment{}, err
	}
	return r.Environment(ctx, c.Namespace, c.Spec.Environment)
}

// reconcileByType projects a connector into the store, in the way of its kind. ofCode has the
// credentials from expanded texts of the code.
func (r *Reconciler) reconcileByType(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, ofCode secrets.Credentials) (time.Duration, error) {
	switch kind := crd.KindOf(c); {
	case kind.Sends():
		return r.reconcileOutbound(ctx, c, ids, ofCode)
	case kind.HasCallers():
		return r.reconcileWebhook(ctx, c, ids)
	case kind.IsKnown():
		return r.reconcileSource(ctx, c, ids)
	}
	v1alpha1.MarkStalled(c, v1alpha1.ReasonInvalidSpec, v1alpha1.InvalidSpecMessage("spec.mode is not a mode of this type"))
	return 0, nil
}

// reconcileWebhook projects a webhook with callers into the store.
func (r *Reconciler) reconcileWebhook(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (time.Duration, error) {
	key := ids.Key()
	row, secret, err := r.inboundRow(ctx, c, ids)
	if errors.Is(err, secrets.ErrUnsealable) {
		c.MarkInvalidSetting("sealedSecret", "cannot be decrypted. The REST API seals it for one connector, with a key that the platform must still have; "+
			"send the secret to the REST API again, or keep it in a Secret that secretRef names")
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if held, err := r.projectRow(ctx, c, ids, row); err != nil || !held {
		return base.MaxRetryInterval, err
	}
	if err := r.checkProjected(ctx, c, key); err != nil {
		return 0, err
	}
	c.Status.URL = v1alpha1.WebhookURL(r.GatewayURL, key.ProjectID, key.ID)
	if c.IsEnabled() {
		c.MarkRoutesReady()
	}
	c.Status.SecretVersion = c.SecretVersion() // whatever publishes it
	if err := r.publishSecret(ctx, c, secret); err != nil {
		return 0, err
	}
	v1alpha1.MarkReady(c, readyMessage(c))
	return 0, nil
}

// disable closes a connector that spec disables before anything else is checked. A problem of its
// secret or its project therefore does not keep it open.
func (r *Reconciler) disable(ctx context.Context, c *v1alpha1.Connector, key store.Key, code bool) error {
	if c.IsEnabled() || code { // a mirror may be of an earlier activation
		return nil
	}
	if err := r.Store.DisableConnector(ctx, key, r.Ref(c)); err != nil {
		return base.FromStore(fmt.Errorf("disabling the connector: %w", err))
	}
	c.MarkDisabled()
	return nil
}

// projectRow writes the projection. held is false if a user has to resolve a conflict first.
func (r *Reconciler) projectRow(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, row store.Connector) (held bool, err error) {
	var (
		duplicate *store.DuplicateError
		back      *store.SecretVersionError
	)
	err = r.Store.PutConnector(ctx, row)
	switch {
	case errors.As(err, &duplicate):
		c.MarkNameTaken(duplicate.Holder.String())
		return false, nil
	case errors.As(err, &back):
		c.MarkSecretVersionWentBack(back.Stored)
		return false, r.keepStoredVersion(ctx, c, ids, row, back.Stored)
	case errors.Is(err, store.ErrNothingLive):
		return false, &base.WaitingError{Reason: v1alpha1.ReasonNotLive, Message: fmt.Sprintf(
			"Environment %q has no live deployment; deploy code with this connector to restore it", c.Spec.Environment)}
	case errors.Is(err, store.ErrNotLive):
		return false, &base.WaitingError{Message: "another activation is in effect in the environment; its mirror follows"}
	case err != nil:
		return false, base.FromStore(fmt.Errorf("projecting the connector: %w", err))
	}
	if !c.IsEnabled() {
		c.MarkDisabled()
	}
	return true, nil
}

// keepStoredVersion writes the secret of a version that stays in effect although the spec requests an earlier
// one. The key that the secret derives from may have changed.
func (r *Reconciler) keepStoredVersion(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, row store.Connector, version int64) error {
	if !crd.GeneratesSecret(c) {
		return nil
	}
	secret, keyID, err := r.generateSecret(ctx, c, ids, version)
	if err != nil {
		return err
	}
	row.SecretVersion, row.SecretKey, row.SecretDigest = version, keyID, secrets.Digest(secret)
	return base.FromStore(r.Store.PutConnector(ctx, row))
}

// checkProjected reads the row as the gateway reads it. A connector is disabled there while its project is not in
// the store.
func (r *Reconciler) checkProjected(ctx context.Context, c *v1alpha1.Connector, key store.Key) error {
	row, err := r.Store.Connector(ctx, key)
	if err != nil {
		return base.FromStore(fmt.Errorf("reading the projected connector: %w", err))
	}
	if row.Enabled != c.IsEnabled() {
		return &base.MissingError{Kind: store.KindProject, Name: v1alpha1.ProjectName, Unready: true}
	}
	return nil
}

func readyMessage(c *v1alpha1.Connector) string {
	if !c.IsEnabled() {
		return "in effect; disabled by spec.enabled"
	}
	return ""
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	connectors := &v1alpha1.ConnectorList{}
	b := ctrl.NewControllerManagedBy(mgr)
	if r.Changed != nil {
		b = b.WatchesRawSource(source.Channel(r.Changed, &handler.EnqueueRequestForObject{}))
	}
	b = b.
		Named("connector").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.Connector{}).
		Watches(&v1alpha1.Connector{}, r.Deleted()).
		Watches(&v1alpha1.Connector{}, base.EnqueueAfterRemoval(r.waitingForName), builder.WithPredicates(base.Changed(displayName))).
		Watches(&v1alpha1.Project{}, r.Enqueue(connectors, nil), base.IDChanged).
		Watches(&v1alpha1.Environment{}, r.EnqueueBy(base.ByEnvironment, connectors, nil), base.IDChanged).
		Watches(&v1alpha1.Environment{}, r.EnqueueBy(base.ByEnvironment, connectors, namesVariables), builder.WithPredicates(base.Changed(generationOf)))
	return base.WatchSecrets(b, r.EnqueueBy(base.BySecret, connectors, nil)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.connectorsUsing), builder.OnlyMetadata).Complete(r)
}

// displayName returns the display name, which other connectors of the environment cannot have.
func displayName(c *v1alpha1.Connector) any { return c.Title() }

// generationOf returns the generation of an environment, which determines its variables.
func generationOf(o v1alpha1.ConditionedObject) any { return o.GetGeneration() }

// namesVariables picks the connectors whose texts name variables of their environment.
func namesVariables(_ client.Object, connector v1alpha1.ConditionedObject) bool {
	c, ok := connector.(*v1alpha1.Connector)
	return ok && projection.NamesVariables(c)
}

// waitingForName returns the connectors that wait for the name of another one.
func (r *Reconciler) waitingForName(ctx context.Context, other client.Object) (out []ctrl.Request) {
	list := &v1alpha1.ConnectorList{}
	err := r.Client.List(ctx, list, client.InNamespace(other.GetNamespace()),
		client.MatchingFields{base.ByEnvironment: string(other.(*v1alpha1.Connector).Spec.Environment)})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the connectors that wait for a name")
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Name != other.GetName() && v1alpha1.IsStalled(c) &&
			c.Status.Condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonNameTaken {
			out = append(out, base.Request(c))
		}
	}
	return out
}
