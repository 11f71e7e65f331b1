// SPDX-License-Identifier: Apache-2.0

// Package sqlitetest gives tests SQLite stores with their schema.
package sqlitetest

import (
	"context"
	"errors"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Migrated returns the path of an empty store with its schema. It is a copy of one store, because
// migrating each would take most of a test's time.
//
// In Ginkgo, call it with GinkgoTB().
func Migrated(tb testing.TB) (path string) {
	tb.Helper()
	return testenv.FilePrepared(tb, "migrated", migrate)
}

// migrate creates the schema in a file.
func migrate(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx), s.Close())
}
