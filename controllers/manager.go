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

// What a manager does outside of the projects' namespaces.
//
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=namespaces,verbs=get,resourceNames=kube-system
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentplatform-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentplatform-system,resources=leases,verbs=get;update,resourceNames=agentplatform-manager
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=events,verbs=create;patch

// ManagerOptions are what a manager process is asked to be.
type ManagerOptions struct {
	// SystemNamespace holds the leader's lease.
	SystemNamespace string
	// LeaderElect elects one leader among managers.
	LeaderElect bool
	// Namespaces are those that the manager works in.
	Namespaces namespaces.Set
}

// Scheme knows all kinds that controllers and facade work with.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the kinds of Kubernetes: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering our own kinds: %w", err)
	}
	return scheme, nil
}

// NewManager makes a manager whose cache holds our own kinds, and of the others
// only what the platform made.
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
		// The process answers probes and shows metrics by itself, also while it has no manager.
		HealthProbeBindAddress: "0",
		Metrics:                server.Options{BindAddress: "0"},
		// A manager may be made anew in the same process after it ended.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}
