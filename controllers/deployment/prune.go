// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=delete

// keptObjects is how many Deployments that the platform made are kept an
// environment. What became of the others stays in the store.
const keptObjects = 20

// prune deletes the Deployments beyond keptObjects that the platform made for the
// environment; those of users are theirs.
func (r *Reconciler) prune(ctx context.Context, d *v1alpha1.Deployment) error {
	list := &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingLabels{object.LabelManagedBy: object.ManagedBy},
		client.MatchingFields{object.ByEnvironment: string(d.Spec.Environment)})
	if err != nil {
		return fmt.Errorf("listing the deployments of an environment: %w", err)
	}
	for _, old := range prunable(list.Items) {
		if err := r.discard(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

// discard deletes a Deployment that the platform made, as it was read.
func (r *Reconciler) discard(ctx context.Context, d *v1alpha1.Deployment) error {
	err := r.Client.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pruning Deployment %q: %w", d.Name, err)
	}
	return nil
}

// prunable are those of the deployments of an environment that are older than the
// newest keptObjects, have ended, are not live, and are not asked to be.
func prunable(all []v1alpha1.Deployment) (out []*v1alpha1.Deployment) {
	byAge := make([]*v1alpha1.Deployment, 0, len(all))
	for i := range all {
		byAge = append(byAge, &all[i])
	}
	slices.SortFunc(byAge, newestFirst)
	for i, d := range byAge {
		if i >= keptObjects && d.Status.Phase.Terminal() && !d.Status.Live && !d.ActivationPending() && d.DeletionTimestamp == nil {
			out = append(out, d)
		}
	}
	return out
}

// newestFirst orders deployments by their creation, those of one second by name.
func newestFirst(a, b *v1alpha1.Deployment) int { return oldestFirst(b, a) }
