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

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// tellRejections is how often what was refused is recorded.
	tellRejections = 5 * time.Second
	// maxRejecting is of how many connectors refusals are kept until then. Those of
	// others are counted as lost.
	maxRejecting = 512
)

// rejections are what connectors refused since it was recorded last. A refused request writes
// nothing: the numbers of all are recorded together every few seconds, those of store.MaxRejected
// connectors at a time. What the store does not take is lost, and counted.
type rejections struct {
	source interface {
		RecordRejections(ctx context.Context, rejected []store.Rejected) error
	}
	metrics *metrics.Gateway
	logger  *slog.Logger
	now     func() time.Time

	mutex sync.Mutex
	of    map[store.Key]*rejecting
	order []store.Key // of of: who waits longest is first
}

// rejecting is what a connector refused.
type rejecting struct {
	counts  map[string]int64
	samples []store.RejectionSample // oldest first
	at      []time.Time             // of samples
}

func newRejections(source Store, counted *metrics.Gateway, logger *slog.Logger, now func() time.Time) *rejections {
	return &rejections{source: source, metrics: counted, logger: logger, now: now, of: map[store.Key]*rejecting{}}
}

// add notes a request that a known connector refused.
func (r *rejections) add(connector store.Key, sample store.RejectionSample) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at := r.of[connector]
	if at == nil {
		if len(r.of) >= maxRejecting {
			r.metrics.RejectionsLost(1)
			return
		}
		at = &rejecting{counts: map[string]int64{}}
		r.of[connector] = at
		r.order = append(r.order, connector)
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

// tell records what store.MaxRejected connectors refused, of which that of others waits longer.
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
	now, n := r.now(), min(len(r.order), store.MaxRejected)
	for _, connector := range r.order[:n] {
		at := r.of[connector]
		delete(r.of, connector)
		for i := range at.samples {
			at.samples[i].Ago = now.Sub(at.at[i])
		}
		slices.Reverse(at.samples)
		rejected = append(rejected, store.Rejected{Connector: connector, Counts: at.counts, Samples: at.samples})
	}
	r.order = slices.Delete(r.order, 0, n)
	return rejected
}
