// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// leased is a store that answers who has its lease, and can be migrated.
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

// TestAStoreIsMigratedForNobodyElse: a read that failed does not make the store of
// another cluster one that has no schema yet.
func TestAStoreIsMigratedForNobodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		migrated bool
	}{
		"nobody's yet":    {store.ErrNotFound, true},
		"not to be asked": {errors.New("broken"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &leased{err: c.err}
			require.Error(t, runManager(t.Context(), &process{store: s}))
			require.Equal(t, c.migrated, s.migrated)
		})
	}
}
