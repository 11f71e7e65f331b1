// SPDX-License-Identifier: Apache-2.0

// Package delivery sends results and payloads of runs to the receivers of outbound connectors.
package delivery

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/agentrun"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// Engine has the parts of deliveries that differ between databases.
type Engine interface {
	// TakeDue begins attempts of due deliveries, for each destination up to its share, oldest
	// first.
	TakeDue(ctx context.Context, q sqldb.Queryer, shares []Share, lease time.Duration) ([]store.Delivery, error)
	// Receive moves successful deliveries to history, with the attempt of each, and returns their
	// keys. It skips deliveries whose claims are not current.
	Receive(ctx context.Context, q sqldb.Queryer, receipts []Receipt) ([]store.Key, error)
}

// Store creates, claims and ends deliveries: of results, and on request payloads of runs, repeated
// deliveries and tests.
type Store struct {
	db       *sqldb.DB
	engine   Engine
	blobs    *blob.Store
	openRuns *openrun.Store
	runs     *agentrun.Store
	// turns are the turns of PostDeliveries.
	turns    *outbox.Cursor
	expiring *expiryCursor
	// The destinations and the deliveries that failed alone, by operation.
	claims, lost, closed, expired sweep.Skipped
}

// New returns a Store.
func New(db *sqldb.DB, engine Engine, blobs *blob.Store, openRuns *openrun.Store, runs *agentrun.Store) *Store {
	return &Store{
		db: db, engine: engine, blobs: blobs, openRuns: openRuns, runs: runs, turns: outbox.NewCursor(), expiring: &expiryCursor{},
	}
}
