// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"log"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw/housekeeping"
)

// These flags set the load at scale. hack/bench.sh passes them on.
var (
	scaleTime = flag.Duration("scale.time", 10*time.Minute, "how long BenchmarkScale keeps a platform busy")
	scaleSide = flag.Duration("scale.side", 20*time.Second, "how long they arrive while nothing is dropped, and at least while a day is")
	scaleRate = flag.Int("scale.rate", 200, "webhooks a second while a day is dropped")
	scaleDrop = flag.Duration("scale.drop", 6*time.Minute, "maximum time for the webhooks; some partitions may still be left")
)

const (
	// scalePace is the minimum throughput at scale, as a fraction of the throughput without history.
	scalePace = 0.85
	// scaleCallers send the webhooks.
	scaleCallers = 20
	// dropParts is the number of partitions or rows that a call drops, as in a gateway.
	dropParts = 500
	// behindAim is the maximum lag of an outbox consumer in seconds.
	behindAim = 2
)

// dropAims limits the ratio of webhook response times while a partition is dropped to the times without a drop.
var dropAims = map[string]float64{"postgres": 1.5, "sqlite": 3}

// rates measures the rates of accepted webhooks and of executed runs for a new project, with and without a platform's history,
// in alternating rounds.
func (p *population) rates(b *testing.B) {
	alternate(b, func() (figures []Figure) {
		b.Run("round", func(b *testing.B) { // closes the round's resources at its end
			empty := databases[p.name](b)
			figures = []Figure{
				Rate("scale/"+p.name+"/accepted", "requests/s", paceOfWebhooks(b, p.database), paceOfWebhooks(b, empty), scalePace),
				Rate("scale/"+p.name+"/executed", "runs/s", paceBeside(b, p.database, *executedRuns, func(scene) {}).rate,
					paceBeside(b, empty, *executedRuns, func(scene) {}).rate, scalePace),
			}
		})
		require.NotEmpty(b, figures, "the round has said why")
		return figures
	})
}

// paceOfWebhooks returns the number of accepted webhooks per second.
func paceOfWebhooks(b *testing.B, db *database) (rate float64) {
	b.Helper()
	b.Run("webhooks", func(b *testing.B) { // its gateway ends with it
		scene := storebench.NewScene(b, db.store, 1)
		_, rate = post(b, postgresClients, gateway(b, db.store).PublicAddr(), pathOf(scene, scene.Connector))
	})
	return rate
}

// drop measures the 99th percentile of webhook response times at a steady rate while the oldest partition is dropped. The
// yardstick is the same load without a drop.
func (p *population) drop(b *testing.B) {
	silence(b)
	scene := storebench.NewScene(b, p.store, 1)
	addr := gateway(b, p.store).PublicAddr()
	arrive := func(over func() bool) []time.Duration { return arriving(b, addr, pathOf(scene, scene.Connector), over) }
	arrive(after(*scaleSide / 4)) // warm
	without := arrive(after(*scaleSide))
	least, dropped := after(*scaleSide), make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(dropped)
		left, all := p.dropOldest(b)
		b.Logf("%s has dropped %d of a day of %d runs in %v, with all that belongs to it: %t", // which is not silenced
			p.name, int64(p.oldestRuns)-left, p.oldestRuns, time.Since(begun).Round(time.Millisecond), all)
	}()
	with := arrive(func() bool {
		select {
		case <-dropped:
			return least()
		default:
			return false
		}
	})
	print(b, Cost("scale/"+p.name+"/drop/p99", "ms", p99(with), p99(without), dropAims[p.name]),
		Cost("scale/"+p.name+"/drop/p50", "ms", Percentile(with, 0.5), Percentile(without, 0.5), 0),
		Cost("scale/"+p.name+"/drop/longest", "ms", Percentile(with, 1), Percentile(without, 1), 0))
}

// dropOldest drops the first partition as a gateway does. It returns the number of runs that are left in the partition, and
// whether nothing is left to drop.
func (p *population) dropOldest(tb testing.TB) (left int64, all bool) {
	age := time.Since(p.oldest.AddDate(0, 0, 1)) - time.Hour
	if age < 0 {
		assert.Fail(tb, "the first day is not over")
		return 0, false
	}
	over := after(*scaleDrop)
	for !all && !over() {
		begun := time.Now()
		dropped, err := p.store.DropHistory(context.Background(), age, dropParts)
		if !assert.NoError(tb, err) {
			break
		}
		all = dropped.Count == 0
		<-time.After(housekeeping.Rest(time.Since(begun), dropped.Freed, 0))
	}
	left, err := p.count(context.Background(), `SELECT count(*) FROM ended_runs WHERE id < '`+idOf(p.oldest.AddDate(0, 0, 1))+`'`)
	assert.NoError(tb, err)
	return left, all
}

// after returns a function that reports whether d has passed.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// arriving sends webhooks at a steady rate until it is over, and returns how long each took from
// when it was due.
func arriving(b *testing.B, addr, path string, over func() bool) (took []time.Duration) {
	b.Helper()
	var (
		group sync.WaitGroup
		mutex sync.Mutex
	)
	begin, gap := time.Now(), time.Second*scaleCallers/time.Duration(*scaleRate)
	for i := range scaleCallers {
		c := dial(b, addr, path)
		group.Go(func() {
			for due := begin.Add(gap * time.Duration(i) / scaleCallers); !over(); due = due.Add(gap) {
				<-time.After(time.Until(due))
				err := c.call()
				mutex.Lock()
				took = append(took, time.Since(due))
				mutex.Unlock()
				if !assert.NoError(b, err) {
					return
				}
			}
		})
	}
	group.Wait()
	return took
}

// outbox measures the lag of the outbox consumers in seconds after the maximum load.
func (p *population) outbox(b *testing.B) {
	silence(b)
	scene := storebench.NewScene(b, p.store, 1)
	hook := greeter(b, p.store, scene)
	gw := gateway(b, p.store)
	runnerOf(b, gw, tokenOf(scene.Project), executedSlots)
	var (
		group    sync.WaitGroup
		answered atomic.Int64
		worst    time.Duration
	)
	over := after(*scaleTime)
	for range postgresClients {
		c := dial(b, gw.PublicAddr(), pathOf(scene, hook))
		group.Go(func() {
			for !over() && assert.NoError(b, c.call()) {
				answered.Add(1)
			}
		})
	}
	behind := func() float64 {
		figures, err := p.store.QueueFigures(b.Context())
		require.NoError(b, err)
		age := slices.Max(slices.Collect(maps.Values(figures.OutboxAges)))
		worst = max(worst, age)
		return age.Seconds()
	}
	for !over() {
		<-time.After(time.Second)
		behind()
	}
	last := behind()
	group.Wait()
	log.Printf("bench: %s has answered %d sync webhooks in %v", p.name, answered.Load(), *scaleTime)
	print(b, Cost("scale/"+p.name+"/outbox/behind", "s", last, 1, behindAim), Cost("scale/"+p.name+"/outbox/behind at most", "s", worst.Seconds(), 1, 0))
}
