// SPDX-License-Identifier: Apache-2.0

// Package code mirrors the connectors of a project's code as Connectors and ConnectorLinks. An
// activation has brought them into the store; the objects show it, carry what people may change
// of them, and are healed where somebody changes anything else.
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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectors,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=agentplatform.dev,resources=connectorlinks,verbs=get;list;watch;create;patch;delete

// Store is what the controller needs of the store.
type Store interface {
	Deployment(ctx context.Context, key store.Key) (store.Deployment, error)
	ConnectorFiles(ctx context.Context, key store.Key) ([]store.ConnectorFile, error)
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
	CodeConnectors(ctx context.Context, environment store.Key) ([]store.Connector, error)
}

// Reconciler mirrors the connectors of what is live in an Environment.
type Reconciler struct {
	*object.Base
	Store Store
}

// Reconcile mirrors those of one Environment. While nothing is live there objects stay as they
// are; of an Environment that is gone connectors end by themselves, and their links by this.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := v1alpha1.EnvironmentName(req.Name)
	of, environment, err := r.Environment(ctx, req.Namespace, name)
	var missing *object.MissingError
	if errors.As(err, &missing) && missing.Unready {
		return ctrl.Result{}, nil // it is looked at again when it has come
	}
	if errors.As(err, &missing) {
		return ctrl.Result{}, r.dropOrphans(ctx, req.Namespace, name)
	}
	if err != nil || environment.LiveDeploymentID == nil {
		return ctrl.Result{}, err
	}
	m, err := r.read(ctx, req.Namespace, name, environment)
	if err == nil {
		err = r.write(ctx, m)
	}
	if m != nil {
		r.tell(ctx, of, m, err)
	}
	if err != nil {
		return ctrl.Result{}, err // the queue has pauses of its own
	}
	if m.behind {
		return ctrl.Result{RequeueAfter: object.Later}, nil
	}
	return ctrl.Result{}, nil
}

// mirrors are the objects that the code of what is live asks for, and those that there are.
type mirrors struct {
	environment v1alpha1.EnvironmentName
	key         store.Key
	rank        int64
	wanted      []projection.Mirror
	// kept are the names of connectors that the activation has left as they were, of which
	// nothing says what that is but their objects; still those of which it is not known yet.
	kept, still map[string]bool
	connectors  map[string]*v1alpha1.Connector
	links       map[string]*v1alpha1.ConnectorLink
	// deployment is the name of what is live.
	deployment string
	// taken are the objects that are in the way of those that are wanted, such as
	// `Connector "dev.orders"`: somebody else's, which are neither used nor changed.
	taken []string
	// unread are the connectors in effect whose files this release of the platform cannot read.
	unread []string
	// behind says that the cache has not shown yet what is there.
	behind bool
}

// read finds what is to be mirrored, and what is there.
func (r *Reconciler) read(
	ctx context.Context, namespace string, name v1alpha1.EnvironmentName, environment store.Environment,
) (*mirrors, error) {
	live := store.Key{ProjectID: environment.ProjectID, ID: *environment.LiveDeploymentID}
	d, err := r.Store.Deployment(ctx, live)
	if err != nil {
		return nil, object.FromStore(err)
	}
	files, err := r.Store.ConnectorFiles(ctx, live)
	if err != nil {
		return nil, object.FromStore(err)
	}
	m := &mirrors{
		environment: name, key: environment.Key(), rank: environment.LiveRank, deployment: d.Ref.Name, kept: map[string]bool{}, still: map[string]bool{},
		connectors: map[string]*v1alpha1.Connector{}, links: map[string]*v1alpha1.ConnectorLink{},
	}
	left, agents := leftAsTheyAre(d.ConnectorResults), d.AgentNames()
	var asTheyWere []string
	for _, file := range files {
		c, err := projection.Parsed(file, agents)
		if err != nil || left[file.Key] || len(c.Unsupported()) > 0 {
			asTheyWere = append(asTheyWere, file.Key)
			continue
		}
		mirror, err := projection.MirrorOf(namespace, name, c)
		if err != nil {
			return nil, err
		}
		m.wanted = append(m.wanted, mirror)
	}
	return m, errors.Join(r.keep(ctx, namespace, m, asTheyWere), r.list(ctx, namespace, m))
}

// leftAsTheyAre are the connectors that an activation could not apply, by key.
func leftAsTheyAre(results json.RawMessage) map[string]bool {
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

// list finds the objects of the environment that the platform has made, and gives those their
// labels back that have lost them.
func (r *Reconciler) list(ctx context.Context, namespace string, m *mirrors) error {
	connectors, links := &v1alpha1.ConnectorList{}, &v1alpha1.ConnectorLinkList{}
	at := client.InNamespace(namespace)
	if err := errors.Join(r.Client.List(ctx, connectors, at), r.Client.List(ctx, links, at)); err != nil {
		return fmt.Errorf("listing what mirrors the code: %w", err)
	}
	var failed []error
	for i := range connectors.Items {
		c := &connectors.Items[i]
		if c.Spec.Environment != m.environment {
			continue
		}
		ours, err := r.ours(ctx, c, m)
		if ours {
			m.connectors[c.Name] = c
		}
		failed = append(failed, err)
	}
	for i := range links.Items {
		l := &links.Items[i]
		ours, err := r.ours(ctx, l, m)
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
		For(&v1alpha1.Environment{}, builder.WithPredicates(object.Changed(whatIsLive))).
		Watches(&v1alpha1.Deployment{}, handler.EnqueueRequestsFromMapFunc(environmentOf), builder.WithPredicates(object.Changed(whenLive))).
		Watches(&v1alpha1.Connector{}, mirrored, builder.WithPredicates(object.Changed(said))).
		Watches(&v1alpha1.ConnectorLink{}, mirrored, builder.WithPredicates(object.Changed(said))).
		Complete(r)
}

// whatIsLive is what an environment says of it.
func whatIsLive(o v1alpha1.ConditionedObject) any {
	e, ok := o.(*v1alpha1.Environment)
	if !ok {
		return nil
	}
	return [2]string{e.Status.ID, e.Status.LiveDeploymentID}
}

// whenLive is what a deployment says of being live.
func whenLive(o v1alpha1.ConditionedObject) any {
	d, ok := o.(*v1alpha1.Deployment)
	if !ok || d.Status.ActivatedAt == nil {
		return nil
	}
	return [2]any{d.Status.Live, d.Status.ActivationRank}
}

// said is what a mirror says, or is not to say.
func said(o v1alpha1.ConditionedObject) any {
	return fmt.Sprint(o.GetGeneration(), o.GetLabels())
}

// environmentOf is the environment of a deployment, or of what mirrors its code, by its spec or
// labels; and the one that an object's name is of: it may have lost its labels, or be in the way
// of a mirror, whatever it says itself.
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
