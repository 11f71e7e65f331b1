// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// tellRejections is how often what was refused is recorded.
	tellRejections = 5 * time.Second
	// maxRejecting is of how many connectors refusals are kept until then, of which a
	// project has one part in projectShare. Those of others are counted as lost.
	maxRejecting = 512
)

// rejections are what connectors refused since it was recorded last. A refused request writes
// nothing: the numbers of all are recorded together every few seconds, those of store.MaxRejected
// connectors at a time, for which projects take turns. What the store does not take is lost, and
// counted.
type rejections struct {
	source interface {
		RecordRejections(ctx context.Context, rejected []store.Rejected) error
	}
	metrics *metrics.Gateway
	logger  *slog.Logger
	now     func() time.Time

	mutex sync.Mutex
	of    map[store.Key]*rejecting
	// waiting are the connectors of of, by project: who waits longest is first. turns are
	// their projects: whose turn it is is first.
	waiting map[uuid.UUID][]store.Key
	turns   []uuid.UUID
}

// rejecting is what a connector refused.
type rejecting struct {
	counts  map[string]int64
	samples []store.RejectionSample // oldest first
	at      []time.Time             // of samples
}

func newRejections(source Store, counted *metrics.Gateway, logger *slog.Logger, now func() time.Time) *rejections {
	return &rejections{source: source, metrics: counted, logger: logger, now: now, of: map[store.Key]*rejecting{}, waiting: map[uuid.UUID][]store.Key{}}
}

// add notes a request that a known connector refused.
func (r *rejections) add(connector store.Key, sample store.RejectionSample) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at := r.of[connector]
	if at == nil {
		others := r.waiting[connector.ProjectID]
		if len(r.of) >= maxRejecting || len(others) >= maxRejecting/projectShare {
			r.metrics.RejectionsLost(1)
			return
		}
		at = &rejecting{counts: map[string]int64{}}
		r.of[connector] = at
		if r.waiting[connector.ProjectID] = append(others, connector); len(others) == 0 {
			r.turns = append(r.turns, connector.ProjectID)
		}
	}
	at.counts[sample.Code]++
	if len(at.samples) == store.MaxRejectionSamples {
		at.samples, at.at = slices.Delete(at.samples, 0, 1), slices.Delete(at.at, 0, 1)
	}
	at.samples, at.at = append(at.samples, sample), append(at.at, r.now())
}

// sampleOf is what is kept of a refused request: nothing of its body, its query and its secrets.
func sampleOf(r *http.Request, p httpserver.Problem, proxies httpserver.Proxies) store.RejectionSample {
	s := store.RejectionSample{
		Code: string(p.Code), Detail: short(p.Detail), Method: short(r.Method), ContentType: short(r.Header.Get("Content-Type")),
		UserAgent: short(r.UserAgent()), Size: r.ContentLength,
	}
	if address := proxies.Client(r); address.IsValid() {
		s.RemoteAddr = address.String()
	}
	return s
}

// short cuts a text that is kept in memory; the store cuts it at a whole character.
func short(s string) string { return strings.Clone(s[:min(len(s), store.MaxRejectionText)]) }

// run records what was refused until ctx ends, and then what is left once more.
func (r *rejections) run(ctx context.Context) {
	for pause.For(ctx, tellRejections) == nil {
		r.tell(ctx)
	}
	r.tell(context.WithoutCancel(ctx))
}

// tell records what store.MaxRejected connectors refused.
func (r *rejections) tell(ctx context.Context) {
	rejected := r.take()
	if len(rejected) == 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := r.source.RecordRejections(within, rejected); err != nil {
		lost := 0
		for _, of := range rejected {
			for _, n := range of.Counts {
				lost += int(n)
			}
		}
		r.metrics.RejectionsLost(lost)
		r.logger.Warn("recording what connectors refused", "lost", lost, "error", err)
	}
}

// take returns what is to be recorded.
func (r *rejections) take() (rejected []store.Rejected) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.now()
	for len(rejected) < store.MaxRejected && len(r.turns) > 0 {
		connector := r.next()
		at := r.of[connector]
		delete(r.of, connector)
		for i := range at.samples {
			at.samples[i].Ago = now.Sub(at.at[i])
		}
		slices.Reverse(at.samples)
		rejected = append(rejected, store.Rejected{Connector: connector, Counts: at.counts, Samples: at.samples})
	}
	return rejected
}

// next takes the connector that waits longest of the project whose turn it is. The next
// turn is another project's, where one waits.
func (r *rejections) next() store.Key {
	project := r.turns[0]
	waiting := r.waiting[project]
	first := waiting[0] // which Delete overwrites
	if r.turns = slices.Delete(r.turns, 0, 1); len(waiting) > 1 {
		r.waiting[project], r.turns = slices.Delete(waiting, 0, 1), append(r.turns, project)
	} else {
		delete(r.waiting, project)
	}
	return first
}
