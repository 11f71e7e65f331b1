// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
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
