// SPDX-License-Identifier: Apache-2.0

// Package project projects Projects into the store.
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
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects,verbs=get;list;watch
// +kubebuilder:rbac:groups=agentplatform.dev,resources=projects/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Store has the store methods that the controller needs.
type Store interface {
	PutProject(ctx context.Context, p store.Project) error
	ProjectTelemetry(ctx context.Context, project uuid.UUID) (*store.Telemetry, error)
	base.Defaults
}

// Reconciler reconciles Projects.
type Reconciler struct {
	*base.Base
	Store Store
	// Keys seals the headers for collectors.
	Keys *secrets.Keys
	// Network configures the network of pods in the project's namespace. TrustChanged receives an event
	// when these pods must trust another CA of the dispatch port.
	Network      Network
	TrustChanged <-chan event.GenericEvent
	// GatewayURL is the public base of webhook URLs.
	GatewayURL string
}

// Reconcile projects one Project into the store.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	project := &v1alpha1.Project{}
	return r.Base.Reconcile(ctx, req, project, func(ctx context.Context, key store.Key) (time.Duration, error) {
		effective, err := r.reportPlan(ctx, project)
		if err != nil {
			return 0, err
		}
		row := projectRow(r.Ref(project), key.ID, project, effective)
		var untraced string
		if row.Telemetry, untraced, err = r.readTelemetry(ctx, project, key.ID); err != nil {
			return 0, err
		}
		if err := r.Store.PutProject(ctx, row); err != nil {
			return 0, base.FromStore(err)
		}
		project.Status.Retention = project.Spec.Retention.DeepCopy()
		project.Status.GitWebhookURL = ""
		if project.Spec.Git != nil {
			project.Status.GitWebhookURL = v1alpha1.GitWebhookURL(r.GatewayURL, key.ID)
		}
		after, missing, err := r.reportDefault(ctx, project, key.ID)
		if err != nil {
			return 0, err
		}
		if err := r.reportNetwork(ctx, project); err != nil {
			return 0, err
		}
		v1alpha1.MarkReady(project, cmp.Or(readyMessage(project, missing), untraced))
		return cmp.Or(after, r.PlanInterval()), nil
	})
}

// reportPlan reports the limits in effect, and errors in the Namespace's plan, with one event. It returns
// the plan in effect.
func (r *Reconciler) reportPlan(ctx context.Context, project *v1alpha1.Project) (plan.Plan, error) {
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

// readyMessage mentions the missing default environment of a ready project. A project is ready without
// it, because environments may be applied later.
func readyMessage(project *v1alpha1.Project, missing *base.MissingError) string {
	if missing == nil {
		return ""
	}
	what := "does not exist"
	if missing.Unready {
		what = "is not in effect; see its conditions"
	}
	return fmt.Sprintf("spec.defaultEnvironment: Environment %q %s; %s", missing.Name, what, fallbackDefault(project.Status.DefaultEnvironment))
}

// fallbackDefault describes the default environment in effect while the named one is missing.
func fallbackDefault(chosen string) string {
	if chosen == "" {
		return "until then, the project has no default environment"
	}
	return fmt.Sprintf("until then, Environment %q is the default", chosen)
}

// reportDefault reports the default environment in effect, or the previous one while it cannot be read.
// It returns the time until the next reconcile, because no watch reports that the store removed an
// environment. missing says why the named environment is not the default.
func (r *Reconciler) reportDefault(
	ctx context.Context, project *v1alpha1.Project, id uuid.UUID,
) (after time.Duration, missing *base.MissingError, err error) {
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
		return base.MaxRetryInterval, missing, nil
	}
	if err != nil {
		return 0, nil, fmt.Errorf("reading the default environment: %w", err)
	}
	return 0, missing, nil
}

// projectRow returns the row of a Project.
func projectRow(ref store.ObjectRef, id uuid.UUID, project *v1alpha1.Project, effective plan.Plan) store.Project {
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

// statusID returns the field of an environment that its project reads.
func statusID(o v1alpha1.ConditionedObject) any { return o.CommonStatus().ID }

// notDeleted passes all events except deletions.
var notDeleted = predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }}

// projectOf returns the project of an object's namespace.
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
		Watches(&v1alpha1.Environment{}, changed, builder.WithPredicates(base.Changed(statusID), notDeleted)).
		Watches(&v1alpha1.Environment{}, base.EnqueueAfterRemoval(projectOf), builder.WithPredicates(predicate.Not(notDeleted))).
		Watches(&networkingv1.NetworkPolicy{}, changed, builder.OnlyMetadata).
		Watches(&corev1.ConfigMap{}, changed, builder.OnlyMetadata).
		Watches(&corev1.Secret{}, r.Enqueue(&v1alpha1.ProjectList{}, readsHeaders), builder.OnlyMetadata).
		WatchesRawSource(source.Channel(r.TrustChanged, r.enqueueAll()))
	return r.WatchPlans(b, changed).Complete(r)
}
