// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
)

// providerConfig returns the current configuration for requests to the provider. The values of the Secret are
// read later, when a request is sent.
func (r *Reporter) providerConfig(ctx context.Context, project *v1alpha1.Project) (providerConfig, error) {
	with := providerConfig{generation: project.Generation}
	if project.Spec.Git == nil || project.Spec.Git.SecretRef == nil {
		return with, nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: project.Namespace, Name: string(project.Spec.Git.SecretRef.Name)}, secret)
	if client.IgnoreNotFound(err) != nil {
		return with, fmt.Errorf("reading the Git Secret: %w", err)
	}
	with.secretVersion = secret.ResourceVersion // the version of this Secret, not of another one with its name
	return with, nil
}

// unreportedWith returns the deployments whose provider has not accepted the last status, if the Secret has
// the token of their project.
func (r *Reporter) unreportedWith(ctx context.Context, secret client.Object) (out []ctrl.Request) {
	project, list := &v1alpha1.Project{}, &v1alpha1.DeploymentList{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: secret.GetNamespace(), Name: v1alpha1.ProjectName}, project)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if git := project.Spec.Git; err == nil && (git == nil || git.SecretRef == nil || string(git.SecretRef.Name) != secret.GetName()) {
		return nil
	}
	if err == nil {
		err = r.Client.List(ctx, list, client.InNamespace(secret.GetNamespace()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the deployments that use a Git Secret")
	}
	for i := range list.Items {
		if d := &list.Items[i]; isUnreported(secret, d) {
			out = append(out, object.Request(d))
		}
	}
	return out
}

// isUnreported picks the deployments whose provider has not accepted the last status or has not received it
// yet, for example during a pause.
func isUnreported(_ client.Object, deployment v1alpha1.ConditionedObject) bool {
	d, ok := deployment.(*v1alpha1.Deployment)
	if !ok {
		return false
	}
	told := d.Status.CommitStatus
	if told == nil {
		state, _ := wantedState(d)
		return state != ""
	}
	return told.Reason != v1alpha1.CommitStatusReported
}

// reported returns the fields of a deployment that determine its commit status.
func reported(o v1alpha1.ConditionedObject) any {
	d, ok := o.(*v1alpha1.Deployment)
	if !ok {
		return nil
	}
	return [2]string{string(d.Status.Phase), d.Status.Commit}
}
