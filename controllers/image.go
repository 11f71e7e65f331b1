// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reads the manager's own pod, for its image.
//
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=pods,verbs=get

// OwnImage returns the image of a container of this process's own pod, as the spec of the pod names it,
// by tag or by digest. The status has the image that the node resolved, in a form that depends on the
// runtime and that a registry may not have.
//
// c must not read from a cache.
func OwnImage(ctx context.Context, c client.Reader, pod types.NamespacedName, container string) (string, error) {
	var own corev1.Pod
	if err := c.Get(ctx, pod, &own); err != nil {
		return "", fmt.Errorf("reading this process's own pod %s for the image of build and runner pods (grant the permission, or set --image): %w", pod, err)
	}
	for i := range own.Spec.Containers {
		if c := &own.Spec.Containers[i]; c.Name == container && c.Image != "" {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("finding the image of build and runner pods: pod %s has no container %q; set --container-name to this process's container, or set --image", pod, container)
}
