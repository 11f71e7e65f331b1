// SPDX-License-Identifier: Apache-2.0

// Package certificate manages the certificates of the ports inside the cluster, in Secrets of the
// system namespace, unless the operator provides them. It creates a CA and the certificates that the CA
// signs, and replaces missing, invalid and soon expiring ones.
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

	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/certs"
)

// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=agentplatform-system,resources=secrets,resourceNames=agentplatform-ca;agentplatform-dispatch-tls;agentplatform-api-tls,verbs=get;patch

const (
	// Authority is the Secret of the CA.
	Authority = "agentplatform-ca"
	// CAKey is the key of the trusted CAs in a Secret with a certificate.
	CAKey = "ca.crt"
	// interval is the interval of the checks. The controller reads Secrets of the system namespace and
	// does not watch them.
	interval = time.Minute
)

// Reconciler manages all certificates at each request.
type Reconciler struct {
	// Client writes. Reader reads without a cache.
	Client client.Client
	Reader client.Reader
	// Namespace is the namespace of the Secrets.
	Namespace string
	// Serving has the hosts of each certificate by the name of its Secret.
	Serving map[string][]string
	// Trusted names the Secret whose CAKey the pods of projects trust. Changed receives an event when
	// it changes. Both may be empty.
	Trusted string
	Changed chan<- event.GenericEvent
	// Now returns the time.
	Now func() time.Time

	publishedCA []byte // the last value that Changed received; Reconcile is not called concurrently
}

// Reconcile creates or replaces certificates. It does not change Secrets that the operator created.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	for _, name := range slices.Sorted(maps.Keys(r.Serving)) {
		if err := r.ensureCertificate(ctx, name, r.Serving[name]); err != nil {
			return ctrl.Result{}, fmt.Errorf("keeping certificate %q: %w", name, err)
		}
	}
	return ctrl.Result{RequeueAfter: interval}, r.sendEvent(ctx)
}

// sendEvent sends an event if the trusted CAs changed.
func (r *Reconciler) sendEvent(ctx context.Context) error {
	if r.Trusted == "" {
		return nil
	}
	secret, err := r.readSecret(ctx, r.Trusted)
	if err != nil || bytes.Equal(secret.Data[CAKey], r.publishedCA) {
		return err
	}
	if err := base.Queue(ctx, r.Changed, secret); err != nil {
		return err
	}
	r.publishedCA = secret.Data[CAKey]
	return nil
}

func (r *Reconciler) ensureCertificate(ctx context.Context, name string, hosts []string) error {
	secret, err := r.readSecret(ctx, name)
	if err != nil || secret.ResourceVersion != "" && !isManaged(secret) {
		return err
	}
	authority, err := r.authority(ctx)
	if err != nil {
		return err
	}
	pair := readPair(secret)
	if why := pair.Unfit(authority, hosts, r.Now()); why != "" {
		ctrl.LoggerFrom(ctx).Info("issuing a certificate", "secret", name, "because", why)
		if pair, err = authority.Issue(hosts, r.Now()); err != nil {
			return err
		}
	}
	return r.writeSecret(ctx, secret, pair, authority.Cert)
}

// authority returns the CA, and creates or renews it if necessary.
func (r *Reconciler) authority(ctx context.Context) (certs.Pair, error) {
	secret, err := r.readSecret(ctx, Authority)
	if err != nil {
		return certs.Pair{}, err
	}
	pair := readPair(secret)
	why := pair.Worn(r.Now())
	if why == "" {
		return pair, nil
	}
	if secret.ResourceVersion != "" && !isManaged(secret) {
		return certs.Pair{}, fmt.Errorf("the certificate in Secret %q, which the platform did not create, is invalid: %s; replace or delete the Secret", Authority, why)
	}
	ctrl.LoggerFrom(ctx).Info("creating the CA of the certificates", "because", why)
	renewed, err := pair.Renew(r.Now())
	if err != nil { // there was none
		if renewed, err = certs.NewAuthority(r.Now()); err != nil {
			return certs.Pair{}, err
		}
	}
	return renewed, r.writeSecret(ctx, secret, renewed, renewed.Cert)
}

// readSecret returns a Secret, or one without a resource version if it does not exist.
func (r *Reconciler) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{base.LabelManagedBy: base.ManagedBy}},
			Type:       corev1.SecretTypeTLS,
		}, nil
	}
	return secret, err
}

// writeSecret creates a Secret, or updates it if its data differ.
func (r *Reconciler) writeSecret(ctx context.Context, secret *corev1.Secret, pair certs.Pair, authorities []byte) error {
	want := map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, CAKey: authorities}
	if maps.EqualFunc(secret.Data, want, bytes.Equal) {
		return nil
	}
	before := secret.DeepCopy()
	secret.Data = want
	if secret.ResourceVersion == "" {
		return r.Client.Create(ctx, secret, client.FieldOwner(base.FieldManager))
	}
	return r.Client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(base.FieldManager))
}

func isManaged(secret *corev1.Secret) bool {
	return secret.Labels[base.LabelManagedBy] == base.ManagedBy
}

func readPair(secret *corev1.Secret) certs.Pair {
	return certs.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// SetupWithManager registers the controller. It runs at the start and at each interval.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificate").
		WithOptions((&base.Base{}).ControllerOptions()).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: Authority}})
			return nil
		})).
		Complete(r)
}
