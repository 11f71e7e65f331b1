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

// Courier creates, claims and ends deliveries.
type Courier struct {
	db      *sqldb.DB
	engine  Engine
	archive *blob.Archive
	skipped *sweep.Skipped
	// turns are the turns of PostDeliveries.
	turns    *outbox.Cursor
	expiring *expiryCursor
}

// New returns a Courier without a database. skipped are the rows that failed alone.
func New(engine Engine, skipped *sweep.Skipped) *Courier {
	return &Courier{engine: engine, skipped: skipped, turns: outbox.NewCursor(), expiring: &expiryCursor{}}
}

// With returns the Courier for a database. It shares the turns and what it has skipped.
func (c *Courier) With(db *sqldb.DB, archive *blob.Archive) *Courier {
	of := *c
	of.db, of.archive = db, archive
	return &of
}

// Sender creates deliveries on request: payloads of runs, repeated deliveries and tests.
type Sender struct {
	db         *sqldb.DB
	courier    *Courier
	dispatcher *openrun.Dispatcher
	viewer     *agentrun.Viewer
}

// NewSender returns a Sender.
func NewSender(db *sqldb.DB, courier *Courier, dispatcher *openrun.Dispatcher, viewer *agentrun.Viewer) *Sender {
	return &Sender{db: db, courier: courier, dispatcher: dispatcher, viewer: viewer}
}
