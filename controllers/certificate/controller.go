// SPDX-License-Identifier: Apache-2.0

// Package certificate keeps the certificates of the ports inside the cluster in
// Secrets of the system namespace, where the operator brings none: it makes an
// authority and what that signs, and makes anew what is lost, spoilt or soon over.
package certificate

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/certs"
)

// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,resourceNames=agentplatform-ca;agentplatform-dispatch-tls;agentplatform-api-tls,verbs=get;patch

const (
	// Authority is the Secret of the authority.
	Authority = "agentplatform-ca"
	// CAKey is the key, in a Secret with a certificate, of the authorities that it
	// may be of.
	CAKey = "ca.crt"
	// interval is how often is looked for what was lost, ends soon, or was brought:
	// Secrets of the system namespace are read, and never watched.
	interval = time.Minute
)

// Reconciler keeps all certificates, whatever the request names.
type Reconciler struct {
	// Client writes, and Reader reads past the cache.
	Client client.Client
	Reader client.Reader
	// Namespace is that of the Secrets.
	Namespace string
	// Serving are the Secrets, by name, and the hosts that each is for.
	Serving map[string][]string
	// Trusted names one of them, whose CAKey the pods of projects trust, and Changed
	// is told when that has changed. Both may be empty.
	Trusted string
	Changed chan<- event.GenericEvent
	// Now is the clock.
	Now func() time.Time

	told []byte // of what Changed was told last; Reconcile runs once at a time
}

// Reconcile makes what is missing or does not fit. A Secret that the platform did
// not make is the operator's and stays as it is.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	for _, name := range slices.Sorted(maps.Keys(r.Serving)) {
		if err := r.keep(ctx, name, r.Serving[name]); err != nil {
			return ctrl.Result{}, fmt.Errorf("keeping certificate %q: %w", name, err)
		}
	}
	return ctrl.Result{RequeueAfter: interval}, r.tell(ctx)
}

// tell says that other authorities are trusted than before.
func (r *Reconciler) tell(ctx context.Context) error {
	if r.Trusted == "" {
		return nil
	}
	secret, err := r.read(ctx, r.Trusted)
	if err != nil || bytes.Equal(secret.Data[CAKey], r.told) {
		return err
	}
	select {
	case r.Changed <- event.GenericEvent{Object: secret}:
		r.told = secret.Data[CAKey]
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reconciler) keep(ctx context.Context, name string, hosts []string) error {
	secret, err := r.read(ctx, name)
	if err != nil || secret.ResourceVersion != "" && !ours(secret) {
		return err
	}
	authority, err := r.authority(ctx)
	if err != nil {
		return err
	}
	pair := pairIn(secret)
	if why := pair.Unfit(authority, hosts, r.Now()); why != "" {
		ctrl.LoggerFrom(ctx).Info("issuing a certificate", "secret", name, "because", why)
		if pair, err = authority.Issue(hosts, r.Now()); err != nil {
			return err
		}
	}
	return r.write(ctx, secret, pair, authority.Cert)
}

// authority reads the authority, which is made or renewed where that is due.
func (r *Reconciler) authority(ctx context.Context) (certs.Pair, error) {
	secret, err := r.read(ctx, Authority)
	if err != nil {
		return certs.Pair{}, err
	}
	pair := pairIn(secret)
	why := pair.Worn(r.Now())
	if why == "" {
		return pair, nil
	}
	if secret.ResourceVersion != "" && !ours(secret) {
		return certs.Pair{}, fmt.Errorf("Secret %q is not the platform's, and of its certificate: %s; replace it, or delete it", Authority, why)
	}
	ctrl.LoggerFrom(ctx).Info("making the authority of certificates", "because", why)
	renewed, err := pair.Renew(r.Now())
	if err != nil { // there was none
		if renewed, err = certs.NewAuthority(r.Now()); err != nil {
			return certs.Pair{}, err
		}
	}
	return renewed, r.write(ctx, secret, renewed, renewed.Cert)
}

// read returns a Secret without a version where there is none.
func (r *Reconciler) read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{object.LabelManagedBy: object.ManagedBy}},
			Type:       corev1.SecretTypeTLS,
		}, nil
	}
	return secret, err
}

// write makes or changes a Secret where it holds something else.
func (r *Reconciler) write(ctx context.Context, secret *corev1.Secret, pair certs.Pair, authorities []byte) error {
	want := map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, CAKey: authorities}
	if maps.EqualFunc(secret.Data, want, bytes.Equal) {
		return nil
	}
	before := secret.DeepCopy()
	secret.Data = want
	if secret.ResourceVersion == "" {
		return r.Client.Create(ctx, secret, client.FieldOwner(object.FieldManager))
	}
	return r.Client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(object.FieldManager))
}

func ours(secret *corev1.Secret) bool {
	return secret.Labels[object.LabelManagedBy] == object.ManagedBy
}

func pairIn(secret *corev1.Secret) certs.Pair {
	return certs.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// SetupWithManager registers the controller: it works at the start and every
// interval.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificate").
		WithOptions((&object.Base{}).ControllerOptions()).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: Authority}})
			return nil
		})).
		Complete(r)
}
