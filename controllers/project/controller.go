// SPDX-License-Identifier: Apache-2.0

// Package project brings Projects into the store.
package project

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Store is what the controller needs of the store.
type Store interface {
	PutProject(ctx context.Context, p store.Project) error
	object.Defaults
}

// Reconciler reconciles Projects.
type Reconciler struct {
	*object.Base
	Store Store
	// Network is around the pods in the project's namespace, and TrustChanged tells
	// when they have to trust another certificate of the dispatch port.
	Network      Network
	TrustChanged <-chan event.GenericEvent
	// GatewayURL is the public start of webhook URLs.
	GatewayURL string
}

// Reconcile brings one Project into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	project := &v1alpha1.Project{}
	return r.Base.Reconcile(ctx, req, project, func(ctx context.Context, key store.Key) (time.Duration, error) {
		effective, err := r.showPlan(ctx, project)
		if err != nil {
			return 0, err
		}
		if err := r.Store.PutProject(ctx, projection(r.Ref(project), key.ID, project, effective)); err != nil {
			return 0, object.FromStore(err)
		}
		project.Status.Retention = project.Spec.Retention.DeepCopy()
		project.Status.GitWebhookURL = ""
		if project.Spec.Git != nil {
			project.Status.GitWebhookURL = v1alpha1.GitWebhookURL(r.GatewayURL, key.ID)
		}
		after, missing, err := r.showDefault(ctx, project, key.ID)
		if err != nil {
			return 0, err
		}
		if err := r.showNetwork(ctx, project); err != nil {
			return 0, err
		}
		v1alpha1.MarkReady(project, readyMessage(project, missing))
		return cmp.Or(after, r.PlanInterval()), nil
	})
}

// showPlan shows the limits in effect, and what is wrong with the Namespace's
// plan, of which an event tells once. It returns the plan in effect.
func (r *Reconciler) showPlan(ctx context.Context, project *v1alpha1.Project) (plan.Plan, error) {
	effective, invalid, err := r.Plan(ctx, project)
	if err != nil {
		return effective, err
	}
	project.Status.Limits = effective.Limits()
	if invalid == nil {
		project.MarkPlanValid()
		return effective, nil
	}
	before := project.Status.Condition(v1alpha1.ConditionPlanInvalid).DeepCopy()
	project.MarkPlanInvalid(plan.Annotation, invalid)
	now := project.Status.Condition(v1alpha1.ConditionPlanInvalid)
	if before == nil || before.Message != now.Message {
		r.Event(project, corev1.EventTypeWarning, now.Reason, now.Message)
	}
	return effective, nil
}

// readyMessage says what a project still lacks, the environment that it names as its default: those
// may be applied after it, so that it is ready without them.
func readyMessage(project *v1alpha1.Project, missing *object.MissingError) string {
	if missing == nil {
		return ""
	}
	what := "is not there"
	if missing.Unready {
		what = "is not in effect, see what it says"
	}
	return fmt.Sprintf("Environment %q of spec.defaultEnvironment %s; %s", missing.Name, what, until(project.Status.DefaultEnvironment))
}

// until is what a project has instead of the default environment that it names.
func until(chosen string) string {
	if chosen == "" {
		return "the project has no default environment until it is"
	}
	return fmt.Sprintf("until it is, Environment %q is the default", chosen)
}

// showDefault shows the default environment that is in effect; while that cannot be
// read, the one that was. It returns when to look again: nothing tells of it when the
// store lets go of one that is gone; and what is missing of the one that is named.
func (r *Reconciler) showDefault(
	ctx context.Context, project *v1alpha1.Project, id uuid.UUID,
) (after time.Duration, missing *object.MissingError, err error) {
	name, missing, err := r.DefaultName(ctx, r.Store, project, id)
	if err != nil {
		return 0, nil, err
	}
	project.Status.DefaultEnvironment = name
	if name == "" {
		return 0, missing, nil
	}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: project.Namespace, Name: name}, &v1alpha1.Environment{})
	if apierrors.IsNotFound(err) {
		return object.Later, missing, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("reading the default environment: %w", err)
	}
	return 0, missing, nil
}

// projection is a Project as the store keeps it.
func projection(ref store.ObjectRef, id uuid.UUID, project *v1alpha1.Project, effective plan.Plan) store.Project {
	name := string(project.Spec.DisplayName)
	if name == "" {
		name = project.Namespace
	}
	var retention time.Duration
	if r := project.Spec.Retention; r != nil {
		retention = time.Duration(r.RunsSeconds) * time.Second
	}
	return store.Project{
		Ref: ref, ID: id, DisplayName: name, Retention: retention,
		Limits: store.ProjectLimits{
			BacklogRuns: effective.BacklogRuns, BacklogInput: effective.BacklogInput.Value(), Storage: effective.Storage.Value(),
			RequestsPerMinute: int64(effective.RequestsPerMinute),
		},
	}
}

// idOf is what a project reads of its environments.
func idOf(o v1alpha1.ConditionedObject) any { return o.CommonStatus().ID }

// stays lets through all but deletions.
var stays = predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }}

// projectOf is the project of an object's namespace.
func projectOf(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: v1alpha1.ProjectName}}}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	changed := r.Enqueue(&v1alpha1.ProjectList{}, nil)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project").
		WithOptions(r.ControllerOptions()).
		For(&v1alpha1.Project{}).
		Watches(&v1alpha1.Project{}, r.Deleted()).
		Watches(&v1alpha1.Environment{}, changed, builder.WithPredicates(object.Changed(idOf), stays)).
		Watches(&v1alpha1.Environment{}, object.Afterwards(projectOf), builder.WithPredicates(predicate.Not(stays))).
		Watches(&networkingv1.NetworkPolicy{}, changed, builder.OnlyMetadata).
		Watches(&corev1.ConfigMap{}, changed, builder.OnlyMetadata).
		WatchesRawSource(source.Channel(r.TrustChanged, r.everywhere()))
	return r.WatchPlans(b, changed).Complete(r)
}
