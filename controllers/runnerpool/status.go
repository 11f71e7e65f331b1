// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// reportPool reports the state of the pool and whether the environment is in effect. done reports that
// all runners have the current configuration.
func (r *Reconciler) reportPool(ctx context.Context, e *v1alpha1.Environment, wrote appliedPool) (done bool, err error) {
	seen, err := r.reportRunners(ctx, e, wrote)
	// A pool that scales is in effect with fewer replicas than desired, unless runners with an earlier
	// configuration remain.
	enough := wrote.scales && seen.outdated == 0 && seen.ready >= wrote.minReady
	switch {
	case err != nil:
		return false, err
	case seen.problem != "" && enough && seen.ready > 0:
		e.ShowRunnersFailing(seen.problem)
		v1alpha1.MarkReady(e, "in effect, but only "+strconv.Itoa(int(seen.ready))+" of "+strconv.Itoa(int(wrote.replicas))+" runners are ready: "+seen.problem)
		return false, nil
	case seen.problem != "":
		e.MarkRunnersFailing(seen.problem)
		return false, nil
	case seen.ready < 0 && (!wrote.changed || wrote.scaled) && v1alpha1.IsReady(e):
		return false, nil // another client changed the pool or its number of replicas; the next reconcile reports the result
	case seen.ready < wrote.replicas && enough:
		e.ShowRunners(seen.ready, wrote.replicas)
	case seen.ready < wrote.replicas:
		e.MarkRunnersStarting(max(seen.ready, 0), wrote.replicas)
		return false, nil
	default:
		e.MarkRunnersReady(seen.ready)
	}
	if wrote.awaitsRollout {
		v1alpha1.MarkReady(e, "in effect; its runners get the platform's new release after the runners of other environments")
		return false, nil
	}
	e.MarkInEffect()
	return seen.ready >= wrote.replicas, nil
}

// poolState is the state of a pool.
type poolState struct {
	// replicas is the desired number of runners.
	replicas int32
	// ready is the number of ready runners with the current configuration, or -1 if it is unknown.
	// before is the number of runners with an earlier configuration.
	ready, outdated int32
	// problem is the reason why runners are missing.
	problem string
	// outdatedRelease reports that some runners have an earlier release of the platform.
	outdatedRelease bool
}

// reportRunners reports the number of runners.
func (r *Reconciler) reportRunners(ctx context.Context, e *v1alpha1.Environment, wrote appliedPool) (poolState, error) {
	found, err := r.getPool(ctx, e)
	if err != nil {
		return poolState{}, err
	}
	e.Status.Runner = v1alpha1.RunnerPoolStatus{
		Replicas: found.Status.Replicas, ReadyReplicas: found.Status.ReadyReplicas, Selector: selector(e),
	}
	seen := stateOf(found, wrote.generation)
	seen.outdatedRelease = metav1.IsControlledBy(found, e) && hasRunners(found) &&
		found.Annotations[base.AnnotationPlatform] != platformDigest(r.Pods)
	if seen.problem == "" && seen.ready < wrote.replicas {
		seen.problem, err = r.podProblem(ctx, e)
	}
	return seen, err
}

// podProblem returns why a runner pod does not run, or "".
func (r *Reconciler) podProblem(ctx context.Context, e *v1alpha1.Environment) (string, error) {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(e.Namespace), client.MatchingLabels(poolLabels(e))); err != nil {
		return "", fmt.Errorf("listing the runner pods: %w", err)
	}
	for i := range pods.Items {
		if problem := base.PodProblem(&pods.Items[i]); problem != "" {
			return problem, nil
		}
	}
	return "", nil
}

// stateOf returns the minimum number of ready pods with the current configuration, and the reason why
// pods are missing. The number is -1 before Kubernetes has observed the pool. Pods with an earlier
// configuration do not count, because they stay until the new ones are ready.
func stateOf(pool *appsv1.Deployment, generation int64) poolState {
	s, seen := pool.Status, poolState{replicas: ptr.Deref(pool.Spec.Replicas, 0), ready: -1}
	if s.ObservedGeneration < max(pool.Generation, generation) {
		return seen
	}
	for _, c := range s.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		stuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed || stuck {
			seen.problem = c.Message
		}
	}
	seen.outdated = s.Replicas - s.UpdatedReplicas
	seen.ready = max(s.AvailableReplicas-seen.outdated, 0)
	return seen
}
