// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// leased is a store that returns err for its lease and records its migration.
type leased struct {
	store.Store
	err      error
	migrated bool
}

func (l *leased) Cluster(context.Context) (store.ClusterLease, error) {
	return store.ClusterLease{}, l.err
}

func (l *leased) Migrate(context.Context) error {
	l.migrated = true
	return errors.New("enough")
}

// A failed read of the lease must not count as a store without a schema, because the store may serve another cluster.
func TestManager_MigratesNoForeignStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		migrated bool
	}{
		"no lease":   {store.ErrNotFound, true},
		"read fails": {errors.New("broken"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &leased{err: c.err}
			require.Error(t, runManager(t.Context(), &process{store: s}))
			require.Equal(t, c.migrated, s.migrated)
		})
	}
}
