// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// schemaPromises are about databases of other versions.
var schemaPromises = []promise{
	{"ForeignMigrationsAreRefused", foreignMigrations},
	{"AMissingFingerprintIsRefused", missingFingerprint},
	{"NewerMigrationsAreAllowed", newerMigrations},
	{"NewerMigrationsMayExcludeThisRelease", excludingMigrations},
}

// foreignMigrations: a database of other migrations with the same numbers is neither used nor
// migrated.
func foreignMigrations(w *world) {
	w.NoError(w.s.Ping(w.ctx))
	w.NoError(w.s.Migrate(w.ctx), "a second call is no error")
	w.execStatement(`UPDATE schema_fingerprints SET fingerprint = 'of another text'`)
	w.refusesSchema()
}

// missingFingerprint: a database without fingerprints counts as one of other migrations.
func missingFingerprint(w *world) {
	w.execStatement(`DELETE FROM schema_fingerprints`)
	w.refusesSchema()
	w.execStatement(`DROP TABLE schema_fingerprints`)
	w.refusesSchema()
}

func (w *world) refusesSchema() {
	for _, err := range []error{w.s.Ping(w.ctx), w.s.Migrate(w.ctx)} {
		w.ErrorIs(err, store.ErrForeignSchema)
		w.ErrorContains(err, "run the version that created it, or use an empty store")
	}
}

// migrateFurther makes the database look as after a migration of a later release.
func (w *world) migrateFurther() {
	w.NoError(errorOf(w.db.ExecContext(w.ctx, `INSERT INTO goose_db_version (version_id, is_applied)
		SELECT MAX(version_id) + 1, TRUE FROM goose_db_version`)))
	w.NoError(errorOf(w.db.ExecContext(w.ctx, `INSERT INTO schema_fingerprints (version, fingerprint)
		SELECT MAX(version) + 1, 'of a later release' FROM schema_fingerprints`)))
}

// newerMigrations: migrations of a later release that supports this one make no difference.
func newerMigrations(w *world) {
	w.migrateFurther()
	w.NoError(w.s.Ping(w.ctx))
	w.NoError(w.s.Migrate(w.ctx))
	w.NoError(w.s.PutProject(w.ctx, w.project))
}

// excludingMigrations: once a check has found migrations of a later release that excludes this one, the store changes nothing
// and no run is claimed.
func excludingMigrations(w *world) {
	w.deploy("one", "first")
	_, c := w.running(lease)
	w.acceptEvent(w.singleEvent())
	control, uid := w.s.ForCluster("cluster"), uuid.New()
	w.NoError(w.s.HoldCluster(w.ctx, "cluster", uid))
	w.migrateFurther()
	w.execStatement(`UPDATE schema_compat SET oldest = (SELECT MAX(version) FROM schema_fingerprints)`)
	err := w.s.Migrate(w.ctx)
	w.ErrorIs(err, store.ErrNewerSchema)
	err = w.s.Ping(w.ctx)
	w.ErrorIs(err, store.ErrNewerSchema)
	w.ErrorContains(err, "install the newer release, or restore the backup from before the upgrade")
	for name, change := range map[string]func() error{
		"project":           func() error { return w.s.PutProject(w.ctx, w.project) },
		"manager's project": func() error { return control.PutProject(w.ctx, w.project) },
		"lease":             func() error { return w.s.HoldCluster(w.ctx, "cluster", uid) },
		"claim": func() error {
			_, err := w.s.Claim(w.ctx, store.Claim{Environment: w.environment.Key(), RunnerID: "r", Slots: 10, Limit: 10, Lease: lease})
			return err
		},
		"event": func() error {
			admissions, err := w.s.Accept(w.ctx, []store.Event{w.singleEvent()})
			if err == nil {
				err = admissions[0].Err
			}
			return err
		},
		"journal": func() error {
			return w.s.AppendJournal(w.ctx, leaseOf(c), []store.JournalEntry{newEntry(1, "step", false)})
		},
		"end": func() error { return w.complete(completed(c)) },
		"history": func() error {
			_, err := w.s.DropHistory(w.ctx, time.Hour, 1)
			return err
		},
	} {
		w.ErrorIs(change(), store.ErrNewerSchema, name)
	}
	w.execStatement(`UPDATE schema_compat SET oldest = 1`)
	w.ErrorIs(w.s.PutProject(w.ctx, w.project), store.ErrNewerSchema, "until the next check")
	w.NoError(w.s.Ping(w.ctx))
	w.NoError(w.s.PutProject(w.ctx, w.project))
	w.NoError(w.complete(completed(c)))
}

// CheckInterruptedMigration checks a store without any table. A migration that ended before its first step leaves a version
// table with row 0. Such a store is not migrated yet, and the next migration completes it.
func CheckInterruptedMigration(t *testing.T, dialect database.Dialect, opened Opened) {
	t.Helper()
	versions, err := database.NewStore(dialect, goose.DefaultTablename)
	require.NoError(t, err)
	require.NoError(t, versions.CreateVersionTable(t.Context(), opened.DB))
	require.NoError(t, versions.Insert(t.Context(), opened.DB, database.InsertRequest{Version: 0}))
	err = opened.Ping(t.Context())
	require.ErrorContains(t, err, "the manager of this release must migrate it first")
	require.NotErrorIs(t, err, store.ErrForeignSchema)
	require.NotErrorIs(t, opened.PutProject(t.Context(), store.Project{}), store.ErrForeignSchema)
	require.NoError(t, opened.Migrate(t.Context()))
	require.NoError(t, opened.Ping(t.Context()))
}
