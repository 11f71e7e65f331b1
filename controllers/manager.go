// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get,resourceNames=kube-system
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=agentplatform-system,resources=leases,verbs=get;create;update;patch
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,verbs=get;create

// KeysSecret is the name of the Secret in the system namespace that holds the
// platform's keys, and the keys within it.
const (
	KeysSecret       = "agentplatform-keys" //nolint:gosec // a name
	DerivationKeyKey = "derivation-key"
	SealingKeysetKey = "sealing-keyset.json"
	// ClusterKey names the cluster in the store: the uid of the kube-system
	// namespace where the keys were made. It travels with the keys, so that who
	// restores them in another cluster takes over what the first one projected.
	ClusterKey = "cluster"
)

// ManagerOptions are what a manager process is asked to be.
type ManagerOptions struct {
	// SystemNamespace holds the leader's lease.
	SystemNamespace string
	// LeaderElect elects one leader among managers.
	LeaderElect bool
	// HealthAddr and MetricsAddr are addresses to listen on; "0" listens on none.
	HealthAddr, MetricsAddr string
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
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:         scheme,
		Cache:          CacheOptions(),
		LeaderElection: opts.LeaderElect, LeaderElectionID: "agentplatform-manager",
		LeaderElectionNamespace: opts.SystemNamespace, LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress: opts.HealthAddr,
		Metrics:                server.Options{BindAddress: opts.MetricsAddr},
		// A manager may be made anew in the same process after it ended.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	return mgr, nil
}

// CacheOptions let a manager cache our own kinds, and of the others only what
// the platform made: Secrets that users own are read when they are needed.
func CacheOptions() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{object.LabelManagedBy: object.ManagedBy})}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: ours, &corev1.Pod{}: ours, &batchv1.Job{}: ours, &appsv1.Deployment{}: ours,
	}}
}

// Keys are what the Secret of the platform's keys holds.
type Keys struct {
	Derivation seal.DerivationKey
	Sealer     *seal.Sealer
	// ClusterUID names this cluster in the store.
	ClusterUID string
}

// EnsureKeys returns the platform's keys, which it makes when the Secret is
// absent. c must not read from a cache.
func EnsureKeys(ctx context.Context, c client.Client, namespace string) (Keys, error) {
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: namespace, Name: KeysSecret}
	err := c.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if err = createKeys(ctx, c, namespace); err == nil || apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return Keys{}, fmt.Errorf("reading the keys: %w", err)
	}
	keys := Keys{ClusterUID: string(secret.Data[ClusterKey])}
	if keys.Derivation, err = seal.NewDerivationKey(secret.Data[DerivationKeyKey]); err != nil {
		return Keys{}, fmt.Errorf("reading %s of Secret %s: %w", DerivationKeyKey, name, err)
	}
	if keys.Sealer, err = seal.NewSealer(secret.Data[SealingKeysetKey]); err != nil {
		return Keys{}, fmt.Errorf("reading %s of Secret %s: %w", SealingKeysetKey, name, err)
	}
	if keys.ClusterUID == "" {
		return Keys{}, fmt.Errorf("reading %s of Secret %s: it is empty; put the uid of the kube-system namespace there", ClusterKey, name)
	}
	return keys, nil
}

func createKeys(ctx context.Context, c client.Client, namespace string) error {
	keyset, err := seal.GenerateKeyset()
	if err != nil {
		return fmt.Errorf("making a keyset: %w", err)
	}
	system := &metav1.PartialObjectMetadata{}
	system.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("reading the cluster's uid: %w", err)
	}
	return c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: KeysSecret, Labels: map[string]string{object.LabelManagedBy: object.ManagedBy},
		},
		Data: map[string][]byte{
			DerivationKeyKey: seal.GenerateDerivationKey(), SealingKeysetKey: keyset, ClusterKey: []byte(system.UID),
		},
	}, client.FieldOwner(object.FieldManager))
}
