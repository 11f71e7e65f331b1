// SPDX-License-Identifier: Apache-2.0

package storetest

import "github.com/agentplatform/agentplatform/store"

// schemaPromises are about databases of other versions.
var schemaPromises = []promise{
	{"ForeignMigrationsAreRefused", foreignMigrations},
	{"AMissingFingerprintIsRefused", missingFingerprint},
	{"NewerMigrationsAreAllowed", newerMigrations},
}

// foreignMigrations: a database of other migrations with the same numbers is neither used nor
// migrated.
func foreignMigrations(w *world) {
	w.NoError(w.s.Ping(w.ctx))
	w.NoError(w.s.Migrate(w.ctx), "a second call is no error")
	_, err := w.db.ExecContext(w.ctx, `UPDATE schema_fingerprints SET fingerprint = 'of another text'`)
	w.NoError(err)
	w.refusesSchema()
}

// missingFingerprint: a database without fingerprints counts as one of other migrations.
func missingFingerprint(w *world) {
	_, err := w.db.ExecContext(w.ctx, `DELETE FROM schema_fingerprints`)
	w.NoError(err)
	w.refusesSchema()
	_, err = w.db.ExecContext(w.ctx, `DROP TABLE schema_fingerprints`)
	w.NoError(err)
	w.refusesSchema()
}

func (w *world) refusesSchema() {
	for _, err := range []error{w.s.Ping(w.ctx), w.s.Migrate(w.ctx)} {
		w.ErrorIs(err, store.ErrForeignSchema)
		w.ErrorContains(err, "run the version that created it, or use an empty store")
	}
}

// newerMigrations: migrations of a later release that supports this one make no difference.
func newerMigrations(w *world) {
	_, err := w.db.ExecContext(w.ctx, `INSERT INTO goose_db_version (version_id, is_applied)
		SELECT MAX(version_id) + 1, TRUE FROM goose_db_version`)
	w.NoError(err)
	_, err = w.db.ExecContext(w.ctx, `INSERT INTO schema_fingerprints (version, fingerprint)
		SELECT MAX(version) + 1, 'of a later release' FROM schema_fingerprints`)
	w.NoError(err)
	w.NoError(w.s.Ping(w.ctx))
	_, err = w.db.ExecContext(w.ctx, `UPDATE schema_compat SET oldest = (SELECT MAX(version) FROM schema_fingerprints)`)
	w.NoError(err)
	w.ErrorContains(w.s.Ping(w.ctx), "works with releases from version")
}
