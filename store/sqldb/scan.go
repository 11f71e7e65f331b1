// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// EachRow calls visit for each row of a query, up to its first error.
func EachRow(ctx context.Context, q Queryer, visit func(Scanner) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err returns its error
	for rows.Next() {
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect reads all rows of a query.
func Collect[T any](ctx context.Context, q Queryer, scan func(Scanner) (T, error), query string, args ...any) (out []T, err error) {
	err = EachRow(ctx, q, func(row Scanner) error {
		v, err := scan(row)
		if err == nil {
			out = append(out, v)
		}
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CollectMap reads all rows of a query into a map.
func CollectMap[K comparable, V any](ctx context.Context, q Queryer, into map[K]V, scan func(Scanner) (K, V, error), query string, args ...any) error {
	return EachRow(ctx, q, func(row Scanner) error {
		key, v, err := scan(row)
		if err == nil {
			into[key] = v
		}
		return err
	}, query, args...)
}

// Scanner is a *sql.Row or *sql.Rows.
type Scanner interface{ Scan(dest ...any) error }

// ScanKey scans a key: project_id and id.
func ScanKey(row Scanner) (key store.Key, err error) {
	err = row.Scan(&key.ProjectID, &key.ID)
	return key, err
}

// ScanUUID scans an ID.
func ScanUUID(row Scanner) (id uuid.UUID, err error) {
	err = row.Scan(&id)
	return id, err
}

// MapNoRows maps the driver's error for a missing row to ErrNotFound.
func MapNoRows(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// Wrap adds context to an error; nil stays nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// ScanText scans a text.
func ScanText(row Scanner) (name string, err error) {
	err = row.Scan(&name)
	return name, err
}
