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

// The stores of the concerns, named as fields of Core.
type (
	agentStore        = agent.Store
	agentrunStore     = agentrun.Store
	auditStore        = audit.Store
	blobStore         = blob.Store
	clusterStore      = cluster.Store
	connectorrunStore = connectorrun.Store
	crontickStore     = crontick.Store
	deliveryStore     = delivery.Store
	deploymentStore   = deployment.Store
	exchangerateStore = exchangerate.Store
	idempotencyStore  = idempotency.Store
	loadStore         = load.Store
	openrunStore      = openrun.Store
	platformkeyStore  = platformkey.Store
	pollrequestStore  = pollrequest.Store
	projectionStore   = projection.Store
	rejectionStore    = rejection.Store
	replayjobStore    = replayjob.Store
	retentionStore    = retention.Store
	searchindexStore  = searchindex.Store
	statisticsStore   = statistics.Store
	tokenStore        = token.Store
	traceStore        = trace.Store
)

// Core is a store without Accept, Subscribe and its own lifecycle.
type Core struct {
	*sqldb.DB
	*agentStore
	*agentrunStore
	*auditStore
	*blobStore
	*clusterStore
	*connectorrunStore
	*crontickStore
	*deliveryStore
	*deploymentStore
	*exchangerateStore
	*idempotencyStore
	*loadStore
	*openrunStore
	*platformkeyStore
	*pollrequestStore
	*projectionStore
	*rejectionStore
	*replayjobStore
	*retentionStore
	*searchindexStore
	*statisticsStore
	*tokenStore
	*traceStore
	options Options
}

// New returns a Core.
func New(o Options) *Core {
	return newCore(o, &sqldb.DB{Engine: o.Engine, Dialect: o.Dialect, Publish: o.Publish})
}

func newCore(o Options, db *sqldb.DB) *Core {
	blobs := blob.New(db)
	openRuns := openrun.New(db, o.Engine, blobs, o.Evaluate)
	projections := projection.New(db, openRuns.CancelOpen)
	index := searchindex.New(db, o.Engine, max(o.ListsAtOnce-1, 1))
	agentRuns := agentrun.New(db, blobs, index.SearchRuns)
	return &Core{
		DB: db, options: o,
		agentStore:        agent.New(db),
		agentrunStore:     agentRuns,
		auditStore:        audit.New(db),
		blobStore:         blobs,
		clusterStore:      cluster.New(db),
		connectorrunStore: connectorrun.New(db),
		crontickStore:     crontick.New(db),
		deliveryStore:     delivery.New(db, o.Engine, blobs, openRuns, agentRuns),
		deploymentStore:   deployment.New(db, projections.ClaimIDInTx),
		exchangerateStore: exchangerate.New(db),
		idempotencyStore:  idempotency.New(db),
		loadStore:         load.New(db),
		openrunStore:      openRuns,
		platformkeyStore:  platformkey.New(db),
		pollrequestStore:  pollrequest.New(db),
		projectionStore:   projections,
		rejectionStore:    rejection.New(db),
		replayjobStore:    replayjob.New(db),
		retentionStore:    retention.New(db, o.Engine, blobs, o.AtOnce),
		searchindexStore:  index,
		statisticsStore:   statistics.New(db),
		tokenStore:        token.New(db),
		traceStore:        trace.New(db),
	}
}

// ForCluster implements store.Clusters. The methods of a Control use no state, such as turns, so its Core shares none.
func (c *Core) ForCluster(clusterUID string) store.Control {
	return newCore(c.options, c.DB.ForCluster(clusterUID))
}

// ListsAtOnce implements store.Store.
func (c *Core) ListsAtOnce() int { return c.options.ListsAtOnce }

// FollowRun implements store.Notifier.
func (c *Core) FollowRun(run store.Key) {
	c.Publish([]store.Hint{{Topic: store.TopicFollow, Key: run}})
}
