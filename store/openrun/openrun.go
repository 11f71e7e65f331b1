// SPDX-License-Identifier: Apache-2.0

// Package openrun claims, continues, ends and expires open runs.
package openrun

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/sweep"
)

// Engine has the parts of open runs that differ between databases.
type Engine interface {
	// Attend records runners as present.
	Attend(ctx context.Context, q sqldb.Queryer, runners []store.RunnerKey) error
	// End does the work of EndRuns without concurrency slots and blob marks, in one statement if
	// possible. Unless keyed is set, runs with a concurrency key do not end.
	End(ctx context.Context, q sqldb.Queryer, endings []Ending, keyed bool) ([]EndedRun, error)
	// Append appends consecutive entries to the journals of different runs under current claims, with the cost of their model
	// calls, in one statement if possible. It returns the runs to which it has appended: not those whose claim is not current,
	// or whose entries do not continue the journal or make it too large.
	Append(ctx context.Context, q sqldb.Queryer, appends []Append) (appended []store.Key, err error)
	// Renew renews claims and revives swept ones. It returns the renewed ones.
	Renew(ctx context.Context, q sqldb.Queryer, environment store.Key, held []store.Held, lease time.Duration) ([]store.Lease, error)
	// Look reads the data for the decision of a claim. Start carries out the decision.
	Look(ctx context.Context, c store.Claim) (Look, error)
	Start(ctx context.Context, c store.Claim, s Start) (started []store.Claimed, current bool, err error)
}

// Store claims, continues and ends open runs.
type Store struct {
	db     *sqldb.DB
	engine Engine
	blobs  *blob.Store
	// Each sweep skips the runs that failed alone in it.
	lost, late, orphans, expired sweep.Skipped
	evaluate                     store.Evaluator
}

// New returns a Store. evaluate evaluates the concurrency keys of runs; nil if no runs are claimed that
// need it.
func New(db *sqldb.DB, engine Engine, blobs *blob.Store, evaluate store.Evaluator) *Store {
	return &Store{db: db, engine: engine, blobs: blobs, evaluate: evaluate}
}
