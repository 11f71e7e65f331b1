// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/store"
)

// leases is the lease of a store, answered by a function.
type leases struct {
	store.Clusters
	hold func() error
}

func (l leases) HoldCluster(context.Context, string, uuid.UUID) error { return l.hold() }

// TestAManagerWaitsForTheStoreOfAnotherCluster: until it is adopted, and no
// longer; another platform's store it does not take at all.
func TestAManagerWaitsForTheStoreOfAnotherCluster(t *testing.T) {
	t.Parallel()
	foreign, away := &store.ForeignClusterError{}, errors.New("away")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"its own":           {[]error{nil}, nil},
		"adopted meanwhile": {[]error{foreign, foreign, nil}, nil},
		"another platform":  {[]error{&store.ForeignPlatformError{}}, &store.ForeignPlatformError{}},
		"away":              {[]error{foreign, away}, away},
	} {
		asked, waited := 0, 0
		lease := &controllers.Lease{
			Logger: slog.New(slog.DiscardHandler),
			Store: leases{hold: func() error {
				asked++
				return c.answers[asked-1]
			}},
			Tick: func(context.Context) error {
				waited++
				return nil
			},
		}
		require.Equal(t, c.want, lease.Await(t.Context()), name)
		require.Equal(t, len(c.answers), asked, name)
		require.Equal(t, asked-1, waited, name)
	}
}

// TestALeaseIsRenewedUntilAnotherClusterHasIt: a store that is away is asked
// again, one that serves another cluster ends the manager.
func TestALeaseIsRenewedUntilAnotherClusterHasIt(t *testing.T) {
	t.Parallel()
	answers := []error{nil, errors.New("away"), nil, &store.ForeignClusterError{}}
	asked := 0
	lease := &controllers.Lease{
		Logger: slog.New(slog.DiscardHandler),
		Store: leases{hold: func() error {
			asked++
			return answers[asked-1]
		}},
		Tick: func(context.Context) error { return nil },
	}
	var foreign *store.ForeignClusterError
	require.ErrorAs(t, lease.Start(t.Context()), &foreign)
	require.Equal(t, len(answers), asked)
	require.True(t, lease.NeedLeaderElection())

	answers, asked = []error{nil}, 0
	lease.Tick = func(context.Context) error { return context.Canceled }
	require.NoError(t, lease.Start(t.Context()), "the manager stops")
}
