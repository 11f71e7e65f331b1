// SPDX-License-Identifier: Apache-2.0

// Package sqlitetest gives tests SQLite stores that have their schema.
package sqlitetest

import (
	"context"
	"errors"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Migrated is the path of a store with its schema and nothing else in it, which is made once
// and copied: to migrate each would take most of a test's time.
//
// From Ginkgo call it with GinkgoTB().
func Migrated(tb testing.TB) (path string) {
	tb.Helper()
	return testenv.FilePrepared(tb, "migrated", migrate)
}

// migrate makes the schema in a file.
func migrate(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx), s.Close())
}
