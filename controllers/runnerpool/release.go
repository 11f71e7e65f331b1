// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// chooseRelease decides on the platform's release of the pods of a pool: the current release, or the pool's
// earlier one while the pool waits for a rollout slot.
func (r *Reconciler) chooseRelease(ctx context.Context, e *v1alpha1.Environment, found, wanted *appsv1.Deployment) (waits bool, err error) {
	release := platformDigest(r.Pods)
	wanted.Annotations = map[string]string{base.AnnotationPlatform: release}
	before := found.Annotations[base.AnnotationPlatform]
	if !metav1.IsControlledBy(found, e) || before == release || !hasRunners(found) || r.rollouts.startRollout(client.ObjectKeyFromObject(e), r.Now()) {
		return false, nil
	}
	current := &appsv1.Deployment{} // the cache has no templates
	err = r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the release of the pool: %w", err)
	}
	if base.HasOtherManager(current, "f:spec", "f:template", "f:spec") || !copyRelease(&wanted.Spec.Template, &current.Spec.Template) {
		return false, nil // a field that belongs to no release was changed: repair it at once
	}
	if before != "" {
		wanted.Annotations[base.AnnotationPlatform] = before
	} else {
		wanted.Annotations = nil
	}
	return true, nil
}

// copyRelease replaces the platform's part of a pod template with the part of another template, which
// an earlier release has written. The environment's part stays. ok is false if no release has written
// the other template.
func copyRelease(wanted, of *corev1.PodTemplateSpec) (ok bool) {
	spec, asked := of.Spec.DeepCopy(), &wanted.Spec
	if len(spec.Containers) != 1 || spec.Containers[0].Name != component {
		return false
	}
	runner, asks := &spec.Containers[0], asked.Containers[0]
	to, from := slices.IndexFunc(runner.Args, isConcurrency), slices.IndexFunc(asks.Args, isConcurrency)
	if to < 0 || from < 0 {
		return false
	}
	runner.Args[to], runner.Resources = asks.Args[from], asks.Resources
	spec.NodeSelector, spec.Tolerations, spec.Affinity = asked.NodeSelector, asked.Tolerations, asked.Affinity
	spec.RuntimeClassName, spec.ImagePullSecrets = asked.RuntimeClassName, asked.ImagePullSecrets
	wanted.Spec = *spec
	return true
}

func isConcurrency(arg string) bool { return strings.HasPrefix(arg, "--"+concurrencyFlag+"=") }

// hasRunners reports whether a pool has or should have runners. A pool without runners restarts none.
func hasRunners(pool *appsv1.Deployment) bool {
	return ptr.Deref(pool.Spec.Replicas, 1) > 0 || pool.Status.Replicas > 0
}

// platformDigest returns a digest of the platform's part of runner pods, which is the same for all
// environments: image, flags and pod format.
func platformDigest(opts base.PodOptions) string {
	text, err := json.Marshal(podTemplate(&v1alpha1.Environment{}, poolOptions{PodOptions: opts}))
	if err != nil {
		panic("writing a pod's template: " + err.Error()) // of plain types
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
