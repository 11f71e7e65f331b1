// SPDX-License-Identifier: Apache-2.0

// Package schema migrates and checks the schema of a database. Its folder has the templates of the
// migrations.
package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Schema is the schema of a release, which its migrations create.
type Schema struct {
	scripts fs.FS
	dialect database.Dialect
	// version is the number of the last migration.
	version int64
	// fingerprints are the fingerprints of the schema after each migration: a hash of all
	// migrations up to it. A store records them, so an edited migration is detected.
	fingerprints map[int64]string
	noTable      func(err error) bool
	// unusable has the reason of the last Check or Migrate, if waiting does not change it.
	unusable atomic.Pointer[error]
}

// New reads the folder migrations. noTable reports whether a statement failed because a table
// is missing.
func New(files fs.FS, dialect database.Dialect, noTable func(err error) bool) (*Schema, error) {
	scripts, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("opening the migrations: %w", err)
	}
	names, err := fs.Glob(scripts, "*.sql") // by number, with a fixed number of digits
	if err != nil {
		return nil, fmt.Errorf("listing the migrations: %w", err)
	}
	s := &Schema{scripts: scripts, dialect: dialect, fingerprints: map[int64]string{}, noTable: noTable}
	all := sha256.New()
	for _, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		if s.version, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, fmt.Errorf("numbering migration %s: %w", name, err)
		}
		text, err := fs.ReadFile(scripts, name)
		if err != nil {
			return nil, fmt.Errorf("reading migration %s: %w", name, err)
		}
		_, _ = fmt.Fprintf(all, "%d %d\n%s", s.version, len(text), text) // a hash never fails
		s.fingerprints[s.version] = hex.EncodeToString(all.Sum(nil))
	}
	return s, nil
}

// Migrate applies the missing migrations, and stores their fingerprints with them. It changes
// nothing in a database that other migrations created, or that a newer release excludes this one from.
func (s *Schema) Migrate(ctx context.Context, db *sql.DB, options ...goose.ProviderOption) error {
	return s.record(s.migrate(ctx, db, options...))
}

func (s *Schema) migrate(ctx context.Context, db *sql.DB, options ...goose.ProviderOption) error {
	versions, err := database.NewStore(s.dialect, goose.DefaultTablename)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	extended, ok := versions.(database.StoreExtender)
	if !ok {
		return fmt.Errorf("reading the schema's version: %T cannot say whether its table exists", versions)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, s.scripts,
		append(options, goose.WithDisableGlobalRegistry(true), goose.WithStore(&fingerprinted{extended, s.fingerprints}))...)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	version, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if version > 0 {
		if err := errors.Join(s.compare(ctx, db, version), s.checkNewer(ctx, db)); err != nil {
			return err
		}
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	return nil
}

// fingerprinted stores the fingerprint of a migration in the transaction that stores its number.
type fingerprinted struct {
	database.StoreExtender
	of map[int64]string
}

// Insert implements database.Store. The first number is 0, before all tables exist.
func (f *fingerprinted) Insert(ctx context.Context, db database.DBTxConn, r database.InsertRequest) error {
	if err := f.StoreExtender.Insert(ctx, db, r); err != nil || r.Version == 0 {
		return err
	}
	_, err := db.ExecContext(ctx, `INSERT INTO schema_fingerprints (version, fingerprint) VALUES ($1, $2)`, r.Version, f.of[r.Version])
	return err
}

// Check returns nil if the schema has all migrations of this release, and none that this release
// does not support. It returns store.ErrForeignSchema if other migrations with the same numbers
// created it, and store.ErrNewerSchema if later migrations exclude this release.
func (s *Schema) Check(ctx context.Context, q sqldb.Queryer) error {
	return s.record(s.checkVersion(ctx, q))
}

// record keeps the result of a check or a migration for CheckUsable, and returns it.
func (s *Schema) record(err error) error {
	switch {
	case err == nil:
		s.unusable.Store(nil)
	case errors.Is(err, store.ErrForeignSchema), errors.Is(err, store.ErrNewerSchema):
		s.unusable.Store(&err)
	}
	return err
}

// CheckUsable returns store.ErrForeignSchema or store.ErrNewerSchema if the last Check or Migrate did, and no later one found a
// usable schema. It does not query the database.
func (s *Schema) CheckUsable() error {
	if err := s.unusable.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Schema) checkVersion(ctx context.Context, q sqldb.Queryer) error {
	var version int64
	if err := q.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&version); err != nil {
		return fmt.Errorf("reading the schema's version (has the manager migrated it?): %w", err)
	}
	if version > 0 { // at 0, the first migration has not created its tables yet
		if err := s.compare(ctx, q, version); err != nil {
			return err
		}
	}
	if version < s.version {
		return fmt.Errorf("the schema is at version %d, this release needs %d: the manager of this release must migrate it first",
			version, s.version)
	}
	return s.checkNewer(ctx, q)
}

// checkNewer returns store.ErrNewerSchema if the schema excludes this release.
func (s *Schema) checkNewer(ctx context.Context, q sqldb.Queryer) error {
	var oldest int64
	if err := q.QueryRowContext(ctx, `SELECT oldest FROM schema_compat`).Scan(&oldest); err != nil {
		return fmt.Errorf("reading the oldest release that the schema works with: %w", err)
	}
	if oldest > s.version {
		return fmt.Errorf("%w: it works with releases from schema version %d on, this release has version %d; "+
			"install the newer release, or restore the backup from before the upgrade", store.ErrNewerSchema, oldest, s.version)
	}
	return nil
}

// compare returns store.ErrForeignSchema unless the migrations that the database and this release
// have in common are the same.
func (s *Schema) compare(ctx context.Context, q sqldb.Queryer, version int64) error {
	var made string
	common := min(version, s.version)
	err := q.QueryRowContext(ctx, `SELECT fingerprint FROM schema_fingerprints WHERE version = $1`, common).Scan(&made)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows) && !s.noTable(err):
		return fmt.Errorf("reading the schema's fingerprint: %w", err)
	case err != nil || made != s.fingerprints[common]:
		return fmt.Errorf("%w up to number %d: run the version that created it, or use an empty store", store.ErrForeignSchema, common)
	}
	return nil
}
