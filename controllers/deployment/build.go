// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// advance moves an open deployment one step on.
func (r *Reconciler) advance(ctx context.Context, v *deploymentState) error {
	if v.outcome.Status.Terminal() {
		return nil
	}
	if v.Spec.Cancel {
		return r.endBuild(ctx, v, store.DeploymentCancelled, "", "cancelled on request")
	}
	if v.outcome.Built {
		return r.activateBuilt(ctx, v)
	}
	if v.isSuspended() {
		return nil
	}
	if ended, err := r.checkSource(ctx, v); ended || err != nil {
		return err
	}
	job, err := r.startBuild(ctx, v)
	if err != nil || job == nil {
		return err
	}
	return r.checkJob(ctx, v, job)
}

// isSuspended reports whether the suspended environment keeps the build from starting.
func (v *deploymentState) isSuspended() bool {
	return v.outcome.Status == store.DeploymentPending && v.environment.Spec.Suspend
}

// startBuild creates the token and the Job if they are missing. It returns nil while an earlier Job
// still exists.
func (r *Reconciler) startBuild(ctx context.Context, v *deploymentState) (*batchv1.Job, error) {
	job := jobReference(v.Deployment)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), job)
	if err == nil && metav1.IsControlledBy(job, v.Deployment) {
		if v.outcome.Status == store.DeploymentPending {
			return nil, r.deleteUnknownJob(ctx, job)
		}
		return job, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the build Job: %w", err)
	}
	if _, err := r.Child(ctx, v.Deployment, job); err != nil {
		return nil, err
	}
	in, err := r.buildSettings(ctx, v)
	if err != nil {
		return nil, err
	}
	from, err := r.buildSource(ctx, v)
	if err != nil {
		return nil, err
	}
	if from.Secret != "" {
		if _, err := r.Secret(ctx, v.Namespace, from.Secret); err != nil {
			return nil, err
		}
	}
	if err := r.Store.StartBuild(ctx, v.key, from.Path); err != nil && !errors.Is(err, store.ErrConflict) {
		return nil, base.FromStore(fmt.Errorf("starting the build: %w", err))
	}
	job = buildJob(v.Deployment, from, in, r.Pods)
	owner, err := r.OwnerReference(v.Deployment)
	if err != nil {
		return nil, err
	}
	job.OwnerReferences = []metav1.OwnerReference{owner}
	err = r.Client.Create(ctx, job, client.FieldOwner(base.FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		job = nil // the cache does not have it yet
	case err != nil:
		return nil, fmt.Errorf("launching job %q: %w", job.Name, err)
	}
	v.outcome, err = r.Store.Deployment(ctx, v.key)
	return job, base.FromStore(err)
}

// createToken creates the build's token if it is missing, in a Secret that is owned by the Job. The pod
// waits for the Secret.
func (r *Reconciler) createToken(ctx context.Context, v *deploymentState, job *batchv1.Job) error {
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: tokenName(v.Deployment)}, seen)
	if err == nil && metav1.IsControlledBy(seen, job) && base.IsLabelled(seen) {
		return nil
	}
	_, err = r.Token(ctx, job, tokenName(v.Deployment), base.Labels(component, v.Name), func(token string) error {
		err := r.Store.PutToken(ctx, store.Token{
			SHA256: secrets.Digest(token), Kind: store.TokenBuild,
			ProjectID: v.key.ProjectID, EnvironmentID: v.environmentKey.ID, DeploymentID: &v.key.ID,
		})
		return base.FromStore(err)
	})
	return err
}

// deleteUnknownJob deletes the Job of a build that the store does not have, for example after a restore
// from an older backup. Nothing would accept its report. Another Job follows after the deletion.
func (r *Reconciler) deleteUnknownJob(ctx context.Context, job *batchv1.Job) error {
	if job.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ending the build that is not in the store: %w", err)
	}
	return nil
}

// checkJob fails a deployment whose Job failed before the build could report, and checks the outcome of
// a completed Job. For a Job that does not run, it determines the reason.
func (r *Reconciler) checkJob(ctx context.Context, v *deploymentState, job *batchv1.Job) error {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		if c.Type == batchv1.JobComplete {
			return r.checkOutcome(ctx, v, job)
		}
		if c.Type != batchv1.JobFailed {
			continue
		}
		reason, message := store.FailureBuild, "the build pod failed: "+r.terminationMessage(ctx, job, c.Message)
		if c.Reason == batchv1.JobReasonDeadlineExceeded {
			reason, message = store.FailureDeadline, deadlineMessage(v, job)
		}
		return r.endBuild(ctx, v, store.DeploymentFailed, reason, message)
	}
	if err := r.createToken(ctx, v, job); err != nil {
		return err
	}
	var err error
	v.problem, err = r.buildProblem(ctx, job)
	return err
}

