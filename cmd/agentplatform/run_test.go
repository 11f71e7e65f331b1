// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// failing is a store that fails to tell its lease, one answer after the other.
type failing struct {
	store.Store
	answers []error
	away    error
}

func (f *failing) Cluster(context.Context) (store.ClusterLease, error) {
	err := f.answers[0]
	f.answers = f.answers[1:]
	if err != nil {
		return store.ClusterLease{}, err
	}
	return store.ClusterLease{ClusterUID: "there"}, nil
}

func (f *failing) Ping(context.Context) error { return f.away }

// TestAStoreIsMigratedForNobodyElse: a read that fails does not make the store of
// another cluster one that has no schema yet.
func TestAStoreIsMigratedForNobodyElse(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		store failing
		known bool
		want  error
	}{
		"another cluster's":          {failing{answers: []error{nil}}, true, nil},
		"another's, read again":      {failing{answers: []error{broken, nil}}, true, nil},
		"away":                       {failing{answers: []error{broken}, away: broken}, false, broken},
		"without a schema":           {failing{answers: []error{broken, broken}}, false, nil},
		"with a schema and no lease": {failing{answers: []error{store.ErrNotFound}}, false, nil},
	} {
		held, known, err := leaseOf(t.Context(), &c.store)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.known, known, name)
		if known {
			require.Equal(t, "there", held.ClusterUID, name)
		}
	}
}
