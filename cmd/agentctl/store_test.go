// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// The cluster of the kubeconfig adopts the store, unless the manager of another cluster renews its lease. The audit log has the
// user.
func TestStoreAdopt_MovesTheStore(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	kubeconfig, path := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, os.WriteFile(kubeconfig, control.Kubeconfig(), 0o600))
	system := &corev1.Namespace{}
	require.NoError(t, control.Client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system))
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	adopt := func(more ...string) (string, error) {
		out, _, err := run(t, append([]string{"store", "adopt", "--kubeconfig", kubeconfig, "--sqlite", path}, more...)...)
		return out, err
	}

	require.NoError(t, db.HoldCluster(t.Context(), "another cluster", uuid.New()))
	_, err = adopt()
	require.ErrorContains(t, err, "stop it and retry")
	_, err = adopt("--finish")
	require.Error(t, err, "a store that was not adopted")
	lease, err := db.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, "another cluster", lease.ClusterUID)

	log, err := db.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, log, 2)
	require.Equal(t, "store adopt --finish", log[0].Operation)
	require.Equal(t, "failed", log[0].Outcome.Code)
	require.Equal(t, string(system.UID), log[1].Object.ID)
}
