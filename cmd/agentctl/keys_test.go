// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// keysScene is a cluster with the Secret of the platform keys.
type keysScene struct {
	t                     *testing.T
	control               *kube.ControlPlane
	namespace, kubeconfig string
}

func newKeysScene(t *testing.T) keysScene {
	t.Helper()
	control := kube.Start(t)
	s := keysScene{t: t, control: control, namespace: control.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	require.NoError(t, os.WriteFile(s.kubeconfig, control.Kubeconfig(), 0o600))
	return s
}

// createKeys creates the Secret as a manager does.
func (s keysScene) createKeys() secrets.Ring {
	s.t.Helper()
	ring, err := secrets.NewRing()
	require.NoError(s.t, err)
	data, err := ring.Data()
	require.NoError(s.t, err)
	data[platformIDEntry] = []byte(uuid.NewString())
	require.NoError(s.t, s.control.Client.Create(s.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: secrets.SecretName}, Data: data,
	}))
	return ring
}

func (s keysScene) runKeys(args ...string) (string, error) {
	out, _, err := run(s.t, append([]string{"keys", "-n", s.namespace, "--kubeconfig", s.kubeconfig}, args...)...)
	return out, err
}

func (s keysScene) readSecret() (*corev1.Secret, secrets.Ring) {
	s.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.namespace, Name: secrets.SecretName}
	require.NoError(s.t, s.control.Client.Get(s.t.Context(), key, secret))
	ring, err := secrets.ParseRing(secret.Data)
	require.NoError(s.t, err)
	return secret, ring
}

func TestKeys_AreRotated(t *testing.T) {
	t.Parallel()
	s := newKeysScene(t)
	_, err := s.runKeys("rotate")
	require.ErrorContains(t, err, "not found", "only the manager makes the first keys")
	s.createKeys()
	before, _ := s.readSecret()

	out, err := s.runKeys("rotate", "--derivation")
	require.NoError(t, err)
	secret, ring := s.readSecret()
	require.Len(t, ring.IDs(secrets.Derivation), 2)
	require.Len(t, ring.IDs(secrets.Sealing), 1)
	require.Contains(t, out, ring.IDs(secrets.Derivation)[1])
	require.Equal(t, before.Data[platformIDEntry], secret.Data[platformIDEntry])
	out, err = s.runKeys("status")
	require.NoError(t, err)
	require.Contains(t, out, "has not seen")
	_, err = s.runKeys("rotate")
	require.NoError(t, err)
	_, ring = s.readSecret()
	require.Len(t, ring.IDs(secrets.Derivation), 3)
	require.Len(t, ring.IDs(secrets.Sealing), 2)
}

func TestKeys_AreRevoked(t *testing.T) {
	t.Parallel()
	s := newKeysScene(t)
	first := s.createKeys()
	old, sealing := first.IDs(secrets.Derivation)[0], first.IDs(secrets.Sealing)[0]
	_, err := s.runKeys("rotate", "--derivation")
	require.NoError(t, err)
	_, err = s.runKeys("revoke", old, "--within", "168h")
	require.NoError(t, err)
	_, ring := s.readSecret()
	require.Equal(t, map[string]time.Duration{old: 168 * time.Hour}, ring.Revoked())
	require.Len(t, ring.IDs(secrets.Derivation), 2, "there is another one")
	out, err := s.runKeys("revoke", sealing)
	require.NoError(t, err)
	secret, ring := s.readSecret()
	require.Len(t, ring.IDs(secrets.Sealing), 2, "another one takes its place")
	require.Contains(t, out, ring.IDs(secrets.Sealing)[1])

	end := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status, err := json.Marshal([]secrets.KeyStatus{
		{ID: old, State: secrets.KeyRevoked, Needed: 7, EndsAt: &end},
		{ID: ring.IDs(secrets.Derivation)[1], State: secrets.KeyNew, Lacking: []string{"facade/a"}},
	})
	require.NoError(t, err)
	secret.Annotations = map[string]string{secrets.KeyStatusAnnotation: string(status)}
	require.NoError(t, s.control.Client.Update(t.Context(), secret))
	out, err = s.runKeys("status")
	require.NoError(t, err)
	require.Contains(t, out, "7 connectors still need it; its secrets end at 2026-01-02T03:04:05Z")
	require.Contains(t, out, "waits until these processes have it: facade/a")

	for _, wrong := range [][]string{
		{"revoke", "derivation-00000000"}, {"revoke", "orders"}, {"revoke", old, "--within", "-1s"}, {"revoke", old, "--within", "8761h"},
	} {
		_, err = s.runKeys(wrong...)
		require.Error(t, err, "%v", wrong)
	}
}

func TestKeys_AreReplacedIfLost(t *testing.T) {
	t.Parallel()
	s := newKeysScene(t)
	old := s.createKeys().IDs(secrets.Derivation)[0]
	_, err := s.runKeys("revoke", "derivation-00000000", "--lost")
	require.NoError(t, err)
	secret, ring := s.readSecret()
	require.Contains(t, ring.Revoked(), "derivation-00000000")

	require.NoError(t, s.control.Client.Delete(t.Context(), secret))
	_, err = s.runKeys("revoke", old, "--lost")
	require.ErrorContains(t, err, "--platform-id")
	platform := uuid.NewString()
	_, err = s.runKeys("revoke", old, "--lost", "--platform-id", platform)
	require.NoError(t, err)
	secret, ring = s.readSecret()
	require.Equal(t, platform, string(secret.Data[platformIDEntry]))
	require.Contains(t, ring.Revoked(), old)
	require.NotContains(t, ring.Fingerprints(), old)
}
