// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

func TestNotifier_ReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	process := func() *postgres.Store {
		s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	here, there := process(), process()
	require.NoError(t, here.Migrate(t.Context()))
	queued, stopQueued := there.Subscribe(store.TopicQueued)
	defer stopQueued()
	done, stopDone := there.Subscribe(store.TopicDone)
	defer stopDone()
	scene := storebench.NewScene(t, here, 1)
	scene.Trip(t.Context(), t)
	// Either the hint itself, or the hint that hints may have been lost if it was sent before the
	// other store listened.
	require.Contains(t, []store.Key{{ProjectID: scene.Project, ID: scene.Environment}, {}}, (<-queued).Key)
	require.Equal(t, store.TopicDone, (<-done).Topic)
}

func TestMigrate_Concurrently(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
			if err == nil {
				if err = s.Migrate(t.Context()); err == nil {
					err = s.Ping(t.Context())
				}
				_ = s.Close() // the test is about migrating
			}
			errs <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-errs)
	}
}
