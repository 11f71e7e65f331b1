// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Placeholders of history tables. A statement about one ID gets the name of the partition.
const (
	inputs             = "{inputs}"
	endedRuns          = "{ended_runs}"
	endedConnectorRuns = "{ended_connector_runs}"
	journal            = "{journal}"
)

// HistoryTables are the history tables, with the column whose time selects the partition.
var HistoryTables = map[string]string{
	"inputs": "id", "ended_runs": "id", "ended_connector_runs": "id", "journal": "run_id", "model_calls": "run_id",
	"delivery_attempts": "delivery_id",
	"run_words":         "run_id",
	"audit_log":         "id", "audit_outcomes": "id",
}

// InPart replaces the placeholders in a statement by the partitions of an ID.
func (c *Core) InPart(statement string, id uuid.UUID) string {
	for {
		before, rest, found := strings.Cut(statement, "{")
		if !found {
			return statement
		}
		table, after, _ := strings.Cut(rest, "}")
		statement = before + c.engine.Part(table, id) + after
	}
}

// inHistory reads a value of the history row that a statement selects by project ($1), ID ($2) and
// more arguments. ErrNotFound if there is no row or no partition. A missing partition aborts a
// transaction q, which must have nothing left to do then, because it must not wait for a second
// connection.
func (c *Core) inHistory(ctx context.Context, q Queryer, key store.Key, statement string, into any, args ...any) error {
	args = append([]any{key.ProjectID, key.ID}, args...)
	return c.mapNoRowsOrPart(q.QueryRowContext(ctx, c.InPart(statement, key.ID), args...).Scan(into))
}

// mapNoRowsOrPart is mapNoRows, also for a missing partition.
func (c *Core) mapNoRowsOrPart(err error) error {
	if err != nil && !errors.Is(err, store.ErrNotFound) && c.noTable(err) {
		return store.ErrNotFound
	}
	return mapNoRows(err)
}

// pastRows returns the history rows that a statement selects; none if the partition is missing.
func pastRows[T any](ctx context.Context, c *Core, q Queryer, id uuid.UUID, scan func(scanner) (T, error), statement string, args ...any) ([]T, error) {
	rows, err := collect(ctx, q, scan, c.InPart(statement, id), args...)
	if err = c.mapNoRowsOrPart(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return rows, err
}
