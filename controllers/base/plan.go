// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Plan returns the plan of a project, lowered by the project's own limits. invalid describes errors in
// the Namespace's annotation. In this case the platform's plan applies.
func (b *Base) Plan(ctx context.Context, project *v1alpha1.Project) (effective plan.Plan, invalid, err error) {
	namespace, err := b.Namespace(ctx, project.Namespace)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	effective = b.PlatformPlan
	if text, ok := namespace.Annotations[plan.Annotation]; ok {
		own, err := plan.Parse([]byte(text), b.PlatformPlan)
		if err == nil {
			effective = own
		}
		invalid = err
	}
	return effective.Lowered(project.Spec.Limits), invalid, nil
}

// Namespace returns the metadata of a Namespace, without a UID if it does not exist. A manager that is
// limited to some namespaces can get them, but not list or watch them.
func (b *Base) Namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(kind)
	var reader client.Reader = b.Client
	if len(b.Namespaces) > 0 {
		reader = b.Reader
	}
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading namespace %q: %w", name, err)
	}
	namespace.SetGroupVersionKind(kind)
	return namespace, nil
}

// planInterval is the poll interval of plans that cannot be watched.
const planInterval = 30 * time.Second

// PlanInterval returns the poll interval of plans, or 0 if they are watched.
func (b *Base) PlanInterval() time.Duration {
	if len(b.Namespaces) > 0 {
		return planInterval
	}
	return 0
}

// WatchPlans calls changed for Namespaces whose plan changed, if the manager can watch Namespaces.
func (b *Base) WatchPlans(to *builder.Builder, changed handler.EventHandler) *builder.Builder {
	if len(b.Namespaces) > 0 {
		return to
	}
	return to.WatchesMetadata(&corev1.Namespace{}, changed, builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // its objects follow later
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetAnnotations()[plan.Annotation] != e.ObjectNew.GetAnnotations()[plan.Annotation]
		},
	}))
}

// SetScheduling sets the scheduling constraints of an environment's runners that apply to pods of any kind.
func SetScheduling(spec *corev1.PodSpec, runner v1alpha1.RunnerPool) {
	spec.NodeSelector, spec.Tolerations = runner.NodeSelector, runner.Tolerations
	if runner.Affinity != nil && runner.Affinity.NodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: runner.Affinity.NodeAffinity}
	}
	if runner.RuntimeClassName != "" {
		class := string(runner.RuntimeClassName)
		spec.RuntimeClassName = &class
	}
	for _, s := range runner.ImagePullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: string(s.Name)})
	}
}
