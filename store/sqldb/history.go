// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// HistoryTables are the history tables, with the column whose time selects the partition.
var HistoryTables = map[string]string{
	"inputs": "id", "ended_runs": "id", "ended_connector_runs": "id", "journal": "run_id", "model_calls": "run_id",
	"delivery_attempts": "delivery_id",
	"run_words":         "run_id",
	"audit_log":         "id", "audit_outcomes": "id",
}

// InPart replaces the names of history tables in braces, like {ended_runs}, by the partitions of an ID.
func (d *DB) InPart(statement string, id uuid.UUID) string {
	for {
		before, rest, found := strings.Cut(statement, "{")
		if !found {
			return statement
		}
		table, after, _ := strings.Cut(rest, "}")
		statement = before + d.Part(table, id) + after
	}
}

// ReadHistory reads a value of the history row that a statement selects by project ($1), ID ($2) and
// more arguments. ErrNotFound if there is no row or no partition. A missing partition aborts a
// transaction q, which must have nothing left to do then, because it must not wait for a second
// connection.
func (d *DB) ReadHistory(ctx context.Context, q Queryer, key store.Key, statement string, into any, args ...any) error {
	args = append([]any{key.ProjectID, key.ID}, args...)
	return d.MapNoRowsOrPart(q.QueryRowContext(ctx, d.InPart(statement, key.ID), args...).Scan(into))
}

// MapNoRowsOrPart is MapNoRows, also for a missing partition.
func (d *DB) MapNoRowsOrPart(err error) error {
	if err != nil && !errors.Is(err, store.ErrNotFound) && d.NoTable(err) {
		return store.ErrNotFound
	}
	return MapNoRows(err)
}

// PastRows returns the history rows that a statement selects; none if the partition is missing.
func PastRows[T any](ctx context.Context, d *DB, q Queryer, id uuid.UUID, scan func(Scanner) (T, error), statement string, args ...any) ([]T, error) {
	rows, err := Collect(ctx, q, scan, d.InPart(statement, id), args...)
	if err = d.MapNoRowsOrPart(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return rows, err
}
