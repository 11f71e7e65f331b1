// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/controllers/certificate"
)

const (
	system = "agentplatform-system"
	host   = "dispatch.system.svc"
	day    = 24 * time.Hour
)

// bench is a reconciler with the test's clock.
type bench struct {
	*testing.T
	client     client.WithWatch
	now        time.Time
	reconciler *certificate.Reconciler
	changed    chan event.GenericEvent
}

func setup(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{T: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), changed: make(chan event.GenericEvent, 1)}
	b.client = fake.NewClientBuilder().WithObjects(objects...).Build()
	b.reconciler = &certificate.Reconciler{
		Client: b.client, Reader: b.client, Namespace: system, Trusted: "dispatch-tls", Changed: b.changed,
		Serving: map[string][]string{"dispatch-tls": {host}, "api-tls": {"api"}}, Now: func() time.Time { return b.now },
	}
	return b
}

// reconcile returns the Secrets of the system namespace by name.
func (b *bench) reconcile() map[string]corev1.Secret {
	b.Helper()
	result, err := b.reconciler.Reconcile(b.Context(), ctrl.Request{})
	require.NoError(b, err)
	require.Positive(b, result.RequeueAfter)
	list := &corev1.SecretList{}
	require.NoError(b, b.client.List(b.Context(), list, client.InNamespace(system)))
	out := map[string]corev1.Secret{}
	for _, s := range list.Items {
		out[s.Name] = s
	}
	return out
}

// reportedChange reports whether the reconciler sent an event about a new CA.
func (b *bench) reportedChange() bool {
	select {
	case <-b.changed:
		return true
	default:
		return false
	}
}

// verify checks a Secret like a client that trusts ca.
func (b *bench) verify(s corev1.Secret, ca []byte) {
	b.Helper()
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	require.NoError(b, err)
	roots := x509.NewCertPool()
	require.True(b, roots.AppendCertsFromPEM(ca))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: b.now})
	require.NoError(b, err)
}

func TestReconcile_CreatesCertificates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.reconcile()
	require.Len(t, first, 3)
	b.verify(first["dispatch-tls"], first["dispatch-tls"].Data["ca.crt"])
	require.Equal(t, corev1.SecretTypeTLS, first["api-tls"].Type)
	require.NotEqual(t, first["api-tls"].Data["tls.key"], first["dispatch-tls"].Data["tls.key"], "each program has a key of its own")
	require.NotContains(t, first["dispatch-tls"].Data, first[certificate.Authority].Data["tls.key"])
	require.True(t, b.reportedChange())

	require.Equal(t, first, b.reconcile(), "what fits stays")
	require.False(t, b.reportedChange())
}

func TestReconcile_RenewsCertificates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.reconcile()
	b.now = b.now.Add(61 * day)
	second := b.reconcile()
	require.NotEqual(t, first["dispatch-tls"].Data["tls.crt"], second["dispatch-tls"].Data["tls.crt"])
	require.Equal(t, first[certificate.Authority], second[certificate.Authority])
	b.verify(second["dispatch-tls"], first["dispatch-tls"].Data["ca.crt"])

	b.reportedChange()
	b.now = b.now.Add(7 * 365 * day)
	third := b.reconcile()
	require.NotEqual(t, second[certificate.Authority].Data["tls.crt"], third[certificate.Authority].Data["tls.crt"])
	b.verify(third["dispatch-tls"], second["dispatch-tls"].Data["ca.crt"]) // a client that still trusts only the previous CA
	b.verify(third["dispatch-tls"], third["dispatch-tls"].Data["ca.crt"])
	require.True(t, b.reportedChange())
}

func TestReconcile_ReplacesInvalidCertificates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.reconcile()
	lost, spoilt := first["api-tls"], first["dispatch-tls"]
	require.NoError(t, b.client.Delete(t.Context(), &lost))
	spoilt.Data = map[string][]byte{"tls.crt": []byte("x"), "tls.key": spoilt.Data["tls.key"]}
	require.NoError(t, b.client.Update(t.Context(), &spoilt))
	second := b.reconcile()
	require.Len(t, second, 3)
	b.verify(second["dispatch-tls"], first["dispatch-tls"].Data["ca.crt"])

	require.True(t, b.reportedChange())
	authority := second[certificate.Authority]
	require.NoError(t, b.client.Delete(t.Context(), &authority))
	third := b.reconcile()
	require.NotEqual(t, authority.Data["tls.key"], third[certificate.Authority].Data["tls.key"])
	b.verify(third["dispatch-tls"], third["dispatch-tls"].Data["ca.crt"])
}

// The reconciler keeps certificates of the operator, and reports their changes.
func TestReconcile_KeepsCertificatesOfOperator(t *testing.T) {
	t.Parallel()
	supplied := &corev1.Secret{Data: map[string][]byte{"tls.crt": []byte("theirs"), "ca.crt": []byte("one")}}
	supplied.Namespace, supplied.Name = system, "dispatch-tls"
	b := setup(t, supplied)
	first := b.reconcile()
	require.Equal(t, supplied.Data, first["dispatch-tls"].Data)
	require.True(t, b.reportedChange())
	b.reconcile()
	require.False(t, b.reportedChange())

	require.NoError(t, b.client.Get(t.Context(), types.NamespacedName{Namespace: system, Name: "dispatch-tls"}, supplied))
	supplied.Data = maps.Clone(supplied.Data)
	supplied.Data["ca.crt"] = []byte("two")
	require.NoError(t, b.client.Update(t.Context(), supplied))
	b.reconcile()
	require.True(t, b.reportedChange())
}
