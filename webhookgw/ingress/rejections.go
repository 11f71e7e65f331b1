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
	// recordInterval is the interval for recording rejected requests.
	recordInterval = 5 * time.Second
	// maxRejecting limits the connectors with unrecorded rejections. A project gets one of
	// projectShare parts. Further ones count as lost.
	maxRejecting = 512
)

// rejectionLog collects the requests that connectors rejected since the last record. A rejected
// request writes nothing. Every few seconds the counts of store.MaxRejected connectors are recorded
// together, round-robin over projects. Rejections that the store does not accept are lost and
// counted.
type rejectionLog struct {
	source interface {
		RecordRejections(ctx context.Context, rejected []store.Rejected) error
	}
	metrics *metrics.Gateway
	logger  *slog.Logger
	now     func() time.Time

	mutex sync.Mutex
	of    map[store.Key]*rejectingConnector
	// waiting has the connectors of each project, the longest-waiting first. turns has the projects
	// in round-robin order.
	waiting map[uuid.UUID][]store.Key
	turns   []uuid.UUID
}

// rejectingConnector has the rejected requests of one connector.
type rejectingConnector struct {
	counts  map[string]int64
	samples []store.RejectionSample // oldest first
	at      []time.Time             // the times of samples
}

func newRejectionLog(source Store, counted *metrics.Gateway, logger *slog.Logger, now func() time.Time) *rejectionLog {
	return &rejectionLog{source: source, metrics: counted, logger: logger, now: now, of: map[store.Key]*rejectingConnector{}, waiting: map[uuid.UUID][]store.Key{}}
}

// addRejection adds a request that a known connector rejected.
func (r *rejectionLog) addRejection(connector store.Key, sample store.RejectionSample) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at := r.of[connector]
	if at == nil {
		others := r.waiting[connector.ProjectID]
		if len(r.of) >= maxRejecting || len(others) >= maxRejecting/projectShare {
			r.metrics.RejectionsLost(1)
			return
		}
		at = &rejectingConnector{counts: map[string]int64{}}
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

// sampleOf returns the recorded data of a rejected request, without body, query and secrets.
func sampleOf(r *http.Request, p httpserver.Problem, proxies httpserver.Proxies) store.RejectionSample {
	s := store.RejectionSample{
		Code: string(p.Code), Detail: truncateText(p.Detail), Method: truncateText(r.Method), ContentType: truncateText(r.Header.Get("Content-Type")),
		UserAgent: truncateText(r.UserAgent()), Size: r.ContentLength,
	}
	if address := proxies.Client(r); address.IsValid() {
		s.RemoteAddr = address.String()
	}
	return s
}

// truncateText truncates a text in memory. The store truncates it to whole characters.
func truncateText(s string) string { return strings.Clone(s[:min(len(s), store.MaxRejectionText)]) }

// runLoop records rejections until ctx ends, and then once more.
func (r *rejectionLog) runLoop(ctx context.Context) {
	for pause.For(ctx, recordInterval) == nil {
		r.recordBatch(ctx)
	}
	r.recordBatch(context.WithoutCancel(ctx))
}

// recordBatch records the rejections of store.MaxRejected connectors.
func (r *rejectionLog) recordBatch(ctx context.Context) {
	rejected := r.takeBatch()
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
		r.logger.Warn("recording rejected requests", "lost", lost, "error", err)
	}
}

// takeBatch returns the rejections to record.
func (r *rejectionLog) takeBatch() (rejected []store.Rejected) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.now()
	for len(rejected) < store.MaxRejected && len(r.turns) > 0 {
		connector := r.nextConnector()
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

// nextConnector returns the longest-waiting connector of the next project in turn.
func (r *rejectionLog) nextConnector() store.Key {
	project := r.turns[0]
	waiting := r.waiting[project]
	first := waiting[0] // a copy, because Delete overwrites it
	if r.turns = slices.Delete(r.turns, 0, 1); len(waiting) > 1 {
		r.waiting[project], r.turns = slices.Delete(waiting, 0, 1), append(r.turns, project)
	} else {
		delete(r.waiting, project)
	}
	return first
}
