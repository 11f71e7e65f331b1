// SPDX-License-Identifier: Apache-2.0

package environment

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
	"github.com/agentplatform/agentplatform/controllers/object"
)

// release decides of which release of the platform the pods of a pool are: of this one, or,
// while the pool waits for its turn, of the one that it has.
func (r *Reconciler) release(ctx context.Context, e *v1alpha1.Environment, found, wanted *appsv1.Deployment) (waits bool, err error) {
	release := platformDigest(r.Pods)
	wanted.Annotations = map[string]string{object.AnnotationPlatform: release}
	before := found.Annotations[object.AnnotationPlatform]
	if !metav1.IsControlledBy(found, e) || before == release || !hasRunners(found) || r.turns.take(client.ObjectKeyFromObject(e), r.Now()) {
		return false, nil
	}
	current := &appsv1.Deployment{} // the cache has no templates
	err = r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading of which release the pool is: %w", err)
	}
	if object.IsOthers(current, "f:spec", "f:template", "f:spec") || !keepRelease(&wanted.Spec.Template, &current.Spec.Template) {
		return false, nil // somebody has changed what is of no release: it is healed at once
	}
	if before != "" {
		wanted.Annotations[object.AnnotationPlatform] = before
	} else {
		wanted.Annotations = nil
	}
	return true, nil
}

// keepRelease lets a template have what the platform says of pods from another one, which a
// release before has written; what the environment says stays. ok is false where the other
// one is no release's.
func keepRelease(wanted, of *corev1.PodTemplateSpec) (ok bool) {
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

// hasRunners says whether a pool has runners, or is to have some: one that has none restarts
// none.
func hasRunners(pool *appsv1.Deployment) bool {
	return ptr.Deref(pool.Spec.Replicas, 1) > 0 || pool.Status.Replicas > 0
}

// platformDigest names what the platform itself says of runner pods, whatever the
// environment: its image, its flags and the shape of the pod.
func platformDigest(opts object.PodOptions) string {
	text, err := json.Marshal(podTemplate(&v1alpha1.Environment{}, poolOptions{PodOptions: opts}))
	if err != nil {
		panic("writing a pod's template: " + err.Error()) // of plain types
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
