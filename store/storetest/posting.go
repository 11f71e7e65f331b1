// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// endWithOther ends n runs of the world's project, and then one run of another project with its own connector.
func (w *world) endWithOther(n int) (c store.Connector, others *world) {
	others = newWorld(w.t, Opened{Store: w.s, DB: w.db})
	for _, of := range []*world{w, others} {
		of.deploy("one", "first")
		c = of.outboundTo("results", automatic)
		of.endEvents(n)
		n = 1
	}
	return c, others
}

// postEach creates the deliveries of ended runs, one at a time, and returns the number of failures.
func (w *world) postEach() (failed int) {
	for n := 1; n > 0; {
		var err error
		if n, err = w.s.PostDeliveries(w.ctx, 1); err != nil {
			failed++
		}
	}
	return failed
}

// postingPromises are about the order of projects.
var postingPromises = []promise{
	{"a project with many rows to post delays no other", func(w *world) {
		c, others := w.endWithOther(20)
		w.NoError(errorOf(w.s.PostDeliveries(w.ctx, 8)))
		w.Len(others.deliveriesOf(c), 1)
		others.endEvents(3)
		for range 2 {
			w.NoError(errorOf(w.s.PostDeliveries(w.ctx, 1)))
		}
		w.Len(others.deliveriesOf(c), 2, "one of each")
		n := 5 // posted before
		for more := 1; more > 0; n += more {
			more = w.postDeliveries()
		}
		w.Equal(20+2, n)
	}},
	{"a row that cannot be posted is set aside for longer each time", func(w *world) {
		c, others := w.endWithOther(2)
		w.updateRows(`UPDATE links SET outbound = '{'`)
		n, err := w.s.PostDeliveries(w.ctx, 100)
		var aside *store.SetAsideError
		w.ErrorAs(err, &aside)
		w.Len(aside.Rows, 2)
		w.Equal(3, n, "all of them would have been")
		w.EqualValues(2, w.readFigures().OutboxAside)
		w.Len(others.deliveriesOf(c), 1, "the failing row is another one")
		w.Zero(w.postDeliveries(), "two are set aside")
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		wait := func() time.Duration {
			in, waits := w.nextDelivery(store.DeliveryClaim{})
			w.True(waits)
			return in
		}
		first := wait()
		w.Greater(first, 5*time.Second)
		w.updateRows(`UPDATE outbox SET posted_at = 1`)
		w.Equal(2, w.postEach(), "each individually")
		w.Greater(wait(), first+5*time.Second)
		w.updateRows(`UPDATE outbox SET posted_at = 1`)
		w.updateRows(`UPDATE links SET outbound = '{"mode":"automatic"}'`)
		w.Equal(2, w.postDeliveries())
		w.Len(w.takeDue(10, 10), 2)
	}},
	{"a project with many connectors gets its share of a claim", withAgent(func(w *world) {
		for i := range 20 {
			w.outboundTo(fmt.Sprint("to ", i), automatic)
		}
		w.endEvents(2)
		others := newWorld(w.t, Opened{Store: w.s, DB: w.db})
		others.deploy("one", "first")
		others.outboundTo("results", automatic)
		others.endEvents(10)
		w.postDeliveries()
		taken := map[uuid.UUID]int{}
		for _, d := range w.takeDue(20, 100) {
			taken[d.ProjectID]++
		}
		w.Equal(map[uuid.UUID]int{w.project.ID: 10, others.project.ID: 10}, taken)
	})},
	{"a claim respects the limit per connector", withAgent(func(w *world) {
		few, many := w.outboundTo("few", automatic), w.outboundTo("many", automatic)
		w.endEvents(5)
		w.postDeliveries()
		claim := store.DeliveryClaim{
			Limit: 100, PerConnector: 100, Lease: lease, PerProject: 100, UnderWay: map[uuid.UUID]int{}, OfConnector: map[store.Key]int{},
			Most: map[store.Key]int{few.Key(): 2},
		}
		take := func() map[uuid.UUID]int {
			claimed := w.claimDeliveries(claim)
			of := map[uuid.UUID]int{}
			for _, d := range claimed {
				claim.UnderWay[w.project.ID]++
				claim.OfConnector[d.Delivery.Connector()]++
				of[d.ConnectorID]++
			}
			return of
		}
		w.Equal(map[uuid.UUID]int{few.ID: 2, many.ID: 5}, take())
		claim.Most[few.Key()] = 0
		w.Empty(take())
		in, _ := w.nextDelivery(claim)
		w.Positive(in, "and it is not due at once again")
		claim.Most = nil
		w.Equal(map[uuid.UUID]int{few.ID: 3}, take())
	})},
	{"skipped deliveries of many disabled connectors do not delay sent ones", withAgent(func(w *world) {
		for i := range 10 {
			w.outboundTo(fmt.Sprint("to ", i), automatic)
		}
		w.endEvents(1)
		w.postDeliveries()
		w.updateRows(`UPDATE connectors SET enabled = FALSE`)
		due := time.Now().UnixMicro()
		w.updateRows(fmt.Sprintf(`UPDATE destinations SET due_at = %d`, due))
		w.Empty(w.takeDue(10, 10))
		w.EqualValues(4, w.queryCount(`SELECT count(*) FROM destinations WHERE project_id = $1 AND due_at IS NULL`), "one claim ends some of them")
		w.GreaterOrEqual(w.queryCount(`SELECT min(due_at) FROM destinations WHERE project_id = $1`), due+time.Second.Microseconds())
	})},
	{"a general failure sets no row aside", func(w *world) {
		w.endWithOther(3)
		rename := func(from, to string) {
			w.execStatement(`ALTER TABLE ` + from + ` RENAME TO ` + to)
		}
		for _, table := range []string{"deliveries", "destinations"} {
			for _, limit := range []int{100, 1} {
				rename(table, "elsewhere")
				_, err := w.s.PostDeliveries(w.ctx, limit)
				w.Error(err)
				var aside *store.SetAsideError
				w.NotErrorAs(err, &aside)
				rename("elsewhere", table)
			}
		}
		n := 0
		for more := 1; more > 0; n += more {
			more = w.postDeliveries()
		}
		w.Equal(4, n)
	}},
}
