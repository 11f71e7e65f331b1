// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// ahead is a store that has version 2 of every secret.
type ahead struct {
	Store
	key  string
	rows []store.Connector
}

func (a *ahead) DerivationKey(context.Context, store.Key, int64) (string, error) { return a.key, nil }

func (a *ahead) PutConnector(_ context.Context, c store.Connector) error {
	a.rows = append(a.rows, c)
	if c.SecretVersion < 2 {
		return &store.SecretVersionError{Asked: c.SecretVersion, Stored: 2}
	}
	return nil
}

// A kept version derives from the current key, because the earlier key may be revoked.
func TestKeepVersion_UsesCurrentKey(t *testing.T) {
	t.Parallel()
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	keys, key := &secrets.Keys{}, ring.IDs(secrets.Derivation)[0]
	require.NoError(t, keys.Set(ring, []string{key}))
	data := &ahead{key: key}
	r := &Reconciler{Base: &base.Base{}, Store: data, Keys: keys}
	ids := projection.Identity{Project: uuid.New(), Environment: uuid.New(), Connector: uuid.New()}
	c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ask"}, Spec: v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound}}
	row, err := r.connectorRow(c, ids, "of version 1", key)
	require.NoError(t, err)

	held, err := r.projectRow(t.Context(), c, ids, row)
	require.NoError(t, err)
	require.False(t, held)
	require.Equal(t, v1alpha1.ReasonSecretVersionWentBack, c.Status.Condition(v1alpha1.ConditionStalled).Reason)
	require.EqualValues(t, 2, c.Status.SecretVersion)
	want, err := keys.Secret(key, secrets.Generated{ProjectID: ids.Project, ConnectorID: ids.Connector, Version: 2})
	require.NoError(t, err)
	last := data.rows[len(data.rows)-1]
	require.Equal(t, int64(2), last.SecretVersion)
	require.Equal(t, secrets.Digest(want), last.SecretDigest)
}

// A connector that the store rejects is not ready.
func TestReconcile_RejectedConnectorIsNotReady(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]func(*v1alpha1.Connector){
		"name taken":          func(c *v1alpha1.Connector) { c.MarkNameTaken("Connector team/other") },
		"id taken":            func(c *v1alpha1.Connector) { v1alpha1.MarkIDTaken(c, "Connector team/other") },
		"environment missing": func(c *v1alpha1.Connector) { v1alpha1.MarkReferenceMissing(c, "Environment", "dev") },
		"project missing":     func(c *v1alpha1.Connector) { v1alpha1.MarkProjectMissing(c) },
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Connector{}
			c.MarkRoutesReady()
			mark(c)
			require.False(t, c.Status.IsTrue(v1alpha1.ConditionRoutesReady))
		})
	}
}
