// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// beside lets so many runs of the world's project end, and then one of another project, which
// has a connector of its own.
func (w *world) beside(n int) (c store.Connector, others *world) {
	others = newWorld(w.t, Opened{Store: w.s, DB: w.db})
	for _, of := range []*world{w, others} {
		of.deploy("one", "first")
		c = of.outboundTo("results", automatic)
		of.ended(n)
		n = 1
	}
	return c, others
}

// postEach makes deliveries of what has ended, of one after the other, and returns how many
// times that has failed.
func (w *world) postEach() (failed int) {
	for n := 1; n > 0; {
		var err error
		if n, err = w.s.PostDeliveries(w.ctx, 1); err != nil {
			failed++
		}
	}
	return failed
}

// postingPromises are what the turns of those keep whose ended runs are to be posted.
var postingPromises = []promise{
	{"a project with much to be posted keeps no other waiting", func(w *world) {
		c, others := w.beside(20)
		_, err := w.s.PostDeliveries(w.ctx, 8)
		w.NoError(err)
		w.Len(others.deliveriesOf(c), 1)
		others.ended(3)
		for range 2 {
			_, err := w.s.PostDeliveries(w.ctx, 1)
			w.NoError(err)
		}
		w.Len(others.deliveriesOf(c), 2, "one of each")
		n := 5 // were posted before
		for more := 1; more > 0; n += more {
			more = w.post()
		}
		w.Equal(20+2, n)
	}},
	{"what cannot be posted is set aside, the longer the more often, and keeps nothing else waiting", func(w *world) {
		c, others := w.beside(2)
		w.set(`UPDATE links SET outbound = '{'`)
		n, err := w.s.PostDeliveries(w.ctx, 100)
		w.Error(err)
		w.Equal(3, n, "all of them would have been")
		w.Len(others.deliveriesOf(c), 1, "which is not at fault")
		w.Zero(w.post(), "two are set aside")
		w.record(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		wait := func() time.Duration {
			in, waits, err := w.s.NextDelivery(w.ctx, nil)
			w.NoError(err)
			w.True(waits)
			return in
		}
		first := wait()
		w.Greater(first, 5*time.Second)
		w.set(`UPDATE outbox SET posted_at = 1`)
		w.Equal(2, w.postEach())
		w.Greater(wait(), first+5*time.Second)
		w.set(`UPDATE outbox SET posted_at = 1`)
		w.set(`UPDATE links SET outbound = '{"mode":"automatic"}'`)
		w.Equal(2, w.post())
		w.Len(w.takeDue(10, 10), 2)
	}},
}
