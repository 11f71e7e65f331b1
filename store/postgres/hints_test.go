// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

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

// A stream in one process learns of the changes of a run that another process executes, once that process knows of the stream.
func TestFollowRun_ReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	here, there := openAt(t, dsn), openAt(t, dsn)
	scene := storebench.NewScene(t, here, 1)
	event := scene.Event(t)
	_, err := here.Accept(t.Context(), []store.Event{event})
	require.NoError(t, err)
	got, err := here.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "r", Slots: 1, Limit: 1, Lease: time.Hour,
	})
	require.NoError(t, err)
	require.Len(t, got.Runs, 1)
	run := got.Runs[0].Run.Key()
	changes, stopChanges := there.Subscribe(store.TopicRun)
	defer stopChanges()
	follows, stopFollows := here.Subscribe(store.TopicFollow)
	defer stopFollows()
	there.FollowRun(run)
	for hint := range follows {
		if hint.Key == run {
			break
		}
		there.FollowRun(run) // the first one came before this process listened
	}
	sequence := int64(0)
	appendEntry := func() {
		sequence++
		require.NoError(t, here.AppendJournal(t.Context(), store.Lease{Run: run, Token: got.Runs[0].Token}, []store.JournalEntry{
			{Sequence: sequence, Kind: store.JournalModelAnswer, Data: json.RawMessage(`{}`)},
		}))
	}
	appendEntry()
	for hint := range changes {
		if hint.Key == run {
			return
		}
		appendEntry() // the first one came before the other process listened
	}
	t.Fatal("the subscription ended")
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
