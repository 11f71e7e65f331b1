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

	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// advance brings a deployment that has not ended a step on.
func (r *Reconciler) advance(ctx context.Context, v *version) error {
	if v.outcome.Status.Terminal() {
		return nil
	}
	if v.Spec.Cancel {
		return r.end(ctx, v, store.DeploymentCancelled, "", "cancelled by a request")
	}
	if v.outcome.Built {
		return r.goLive(ctx, v)
	}
	if v.held() {
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

// held says that the environment's suspend keeps the build from starting.
func (v *version) held() bool {
	return v.outcome.Status == store.DeploymentPending && v.environment.Spec.Suspend
}

// startBuild makes token and Job where they are missing. It returns nil while a
// Job of before is in the way.
func (r *Reconciler) startBuild(ctx context.Context, v *version) (*batchv1.Job, error) {
	job := namedJob(v.Deployment)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), job)
	if err == nil && metav1.IsControlledBy(job, v.Deployment) {
		if v.outcome.Status == store.DeploymentPending {
			return nil, r.endForgotten(ctx, job)
		}
		return job, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the build Job: %w", err)
	}
	if _, err := r.Child(ctx, v.Deployment, job); err != nil {
		return nil, err
	}
	in, err := r.room(ctx, v)
	if err != nil {
		return nil, err
	}
	from, err := r.source(ctx, v)
	if err != nil {
		return nil, err
	}
	if from.Secret != "" {
		if _, err := r.Secret(ctx, v.Namespace, from.Secret); err != nil {
			return nil, err
		}
	}
	if err := r.Store.StartBuild(ctx, v.key, from.Path); err != nil && !errors.Is(err, store.ErrConflict) {
		return nil, object.FromStore(fmt.Errorf("starting the build: %w", err))
	}
	job = buildJob(v.Deployment, from, in, r.Pods)
	owner, err := r.OwnerReference(v.Deployment)
	if err != nil {
		return nil, err
	}
	job.OwnerReferences = []metav1.OwnerReference{owner}
	err = r.Client.Create(ctx, job, client.FieldOwner(object.FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		job = nil // the cache does not have it yet
	case err != nil:
		return nil, fmt.Errorf("launching job %q: %w", job.Name, err)
	}
	v.outcome, err = r.Store.Deployment(ctx, v.key)
	return job, object.FromStore(err)
}

// giveToken makes the build's token, where it is missing, in a Secret that goes
// with the Job. The pod waits for it.
func (r *Reconciler) giveToken(ctx context.Context, v *version, job *batchv1.Job) error {
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: tokenName(v.Deployment)}, seen)
	if err == nil && metav1.IsControlledBy(seen, job) && object.IsLabelled(seen) {
		return nil
	}
	_, err = r.Token(ctx, job, tokenName(v.Deployment), object.Labels(component, v.Name), func(token string) error {
		err := r.Store.PutToken(ctx, store.Token{
			SHA256: seal.Digest(token), Kind: store.TokenBuild,
			ProjectID: v.key.ProjectID, EnvironmentID: v.environmentKey.ID, DeploymentID: &v.key.ID,
		})
		return object.FromStore(err)
	})
	return err
}

// endForgotten deletes the Job of a build that the store has not begun, or whose
// outcome it does not have, as after it was restored from an older backup: it
// reports to nobody, and another takes its place once it is gone.
func (r *Reconciler) endForgotten(ctx context.Context, job *batchv1.Job) error {
	if job.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ending the build that the store forgot: %w", err)
	}
	return nil
}

// checkJob ends a deployment whose Job failed before the build could report, and
// looks after one whose Job completed. Of one that does not run it finds out why.
func (r *Reconciler) checkJob(ctx context.Context, v *version, job *batchv1.Job) error {
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
		reason, message := store.FailureBuild, "the build pod failed: "+r.lastWords(ctx, job, c.Message)
		if c.Reason == batchv1.JobReasonDeadlineExceeded {
			reason, message = store.FailureDeadline, deadlineMessage(v, job)
		}
		return r.end(ctx, v, store.DeploymentFailed, reason, message)
	}
	if err := r.giveToken(ctx, v, job); err != nil {
		return err
	}
	var err error
	v.problem, err = r.buildProblem(ctx, job)
	return err
}

