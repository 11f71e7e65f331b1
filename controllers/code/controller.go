// SPDX-License-Identifier: Apache-2.0

// Package code mirrors the connectors of a project's code as Connectors and ConnectorLinks. An
// activation has written them to the store. The objects show them and have the fields that users may
// change. The controller reverts all other changes.
package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;watch;create;patch;delete

// Store has the store methods that the controller needs.
type Store interface {
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	ConnectorFiles(ctx context.Context, key store.Key) ([]store.ConnectorFile, error)
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
	CodeConnectors(ctx context.Context, environment store.Key) ([]store.Connector, error)
}

// Reconciler mirrors the connectors of an Environment's live deployment.
type Reconciler struct {
	*base.Base
	Store Store
}

// Reconcile mirrors the connectors of one Environment. It changes nothing while no deployment is live.
// For a deleted Environment, it deletes the links; the connectors end themselves.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := v1alpha1.EnvironmentName(req.Name)
	of, environment, err := r.Environment(ctx, req.Namespace, name)
	var missing *base.MissingError
	if errors.As(err, &missing) && missing.Unready {
		return ctrl.Result{}, nil // a restored environment triggers a reconcile
	}
	if errors.As(err, &missing) {
		return ctrl.Result{}, r.deleteOrphanedLinks(ctx, req.Namespace, name)
	}
	if err != nil || environment.LiveDeploymentID == nil {
		return ctrl.Result{}, err
	}
	m, err := r.readMirrors(ctx, req.Namespace, name, environment)
	if err == nil {
		err = r.writeMirrors(ctx, m)
	}
	if m != nil {
		r.sendWarnings(ctx, of, m, err)
	}
	if err != nil {
		return ctrl.Result{}, err // the queue has its own backoff
	}
	if m.cacheStale {
		return ctrl.Result{RequeueAfter: base.MaxRetryInterval}, nil
	}
	return ctrl.Result{}, nil
}

// mirrors has the objects that the live code requires, and the existing ones.
type mirrors struct {
	environment v1alpha1.EnvironmentName
	key         store.Key
	rank        int64
	wanted      []projection.Mirror
	// unchanged has the connectors that the activation left unchanged, which only their objects or rows
	// describe. still has the connectors whose state is not known yet.
	unchanged, unknown map[string]bool
	connectors         map[string]*v1alpha1.Connector
	links              map[string]*v1alpha1.ConnectorLink
	// deployment is the name of the live deployment.
	deployment string
	// conflicts has conflicting objects of other owners, such as `Connector "dev.orders"`. They are neither
	// used nor changed.
	conflicts []string
	// unreadable has the effective connectors whose files this release cannot read.
	unreadable []string
	// cacheStale reports that the cache does not have the current objects yet.
	cacheStale bool
}

// readMirrors finds the objects to mirror and the existing objects.
func (r *Reconciler) readMirrors(
	ctx context.Context, namespace string, name v1alpha1.EnvironmentName, environment store.Environment,
) (*mirrors, error) {
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	d, err := r.Store.Deployment(ctx, live)
	if err != nil {
		return nil, base.FromStore(err)
	}
	files, err := r.Store.ConnectorFiles(ctx, live)
	if err != nil {
		return nil, base.FromStore(err)
	}
	m := &mirrors{
		environment: name, key: environment.Key(), rank: environment.LiveRank, deployment: d.Ref.Name, unchanged: map[string]bool{}, unknown: map[string]bool{},
		connectors: map[string]*v1alpha1.Connector{}, links: map[string]*v1alpha1.ConnectorLink{},
	}
	left, agents := unappliedConnectors(d.ConnectorResults), d.AgentNames()
	var asTheyWere []string
	for _, file := range files {
		c, err := projection.ParseFile(file, agents)
		if err != nil || left[file.Key] || len(c.Unsupported()) > 0 {
			asTheyWere = append(asTheyWere, file.Key)
			continue
		}
		mirror := projection.MirrorOf(namespace, name, c)
		m.wanted = append(m.wanted, mirror)
	}
	return m, errors.Join(r.keepMirrors(ctx, namespace, m, asTheyWere), r.listObjects(ctx, namespace, m))
}

// unappliedConnectors returns the connectors that an activation could not apply, by key.
func unappliedConnectors(results json.RawMessage) map[string]bool {
	var list []struct{ Connector, Action string }
	left := map[string]bool{}
	if len(results) == 0 || json.Unmarshal(results, &list) != nil {
		return left
	}
	for _, one := range list {
		left[one.Connector] = one.Action == "skipped" || one.Action == "failed"
	}
	return left
}

// listObjects finds the objects of the environment that the platform created, and restores missing labels.
func (r *Reconciler) listObjects(ctx context.Context, namespace string, m *mirrors) error {
	connectors, links := &v1alpha1.ConnectorList{}, &v1alpha1.ConnectorLinkList{}
	at := client.InNamespace(namespace)
	if err := errors.Join(r.Client.List(ctx, connectors, at), r.Client.List(ctx, links, at)); err != nil {
		return fmt.Errorf("listing the mirrors of the code: %w", err)
	}
	var failed []error
	for i := range connectors.Items {
		c := &connectors.Items[i]
		if c.Spec.Environment != m.environment {
			continue
		}
		ours, err := r.isOwnMirror(ctx, c, m)
		if ours {
			m.connectors[c.Name] = c
		}
		failed = append(failed, err)
	}
	for i := range links.Items {
		l := &links.Items[i]
		ours, err := r.isOwnMirror(ctx, l, m)
		if ours {
			m.links[l.Name] = l
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	mirrored := handler.EnqueueRequestsFromMapFunc(environmentOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("code").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.Environment{}, builder.WithPredicates(base.Changed(liveDeployment))).
		Watches(&v1alpha1.Deployment{}, handler.EnqueueRequestsFromMapFunc(environmentOf), builder.WithPredicates(base.Changed(liveSince))).
		Watches(&v1alpha1.Connector{}, mirrored, builder.WithPredicates(base.Changed(generationAndLabels))).
		Watches(&v1alpha1.ConnectorLink{}, mirrored, builder.WithPredicates(base.Changed(generationAndLabels))).
		Complete(r)
}

// liveDeployment returns the live deployment of an environment.
func liveDeployment(e *v1alpha1.Environment) any {
	return [2]string{e.Status.ID, e.Status.LiveDeploymentID}
}

// liveSince returns whether a deployment is live, and since when.
func liveSince(d *v1alpha1.Deployment) any {
	if d.Status.ActivatedAt == nil {
		return nil
	}
	return [2]any{d.Status.Live, d.Status.ActivationRank}
}

// generationAndLabels returns the generation and labels of a mirror, which detect changes.
func generationAndLabels(o v1alpha1.ConditionedObject) any {
	return fmt.Sprint(o.GetGeneration(), o.GetLabels())
}

// environmentOf returns the environment of a deployment or a mirror, from its spec or labels, and the
// environment in the object's name: the object may have lost its labels, or conflict with a mirror.
func environmentOf(_ context.Context, o client.Object) (out []ctrl.Request) {
	said := o.GetLabels()[v1alpha1.LabelEnvironment]
	byName, _, dotted := strings.Cut(o.GetName(), ".")
	switch of := o.(type) {
	case *v1alpha1.Deployment:
		said, dotted = string(of.Spec.Environment), false
	case *v1alpha1.Connector:
		if of.DefinedInCode() {
			said = string(of.Spec.Environment)
		}
	}
	if said != "" {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: said}})
	}
	if dotted && byName != said {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: byName}})
	}
	return out
}
