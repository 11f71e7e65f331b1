// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// advance brings a deployment that has not ended a step on.
func (r *Reconciler) advance(ctx context.Context, v *version) error {
	if v.outcome.Built {
		return r.goLive(ctx, v)
	}
	if v.outcome.Status == store.DeploymentPending && v.environment.Spec.Suspend {
		return nil
	}
	if v.project.Spec.Git == nil {
		v.MarkGitMissing()
		return r.end(ctx, v, store.DeploymentFailed, store.FailureBuild, v.Status.Condition("Stalled").Message)
	}
	job, err := r.startBuild(ctx, v)
	if err != nil {
		return err
	}
	return r.checkJob(ctx, v, job)
}

// startBuild makes token and Job where they are missing.
func (r *Reconciler) startBuild(ctx context.Context, v *version) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: jobName(v.Deployment)}, job)
	if err == nil {
		return job, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the build Job: %w", err)
	}
	if ref := v.project.Spec.Git.SecretRef; ref != nil {
		if _, err := r.Secret(ctx, v.Namespace, string(ref.Name)); err != nil {
			return nil, err
		}
	}
	token, err := r.Token(ctx, v.Deployment, tokenName(v.Deployment), object.Labels(component, v.Name))
	if err != nil {
		return nil, err
	}
	if err := r.Data.PutToken(ctx, store.Token{
		SHA256: seal.Digest(token), Kind: store.TokenBuild,
		ProjectID: v.projectID, EnvironmentID: v.environmentID, DeploymentID: &v.id,
	}); err != nil {
		return nil, object.FromStore(fmt.Errorf("recording the build's token: %w", err))
	}
	if err := r.Data.StartBuild(ctx, v.id); err != nil && !errors.Is(err, store.ErrConflict) {
		return nil, object.FromStore(fmt.Errorf("starting the build: %w", err))
	}
	job = buildJob(v.Deployment, v.source(), r.options())
	if err := r.Client.Create(ctx, job, client.FieldOwner(object.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("launching job %q: %w", job.Name, err)
	}
	v.outcome, err = r.Data.Deployment(ctx, v.id)
	return job, object.FromStore(err)
}

// checkJob ends a deployment whose Job failed before the build could report.
func (r *Reconciler) checkJob(ctx context.Context, v *version, job *batchv1.Job) error {
	for _, c := range job.Status.Conditions {
		if c.Type != batchv1.JobFailed || c.Status != corev1.ConditionTrue {
			continue
		}
		reason, message := store.FailureBuild, "the build pod failed: "+r.lastWords(ctx, job, c.Message)
		if c.Reason == batchv1.JobReasonDeadlineExceeded {
			reason, message = store.FailureDeadline, fmt.Sprintf("the build took longer than %d s", deadlineSeconds)
		}
		return r.end(ctx, v, store.DeploymentFailed, reason, message)
	}
	return nil
}

// lastWords are what the Job's pods said when they ended, else fallback.
func (r *Reconciler) lastWords(ctx context.Context, job *batchv1.Job, fallback string) string {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return fallback
	}
	var words []string
	for _, pod := range pods.Items {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
				words = append(words, strings.TrimSpace(fmt.Sprintf("%s: %s %s", status.Name, end.Reason, end.Message)))
			}
		}
	}
	if len(words) == 0 {
		return fallback
	}
	return words[len(words)-1]
}

// end records an outcome that the build itself did not report; one that it
// reported meanwhile stands.
func (r *Reconciler) end(
	ctx context.Context, v *version, status store.DeploymentStatus, reason store.FailureReason, message string,
) error {
	err := r.Data.EndDeployment(ctx, v.id, status, reason, message)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return object.FromStore(fmt.Errorf("ending the deployment: %w", err))
	}
	v.outcome, err = r.Data.Deployment(ctx, v.id)
	return object.FromStore(err)
}

// cleanUp stops the Job of a deployment that was cancelled or superseded.
func (r *Reconciler) cleanUp(ctx context.Context, v *version) error {
	if v.outcome.Status != store.DeploymentCancelled {
		return nil
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: jobName(v.Deployment)}}
	err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stopping job %q: %w", job.Name, err)
	}
	return nil
}
