// SPDX-License-Identifier: Apache-2.0

// Package connector brings Connectors into the store, from which the gateway
// serves them, and shows their secrets.
package connector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch

const (
	// secretsInterval is how often Secrets that users own are looked at for changes.
	secretsInterval = time.Minute
	// healInterval is how often a child Secret is looked at that somebody may have
	// changed or deleted.
	healInterval = 10 * time.Minute
)

// Store is what the controller needs of the store.
type Store interface {
	PutConnector(ctx context.Context, c store.Connector) error
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
}

// Reconciler reconciles Connectors.
type Reconciler struct {
	*object.Keeper
	Data Store
	// Keys derive secrets.
	Keys *keyring.Keys
	// Anew names connectors whose secrets are to be derived anew; nil for none.
	Anew <-chan event.GenericEvent
	// GatewayURL is the public start of webhook URLs.
	GatewayURL string
}

// Reconcile brings one Connector into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &v1alpha1.Connector{}
	return r.Keeper.Reconcile(ctx, req, c, func(ctx context.Context, key store.Key) (time.Duration, error) {
		if _, err := r.Project(ctx, c.Namespace); err != nil {
			return 0, err
		}
		_, environment, err := r.Environment(ctx, c.Namespace, c.Spec.Environment)
		if err != nil {
			return 0, err
		}
		ids := identity{key.ProjectID, environment.ID, key.ID}
		secret, keyID, err := r.secret(ctx, c, ids)
		if err != nil {
			return 0, err
		}
		row, err := r.row(c, ids, secret, keyID)
		if err != nil {
			return 0, err
		}
		if held, err := r.put(ctx, c, ids, row); err != nil || !held {
			return object.Later, err
		}
		if err := r.seen(ctx, c, key); err != nil {
			return 0, err
		}
		c.Status.URL = strings.TrimSuffix(r.GatewayURL, "/") + "/hooks/" + key.ProjectID.String() + "/" + key.ID.String()
		c.MarkRoutesReady()
		if err := r.showSecret(ctx, c, secret); err != nil {
			return 0, err
		}
		c.MarkReady(readyMessage(c))
		return recheck(c), nil
	})
}

// put writes the projection. held is false when something holds the connector
// back that somebody has to change.
func (r *Reconciler) put(ctx context.Context, c *v1alpha1.Connector, ids identity, row store.Connector) (held bool, err error) {
	var (
		duplicate *store.DuplicateError
		back      *store.SecretVersionError
	)
	err = r.Data.PutConnector(ctx, row)
	switch {
	case errors.As(err, &duplicate):
		c.MarkNameTaken(duplicate.Holder.String())
		return false, nil
	case errors.As(err, &back):
		c.MarkSecretVersionWentBack(back.Stored)
		return false, r.keepVersion(ctx, c, ids, row, back.Stored)
	case err != nil:
		return false, object.FromStore(fmt.Errorf("projecting the connector: %w", err))
	}
	return true, nil
}

// keepVersion writes the secret of a version that stays in effect although the
// spec asks for an earlier one: the key that it derives from may be another now.
func (r *Reconciler) keepVersion(ctx context.Context, c *v1alpha1.Connector, ids identity, row store.Connector, version int64) error {
	if c.Spec.SecretRef != nil || !c.RequiresAuthentication() {
		return nil
	}
	secret, keyID, err := r.generated(ctx, ids, version)
	if err != nil {
		return err
	}
	row.SecretVersion, row.SecretKey, row.SecretDigest = version, keyID, seal.Digest(secret)
	return object.FromStore(r.Data.PutConnector(ctx, row))
}

// seen reads back what the gateway reads: a connector is disabled there while its
// project is not in the store.
func (r *Reconciler) seen(ctx context.Context, c *v1alpha1.Connector, key store.Key) error {
	row, err := r.Store.Connector(ctx, key)
	if err != nil {
		return object.FromStore(fmt.Errorf("reading the connector back: %w", err))
	}
	if row.Enabled != c.IsEnabled() {
		return &object.MissingError{Kind: store.KindProject, Name: v1alpha1.ProjectName, Unready: true}
	}
	return nil
}

// recheck is when Secrets are looked at again: none is watched.
func recheck(c *v1alpha1.Connector) time.Duration {
	if c.Spec.SecretRef != nil {
		return secretsInterval
	}
	return wait.Jitter(healInterval, 0.2) // or all of a manager's start come together
}

func readyMessage(c *v1alpha1.Connector) string {
	if !c.IsEnabled() {
		return "in effect; disabled by spec.enabled"
	}
	return ""
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	list := func() *v1alpha1.ConnectorList { return &v1alpha1.ConnectorList{} }
	b := ctrl.NewControllerManagedBy(mgr)
	if r.Anew != nil {
		b = b.WatchesRawSource(source.Channel(r.Anew, &handler.EnqueueRequestForObject{}))
	}
	return b.
		Named("connector").
		For(&v1alpha1.Connector{}).
		Watches(&v1alpha1.Connector{}, r.Deleted()).
		Watches(&v1alpha1.Connector{}, object.Enqueue(r.Client, list, object.Connectors, namesake)).
		Watches(&v1alpha1.Project{}, object.Enqueue(r.Client, list, object.Connectors, object.Always), object.ComesOrGoes).
		Watches(&v1alpha1.Environment{}, object.Enqueue(r.Client, list, object.Connectors, servesIn), object.ComesOrGoes).
		Complete(r)
}

// servesIn picks the connectors of an environment.
func servesIn(environment client.Object, connector v1alpha1.ConditionedObject) bool {
	c, ok := connector.(*v1alpha1.Connector)
	return ok && string(c.Spec.Environment) == environment.GetName()
}

// namesake picks the connectors that wait for the name of one that changed.
func namesake(changed client.Object, candidate v1alpha1.ConditionedObject) bool {
	c, isConnector := changed.(*v1alpha1.Connector)
	other, isCandidate := candidate.(*v1alpha1.Connector)
	return isConnector && isCandidate && c.Name != other.Name && other.IsStalled() &&
		c.Spec.Environment == other.Spec.Environment &&
		other.Status.Condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonNameTaken
}
