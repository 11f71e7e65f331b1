// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/agent"
	"github.com/agentplatform/agentplatform/store/agentrun"
	"github.com/agentplatform/agentplatform/store/audit"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/cluster"
	"github.com/agentplatform/agentplatform/store/connectorrun"
	"github.com/agentplatform/agentplatform/store/crontick"
	"github.com/agentplatform/agentplatform/store/delivery"
	"github.com/agentplatform/agentplatform/store/deployment"
	"github.com/agentplatform/agentplatform/store/exchangerate"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/load"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/platformkey"
	"github.com/agentplatform/agentplatform/store/pollrequest"
	"github.com/agentplatform/agentplatform/store/projection"
	"github.com/agentplatform/agentplatform/store/rejection"
	"github.com/agentplatform/agentplatform/store/replayjob"
	"github.com/agentplatform/agentplatform/store/retention"
	"github.com/agentplatform/agentplatform/store/searchindex"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/statistics"
	"github.com/agentplatform/agentplatform/store/sweep"
	"github.com/agentplatform/agentplatform/store/token"
	"github.com/agentplatform/agentplatform/store/trace"
)

// Engine has the parts of a store that differ between databases.
type Engine interface {
	sqldb.Engine
	retention.Engine
	searchindex.Engine
	openrun.Engine
	delivery.Engine
	// Among returns the condition, after an ID, that a column of IDs contains it.
	Among(column string) string
	// First returns the first of a column of IDs, as an index of the schema has it.
	First(column string) string
}

// Options are the parts of a Core.
type Options struct {
	Engine  Engine
	Dialect sqldb.Dialect
	// Publish sends the hints of a committed transaction.
	Publish func(hints []store.Hint)
	// AtOnce is the maximum number of history rows that one transaction deletes, because other
	// writers wait for it if there is only one writer. A row has at most 64 KiB, and an input
	// several times as much. Larger values are blobs.
	AtOnce int
	// Evaluate evaluates the concurrency keys of runs; nil if no runs are claimed that need it.
	Evaluate store.Evaluator
	// ListsAtOnce is the number of concurrent list statements. Searches use one less, so that they
	// do not block all other lists.
	ListsAtOnce int
}

// Core is a store without Accept, Subscribe and its own lifecycle.
type Core struct {
	*sqldb.DB
	*audit.Log
	*platformkey.Ledger
	*token.Registry
	*pollrequest.Inbox
	*exchangerate.Table
	*rejection.Register
	*blob.Archive
	*searchindex.Index
	*replayjob.Queue
	*cluster.Lease
	*deployment.Record
	*trace.Outbox
	*agentrun.Viewer
	*projection.Writer
	*crontick.Plan
	*openrun.Dispatcher
	*delivery.Courier
	*delivery.Sender
	*statistics.Counter
	*connectorrun.History
	*agent.Directory
	*load.Meter
	*idempotency.Memory
	*retention.Keeper

	engine   Engine
	evaluate store.Evaluator
	skipped  *sweep.Skipped
	// listsAtOnce is Options.ListsAtOnce.
	listsAtOnce int
}

// New returns a Core.
func New(o Options) *Core {
	skipped := &sweep.Skipped{}
	c := &Core{
		engine: o.Engine, evaluate: o.Evaluate, skipped: skipped,
		listsAtOnce: o.ListsAtOnce,
		Index:       searchindex.New(o.Engine, max(o.ListsAtOnce-1, 1)), Outbox: trace.New(), Counter: statistics.New(),
		Keeper: retention.New(o.Engine, o.AtOnce, skipped), Courier: delivery.New(o.Engine, skipped),
	}
	c.setDB(&sqldb.DB{Engine: o.Engine, Dialect: o.Dialect, Publish: o.Publish})
	return c
}

// setDB gives all concerns a database. A concern follows the concerns that it uses, which are new too.
func (c *Core) setDB(db *sqldb.DB) {
	c.DB = db
	c.Log = audit.New(db)
	c.Ledger = platformkey.New(db)
	c.Registry = token.New(db)
	c.Inbox = pollrequest.New(db)
	c.Table = exchangerate.New(db)
	c.Register = rejection.New(db)
	c.Archive = blob.New(db)
	c.Index = c.Index.With(db)
	c.Queue = replayjob.New(db)
	c.Lease = cluster.New(db)
	c.Dispatcher = openrun.New(db, openrun.Options{
		Engine: c.engine, Archive: c.Archive, Skipped: c.skipped, Evaluate: c.evaluate,
	})
	c.Writer = projection.New(db, c.Dispatcher.CancelOpen)
	c.Plan = crontick.New(db)
	c.Memory = idempotency.New(db)
	c.Courier = c.Courier.With(db, c.Archive)
	c.Record = deployment.New(db, c.Writer.ClaimWithin)
	c.Outbox = c.Outbox.With(db)
	c.Viewer = agentrun.New(db, c.Archive, c.engine.Among, c.Index.SearchRuns)
	c.Sender = delivery.NewSender(db, c.Courier, c.Dispatcher, c.Viewer)
	c.Counter = c.Counter.With(db)
	c.History = connectorrun.New(db, c.engine.First)
	c.Directory = agent.New(db)
	c.Meter = load.New(db)
	c.Keeper = c.Keeper.With(db, c.Archive)
}

// ForCluster implements store.Clusters.
func (c *Core) ForCluster(clusterUID string) store.Control {
	of := *c
	of.setDB(c.DB.ForCluster(clusterUID))
	return &of
}

// ListsAtOnce implements store.Store.
func (c *Core) ListsAtOnce() int { return c.listsAtOnce }
