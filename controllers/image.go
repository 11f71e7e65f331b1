// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Its own pod, for the image that it runs.
//
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=pods,verbs=get

// OwnImage is the image that a container of the process's own pod was asked to run,
// as it stands in the pod's spec: what somebody set, by tag or by digest, wherever
// they set it. The status would name what the node resolved it to, in a form that
// each runtime has of its own and that no registry need have.
//
// c must not read from a cache.
func OwnImage(ctx context.Context, c client.Reader, pod types.NamespacedName, container string) (string, error) {
	var own corev1.Pod
	if err := c.Get(ctx, pod, &own); err != nil {
		return "", fmt.Errorf("reading this process's own pod %s for the image of build and runner pods (give it the right to, or set --image): %w", pod, err)
	}
	for i := range own.Spec.Containers {
		if c := &own.Spec.Containers[i]; c.Name == container && c.Image != "" {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("finding the image of build and runner pods: pod %s has no container %q; name this process's container by --container-name, or set --image", pod, container)
}
