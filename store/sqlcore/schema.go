// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// CheckSchema answers nil when the schema has all of this release's migrations,
// and none that this release does not work with.
func CheckSchema(ctx context.Context, q Queryer, migrations fs.FS) error {
	wanted, err := newest(migrations)
	if err != nil {
		return err
	}
	var version, oldest int64
	if err := q.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0), (SELECT oldest FROM schema_compat)
		FROM goose_db_version`).Scan(&version, &oldest); err != nil {
		return fmt.Errorf("reading the schema's version (has the manager migrated it?): %w", err)
	}
	switch {
	case version < wanted:
		return fmt.Errorf("the schema is at version %d, this release needs %d: the manager of this release must migrate it first",
			version, wanted)
	case oldest > wanted:
		return fmt.Errorf("the schema works with releases from version %d on, this one is of version %d", oldest, wanted)
	}
	return nil
}

// newest is the number of the last migration.
func newest(migrations fs.FS) (last int64, err error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, fmt.Errorf("listing the migrations: %w", err)
	}
	for _, file := range files {
		number, _, _ := strings.Cut(path.Base(file), "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("numbering migration %s: %w", file, err)
		}
		last = max(last, n)
	}
	return last, nil
}
