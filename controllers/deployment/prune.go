// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// +kubebuilder:rbac:groups=agentplatform.dev,resources=deployments,verbs=delete

// maxKeptDeployments is the number of Deployments of the platform that are kept per environment. The outcomes
// of the others stay in the store.
const maxKeptDeployments = 20

// pruneDeployments deletes the Deployments beyond maxKeptDeployments that the platform created for the environment. It
// does not delete Deployments of users.
func (r *Reconciler) pruneDeployments(ctx context.Context, d *v1alpha1.Deployment) error {
	list := &v1alpha1.DeploymentList{}
	err := r.Client.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingLabels{base.LabelManagedBy: base.ManagedBy},
		client.MatchingFields{base.ByEnvironment: string(d.Spec.Environment)})
	if err != nil {
		return fmt.Errorf("listing the deployments of an environment: %w", err)
	}
	for _, old := range prunable(list.Items) {
		if err := r.deleteDeployment(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

// deleteDeployment deletes a Deployment of the platform, with its UID and version as preconditions.
func (r *Reconciler) deleteDeployment(ctx context.Context, d *v1alpha1.Deployment) error {
	err := r.Client.Delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("pruning Deployment %q: %w", d.Name, err)
	}
	return nil
}

// prunable returns the deployments of an environment that are older than the newest maxKeptDeployments, have
// ended, are not live and have no activation request.
func prunable(all []v1alpha1.Deployment) (out []*v1alpha1.Deployment) {
	byAge := make([]*v1alpha1.Deployment, 0, len(all))
	for i := range all {
		byAge = append(byAge, &all[i])
	}
	slices.SortFunc(byAge, newestFirst)
	for i, d := range byAge {
		if i >= maxKeptDeployments && d.Status.Phase.Terminal() && !d.Status.Live && !d.ActivationPending() && d.DeletionTimestamp == nil {
			out = append(out, d)
		}
	}
	return out
}

// newestFirst orders deployments by creation time, newest first, then by name.
func newestFirst(a, b *v1alpha1.Deployment) int { return base.OldestFirst(b, a) }