// deadlineMessage says what a build waited for that took too long.
func deadlineMessage(v *version, job *batchv1.Job) string {
	message := fmt.Sprintf("the build took longer than %d s", ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0))
	if problem := v.BuildProblem(); problem != "" {
		message += "; " + problem
	}
	return message
}

// buildProblem says what keeps a Job's pod from running; "" for nothing.
func (r *Reconciler) buildProblem(ctx context.Context, job *batchv1.Job) (string, error) {
	if suspended(job) {
		return fmt.Sprintf("Job %q is suspended, by a queue that admits Jobs or by somebody: it goes on when that one admits it, or by "+
			"`kubectl patch job %s --type=merge -p '{\"spec\":{\"suspend\":false}}'`; spec.cancel gives it up", job.Name, job.Name), nil
	}
	pods, err := r.pods(ctx, job)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if problem := object.PodProblem(&pods[i]); problem != "" {
			return problem, nil
		}
	}
	if since := ptr.Deref(job.Status.StartTime, job.CreationTimestamp); len(pods) == 0 && r.Now().Sub(since.Time) > podPatience {
		return fmt.Sprintf("Kubernetes makes no pod for Job %q, as where a quota or a policy refuses it: see the Job's events", job.Name), nil
	}
	return "", nil
}

// suspended says whether a Job has no pods because somebody wants that. Kubernetes does not count
// that time towards its deadline.
func suspended(job *batchv1.Job) bool {
	return ptr.Deref(job.Spec.Suspend, false) || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
}

// pods are those that a Job made.
func (r *Reconciler) pods(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.Client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Job %q: %w", job.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, job) }), nil
}

// checkOutcome builds again what the store has forgotten, as after it was restored
// from a backup that was made during the build: a Job completes once the store
// has the outcome.
func (r *Reconciler) checkOutcome(ctx context.Context, v *version, job *batchv1.Job) (err error) {
	if v.outcome, err = r.Store.Deployment(ctx, v.key); err != nil {
		return object.FromStore(err)
	}
	if v.outcome.Status != store.DeploymentBuilding || v.outcome.Built {
		return nil
	}
	return r.endForgotten(ctx, job)
}

// lastWords are what the Job's pods said when they ended, else fallback.
func (r *Reconciler) lastWords(ctx context.Context, job *batchv1.Job, fallback string) string {
	pods, err := r.pods(ctx, job)
	if err != nil {
		return fallback
	}
	words := fallback
	for _, pod := range pods {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
				words = object.Ended(status.Name, end)
			}
		}
		if problem := object.PodProblem(&pod); problem != "" {
			words = problem
		}
	}
	return words
}

// end records an outcome that the build itself did not report; one that it
// reported meanwhile stands.
func (r *Reconciler) end(
	ctx context.Context, v *version, status store.DeploymentStatus, reason store.FailureReason, message string,
) error {
	err := r.Store.EndDeployment(ctx, v.key, status, reason, message)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return object.FromStore(fmt.Errorf("ending the deployment: %w", err))
	}
	v.outcome, err = r.Store.Deployment(ctx, v.key)
	return object.FromStore(err)
}

// cleanUp stops the Job of a deployment that failed or was cancelled: its pod may wait for a node, or hang after the
// report, and counts in quotas. A Job that has ended stays for its time: what a pod that crashed wrote is only there.
func (r *Reconciler) cleanUp(ctx context.Context, v *version) error {
	if v.outcome.Status == store.DeploymentDeployed {
		return nil
	}
	job := namedJob(v.Deployment)
	switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), job); {
	case apierrors.IsNotFound(err): // one that the cache does not have yet wakes the deployment
		return nil
	case err != nil:
		return fmt.Errorf("looking for the build Job: %w", err)
	case !metav1.IsControlledBy(job, v.Deployment), hasEnded(job), job.DeletionTimestamp != nil:
		return nil
	}
	err := r.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stopping job %q: %w", job.Name, err)
	}
	return nil
}

// hasEnded says whether a Job has no pods any more that run.
func hasEnded(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}