// deadlineMessage returns the message for a build that took too long, with the reason why it waited.
func deadlineMessage(v *deploymentState, job *batchv1.Job) string {
	message := fmt.Sprintf("the build took longer than %d s", ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0))
	if problem := v.BuildProblem(); problem != "" {
		message += "; " + problem
	}
	return message
}

// buildProblem returns why the pod of a Job does not run, or "".
func (r *Reconciler) buildProblem(ctx context.Context, job *batchv1.Job) (string, error) {
	if isJobSuspended(job) {
		return fmt.Sprintf("Job %q is suspended, by a job queue or by a user. It starts when the queue admits it, or after "+
			"`kubectl patch job %s --type=merge -p '{\"spec\":{\"suspend\":false}}'`; set spec.cancel to cancel the deployment", job.Name, job.Name), nil
	}
	pods, err := r.listPods(ctx, job)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if problem := base.PodProblem(&pods[i]); problem != "" {
			return problem, nil
		}
	}
	if since := ptr.Deref(job.Status.StartTime, job.CreationTimestamp); len(pods) == 0 && r.Now().Sub(since.Time) > podTimeout {
		return fmt.Sprintf("Kubernetes creates no pod for Job %q, for example because of a quota or a policy; see the events of the Job", job.Name), nil
	}
	return "", nil
}

// isJobSuspended reports whether a Job is suspended and therefore has no pods. Kubernetes does not count
// that time towards its deadline.
func isJobSuspended(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.Suspend, false) || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
}

// listPods returns the pods of a Job.
func (r *Reconciler) listPods(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Job %q: %w", job.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, job) }), nil
}

// checkOutcome builds again if the store does not have the outcome of a completed Job. A Job completes
// after the store has the outcome, so the store was restored from a backup from during the build.
func (r *Reconciler) checkOutcome(ctx context.Context, v *deploymentState, job *batchv1.Job) (err error) {
	if v.outcome, err = r.Store.Deployment(ctx, v.key); err != nil {
		return base.FromStore(err)
	}
	if v.outcome.Status != store.DeploymentBuilding || v.outcome.Built {
		return nil
	}
	return r.deleteUnknownJob(ctx, job)
}

// terminationMessage returns the termination messages of the Job's pods, or fallback.
func (r *Reconciler) terminationMessage(ctx context.Context, job *batchv1.Job, fallback string) string {
	pods, err := r.listPods(ctx, job)
	if err != nil {
		return fallback
	}
	words := fallback
	for _, pod := range pods {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
				words = base.TerminationMessage(status.Name, end)
			}
		}
		if problem := base.PodProblem(&pod); problem != "" {
			words = problem
		}
	}
	return words
}

// endBuild records an outcome that the build itself did not report. An outcome that the build has reported
// meanwhile stays.
func (r *Reconciler) endBuild(
	ctx context.Context, v *deploymentState, status store.DeploymentStatus, reason store.FailureReason, message string,
) error {
	err := r.Store.EndDeployment(ctx, v.key, status, reason, message)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return base.FromStore(fmt.Errorf("ending the deployment: %w", err))
	}
	v.outcome, err = r.Store.Deployment(ctx, v.key)
	return base.FromStore(err)
}

// cleanUp deletes the running Job of a failed or cancelled deployment, because its pod may wait for a
// node or hang, and counts against quotas. A Job that has ended stays until its TTL, because only its
// pod has the output of a crash.
func (r *Reconciler) cleanUp(ctx context.Context, v *deploymentState) error {
	if v.outcome.Status == store.DeploymentDeployed {
		return nil
	}
	job := jobReference(v.Deployment)
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), job); {
	case apierrors.IsNotFound(err): // a Job that is not in the cache yet triggers another reconcile
		return nil
	case err != nil:
		return fmt.Errorf("finding the build Job: %w", err)
	case !metav1.IsControlledBy(job, v.Deployment), isJobFinished(job), job.DeletionTimestamp != nil:
		return nil
	}
	err := r.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stopping job %q: %w", job.Name, err)
	}
	return nil
}

// isJobFinished reports whether a Job has no running pods.
func isJobFinished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}
