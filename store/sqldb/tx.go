// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/store"
)

// Tx is a transaction that collects hints for after its commit.
type Tx struct {
	Queryer
	// Hints are published after the commit.
	Hints []store.Hint
	// Exclusive is Dialect.Exclusive.
	Exclusive string
	// Single means that the transaction is one statement and cannot have another.
	Single bool
	// Kept are the blobs that the transaction has marked.
	Kept []store.Key
}

// Hint records a hint for after the commit.
func (t *Tx) Hint(topic store.Topic, key store.Key) {
	t.Hints = append(t.Hints, store.Hint{Topic: topic, Key: key})
}

// Exec runs a statement and returns the number of changed rows.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Ordinal returns the next number of the store's only sequence.
func (t *Tx) Ordinal(ctx context.Context) (n int64, err error) {
	err = t.QueryRowContext(ctx, `UPDATE ordinals SET value = value + 1 WHERE id = 1 RETURNING value`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("drawing an ordinal: %w", err)
	}
	return n, nil
}
