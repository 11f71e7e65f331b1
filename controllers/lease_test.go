// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/store"
)

// leases is a store whose lease a function determines.
type leases struct {
	store.Clusters
	hold func() error
	// age returns the age of the lease at each read.
	age func() time.Duration
}

func (l leases) Cluster(context.Context) (store.ClusterLease, error) {
	if l.age == nil {
		return store.ClusterLease{}, nil
	}
	return store.ClusterLease{Age: l.age()}, nil
}

func (l leases) HoldCluster(context.Context, string, uuid.UUID) error { return l.hold() }

// A manager waits until the store of another cluster is adopted. It rejects the store of another
// platform.
func TestLease_WaitsForForeignStore(t *testing.T) {
	t.Parallel()
	foreign, away := &store.ForeignClusterError{}, errors.New("away")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"lease of this cluster":      {[]error{nil}, nil},
		"adopted after two attempts": {[]error{foreign, foreign, nil}, nil},
		"store of another platform":  {[]error{&store.ForeignPlatformError{}}, &store.ForeignPlatformError{}},
		"store unavailable":          {[]error{foreign, away}, away},
	} {
		t.Run(name, func(t *testing.T) {
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
			require.Equal(t, c.want, lease.Await(t.Context()))
			require.Equal(t, len(c.answers), asked)
			require.Equal(t, asked-1, waited)
		})
	}
}

// The lease is renewed until another cluster holds it. An unavailable store is retried.
func TestLease_EndsWhenAnotherClusterHoldsIt(t *testing.T) {
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

// A manager restarts after the store lost writes, because no object reports the missing rows.
func TestLease_EndsWhenStoreLostWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ages []time.Duration // the last one repeats
		want error
		says string
	}{
		"renewed at the remembered time": {[]time.Duration{10 * time.Second}, nil, ""},
		"database clock slightly behind": {[]time.Duration{14 * time.Second}, nil, ""},
		"database clock slightly ahead":  {[]time.Duration{6 * time.Second}, nil, ""},
		"store restored from a backup":   {[]time.Duration{2 * time.Hour}, controllers.ErrStoreRestored, ""},
		"another manager renews":         {[]time.Duration{time.Second}, nil, "another manager renews the lease"},
		"standby manager renewed once":   {[]time.Duration{time.Second, 10 * time.Second}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			now, renewals := time.Unix(0, 0), 0
			lease := &controllers.Lease{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Store: leases{age: func() time.Duration {
					age := c.ages[0]
					if len(c.ages) > 1 {
						c.ages = c.ages[1:]
					}
					return age
				}, hold: func() error {
					renewals++
					return nil
				}},
				Now: func() time.Time { return now },
				Tick: func(context.Context) error {
					if now = now.Add(10 * time.Second); renewals > 2 {
						return context.Canceled
					}
					return nil
				},
			}
			require.ErrorIs(t, lease.Start(t.Context()), c.want)
			require.Equal(t, c.want == nil, renewals > 2)
			require.Equal(t, c.says != "", log.Len() > 0, "%s", &log)
			require.Contains(t, log.String(), c.says)
		})
	}
}
