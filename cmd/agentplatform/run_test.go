// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
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

// excludeRelease makes a store look as after a migration of a newer release that excludes this one.
func excludeRelease(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE schema_compat SET oldest = 99`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// Each process stops once a newer release excludes it, is not ready from then on, and does not start again.
func TestProcesses_StopWhenNewerReleaseExcludesThem(t *testing.T) {
	t.Parallel()
	for _, name := range []string{metrics.ProcessManager, metrics.ProcessFacade, metrics.ProcessAll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &options{}
			opts.Store.SQLite = sqlitetest.Migrated(t)
			p, err := newProcess(t.Context(), name, opts)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.store.Close()) })
			p.ready.Set(func(context.Context) error { return nil })
			require.NoError(t, p.observed().Ready(t.Context()))
			p.schema.Tick = func(context.Context) error {
				excludeRelease(t, opts.Store.SQLite)
				return nil
			}
			err = p.runWork(t.Context(), func(ctx context.Context, p *process) error {
				<-ctx.Done()
				require.ErrorIs(t, p.observed().Ready(t.Context()), store.ErrNewerSchema)
				return nil
			})
			require.ErrorIs(t, err, store.ErrNewerSchema)
			_, err = newProcess(t.Context(), name, opts)
			require.ErrorIs(t, err, store.ErrNewerSchema)
		})
	}
}
