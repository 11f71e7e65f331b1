// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Names of tables of history, for which a statement about one id has the name of
// the part that holds it.
const (
	inputs             = "{inputs}"
	endedRuns          = "{ended_runs}"
	endedConnectorRuns = "{ended_connector_runs}"
	journal            = "{journal}"
)

// HistoryTables are the tables of history, and the column whose time says which part
// a row is in.
var HistoryTables = map[string]string{
	"inputs": "id", "ended_runs": "id", "ended_connector_runs": "id", "journal": "run_id", "model_calls": "run_id",
	"delivery_attempts": "delivery_id",
	"run_words":         "run_id",
	"audit_log":         "id", "audit_outcomes": "id",
}

// InPart puts the parts of history that hold an id into a statement.
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

// inHistory reads a value of the one row of history that a statement finds by
// project ($1), id ($2) and more arguments; ErrNotFound when there is none, and when
// its part is not there. The latter ends a transaction q, which is to have nothing left
// to do then: it must not wait for a connection beside its own.
func (c *Core) inHistory(ctx context.Context, q Queryer, key store.Key, statement string, into any, args ...any) error {
	args = append([]any{key.ProjectID, key.ID}, args...)
	return c.foundPart(q.QueryRowContext(ctx, c.InPart(statement, key.ID), args...).Scan(into))
}

// foundPart is found, also for a part of history that is not there.
func (c *Core) foundPart(err error) error {
	if err != nil && !errors.Is(err, store.ErrNotFound) && c.noTable(err) {
		return store.ErrNotFound
	}
	return found(err)
}

// pastRows are the rows of history that a statement finds; none where its part is
// not there.
func pastRows[T any](ctx context.Context, c *Core, q Queryer, id uuid.UUID, scan func(scanner) (T, error), statement string, args ...any) ([]T, error) {
	rows, err := collect(ctx, q, scan, c.InPart(statement, id), args...)
	if err = c.foundPart(err); errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return rows, err
}
