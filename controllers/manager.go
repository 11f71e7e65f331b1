// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/cached"
	"github.com/agentplatform/agentplatform/internal/namespaces"
)

// Permissions of the manager outside of the projects' namespaces.
//
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=namespaces,verbs=get,resourceNames=kube-system
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentplatform-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentplatform-system,resources=leases,verbs=get;update,resourceNames=agentplatform-manager
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=events,verbs=create;patch

// ManagerOptions configures the manager process.
type ManagerOptions struct {
	// SystemNamespace holds the lease for leader election.
	SystemNamespace string
	// LeaderElect enables leader election.
	LeaderElect bool
	// Namespaces limits the manager to some namespaces.
	Namespaces namespaces.Set
}

// Scheme returns a scheme with all types that the controllers and the facade use.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the Kubernetes types: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the platform's types: %w", err)
	}
	return scheme, nil
}

// NewManager returns a manager whose cache holds the platform's custom resources, and only those other
// objects that the platform created.
func NewManager(cluster *rest.Config, opts ManagerOptions) (ctrl.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	caches := cached.Options()
	opts.Namespaces.Limit(&caches)
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:         scheme,
		Cache:          caches,
		LeaderElection: opts.LeaderElect, LeaderElectionID: "agentplatform-manager",
		LeaderElectionNamespace: opts.SystemNamespace, LeaderElectionReleaseOnCancel: true,
		// The process serves probes and metrics itself, also without a manager.
		HealthProbeBindAddress: "0",
		Metrics:                server.Options{BindAddress: "0"},
		// The process may create a second manager after the first one has ended.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	return mgr, nil
}

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
