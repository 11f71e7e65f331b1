// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"bytes"
	"database/sql"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// restoredAt is the time of restores in the tests.
var restoredAt = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// accepted accepts an event, and returns the ID of its connector run.
func accepted(t *testing.T, s store.Store, scene *storebench.Scene) uuid.UUID {
	admissions, err := s.Accept(t.Context(), []store.Event{scene.Event(t)})
	if assert.NoError(t, err) && assert.NoError(t, admissions[0].Err) {
		return admissions[0].ConnectorRunID
	}
	return uuid.Nil
}

// backedUp returns a copy of the store at a path.
func backedUp(t *testing.T, path string) []byte {
	t.Helper()
	var copied bytes.Buffer
	require.NoError(t, sqlite.Backup(t.Context(), path, &copied, func(int64, int64) {}))
	return copied.Bytes()
}

// A copy that is made while writers accept events, and while pages of the log move to the file, has
// all rows of earlier responses and is consistent. A store opens on the restored copy.
func TestBackup_HasAnsweredEvents(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t)
	s := openAt(t, path)
	scene := storebench.NewScene(t, s, 2)
	var before []uuid.UUID
	for range 50 {
		before = append(before, accepted(t, s, scene))
	}
	again, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Close()) })

	written, end := accepting(t, s, scene)
	var copied bytes.Buffer
	pages, calls := 0, 0
	err = sqlite.Backup(t.Context(), path, writerFunc(func(page []byte) (int, error) {
		if pages++; pages%20 == 1 { // each time events arrive, and pages move to places that were read or will be read
			for range 8 {
				<-written
			}
			_, err := again.ExecContext(t.Context(), `PRAGMA wal_checkpoint(PASSIVE)`)
			assert.NoError(t, err)
		}
		return copied.Write(page)
	}), func(done, all int64) {
		calls++
		assert.LessOrEqual(t, done, all)
		assert.Equal(t, done, int64(copied.Len()))
	})
	end()
	require.NoError(t, err)
	require.Equal(t, pages, calls)
	require.Greater(t, pages, 40, "otherwise nothing was written meanwhile")

	restored := filepath.Join(t.TempDir(), "restored.db")
	kept, err := sqlite.Restore(t.Context(), restored, &copied, false, restoredAt)
	require.NoError(t, err)
	require.Empty(t, kept)
	requireIntact(t, restored)
	r := openAt(t, restored)
	require.NoError(t, r.Ping(t.Context()))
	for _, id := range before {
		outcome, err := r.Outcome(t.Context(), store.Key{ProjectID: scene.Project, ID: id})
		require.NoError(t, err)
		require.Equal(t, store.ConnectorRunRunning, outcome.Status)
	}
	rescene := *scene
	rescene.Store = r
	require.NotEqual(t, uuid.Nil, accepted(t, r, &rescene), "the writers continue")
}

// accepting starts four writers that accept events until they are stopped. written gets a value per
// event.
func accepting(t *testing.T, s store.Store, scene *storebench.Scene) (written <-chan uuid.UUID, end func()) {
	t.Helper()
	var writers sync.WaitGroup
	ended, accepts := make(chan struct{}), make(chan uuid.UUID)
	for range 4 {
		writers.Go(func() {
			for {
				id := accepted(t, s, scene)
				select {
				case accepts <- id:
				case <-ended:
					return
				}
			}
		})
	}
	return accepts, func() {
		close(ended)
		writers.Wait()
	}
}

// requireIntact checks a file with SQLite itself.
func requireIntact(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	var said string
	require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&said))
	require.Equal(t, "ok", said)
	require.NoError(t, db.Close())
}

// A stopped store is backed up too, with the contents of its log.
func TestBackup_OfStoppedStore(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t)
	require.NoError(t, verifyRestored(t, backedUp(t, path)))
	_, err := os.Stat(path)
	require.NoError(t, err)
	require.ErrorContains(t, sqlite.Backup(t.Context(), filepath.Join(t.TempDir(), "none.db"), io.Discard, nil), "no such file")
	empty := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.ErrorContains(t, sqlite.Backup(t.Context(), empty, io.Discard, nil), "without the tables of a store")
}

// verifyRestored restores a backup to a new path.
func verifyRestored(t *testing.T, backup []byte) error {
	t.Helper()
	_, err := sqlite.Restore(t.Context(), filepath.Join(t.TempDir(), "store.db"), bytes.NewReader(backup), false, restoredAt)
	return err
}

// A backup is checked before it replaces anything, and leaves no files if it is rejected.
func TestRestore_RefusesDamagedBackups(t *testing.T) {
	t.Parallel()
	whole := backedUp(t, sqlitetest.Migrated(t))
	damaged := bytes.Clone(whole)
	copy(damaged[4096:8192], make([]byte, 4096))
	for name, row := range map[string]struct {
		backup []byte
		want   string
	}{
		"nothing":    {nil, "not a SQLite database"},
		"text":       {bytes.Repeat([]byte("text"), 100), "not a SQLite database"},
		"cut off":    {whole[:len(whole)-4096], "it is incomplete"},
		"a page":     {damaged, "damaged"},
		"log beside": {append(bytes.Clone(whole), 0), "it is incomplete, or not the output"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			_, err := sqlite.Restore(t.Context(), filepath.Join(folder, "store.db"), bytes.NewReader(row.backup), false, restoredAt)
			require.ErrorContains(t, err, row.want)
			left, err := os.ReadDir(folder)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// An open store is never replaced. Another store is replaced on request only, and is kept.
func TestRestore_KeepsExistingStore(t *testing.T) {
	t.Parallel()
	backup, path := backedUp(t, sqlitetest.Migrated(t)), sqlitetest.Migrated(t)
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	require.NoError(t, err)
	scene := storebench.NewScene(t, s, 1)
	id := accepted(t, s, scene)
	restore := func(replace bool) (string, error) {
		return sqlite.Restore(t.Context(), path, bytes.NewReader(backup), replace, restoredAt)
	}
	_, err = restore(false)
	require.ErrorContains(t, err, "--replace")
	_, err = restore(true)
	require.ErrorContains(t, err, "in use")
	require.NotEqual(t, uuid.Nil, accepted(t, s, scene), "the writers continue")
	require.NoError(t, s.Close())

	kept, err := restore(true)
	require.NoError(t, err)
	require.Equal(t, path+".20261128T120000Z", kept)
	old := openAt(t, kept)
	_, err = old.Outcome(t.Context(), store.Key{ProjectID: scene.Project, ID: id})
	require.NoError(t, err, "the existing store is kept")
	_, err = openAt(t, path).Outcome(t.Context(), store.Key{ProjectID: scene.Project, ID: id})
	require.ErrorIs(t, err, store.ErrNotFound)
}

// The log of a store whose file is missing would become part of the restored store.
func TestRestore_RefusesLogWithoutFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, os.WriteFile(path+"-wal", []byte("pages"), 0o600))
	_, err := sqlite.Restore(t.Context(), path, bytes.NewReader(backedUp(t, sqlitetest.Migrated(t))), false, restoredAt)
	require.ErrorContains(t, err, "move it away first")
}
