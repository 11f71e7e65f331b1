// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// hangTimeout only catches hangs.
const hangTimeout = 2 * time.Minute

// hangingCollectors returns projects with a collector each. The collectors receive a request and do not respond.
func hangingCollectors(t *testing.T, n int) (due []store.DueTraces, arrived <-chan struct{}) {
	t.Helper()
	requests, release := make(chan struct{}, n*4), make(chan struct{})
	for range n {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			requests <- struct{}{}
			<-release
		}))
		t.Cleanup(server.Close)
		due = append(due, dueAt(server.URL, false, uuid.New()))
	}
	t.Cleanup(func() { close(release) })
	return due, requests
}

// countBusy returns the number of projects that use a slot.
func (e *Exporter) countBusy(kind slot) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slots.countProjects(kind, anyProject)
}

// Slow collectors give their slots to others: few continue in slow slots, and the others wait for one of these.
func TestExporter_KeepsProjectsApart(t *testing.T) {
	t.Parallel()
	slow, arrived := hangingCollectors(t, fastSlots)
	url, requests := newCollector(t, http.StatusOK)
	f, timers := &fakeStore{due: slow}, &timers{}
	e, _ := newExporter(f, nil)
	e.opts.AfterFunc = timers.AfterFunc
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.exportDue(ctx))
	for range slow {
		<-arrived
	}
	require.NoError(t, e.exportDue(ctx))
	require.Empty(t, f.lastClaim().Without, "all fast slots are taken: there is no second claim")
	timers.fireAll()
	require.Eventually(t, func() bool { return e.countBusy(fastSlot) == 0 }, hangTimeout, time.Millisecond)
	require.Equal(t, slowSlots, e.countBusy(slowSlot))
	f.addDue(append(slow, dueAt(url, false, newRuns(3)...))...)
	require.NoError(t, e.exportDue(ctx))
	require.Len(t, (<-requests).spans[0].ScopeSpans[0].Spans, 12, "the other project is not delayed")
	require.Len(t, f.lastClaim().Without, len(slow))
	require.Eventually(t, func() bool { return e.countBusy(fastSlot) == 0 }, hangTimeout, time.Millisecond)
	require.Len(t, f.delays, len(slow)-slowSlots)
	for run, wait := range f.delays {
		require.Zero(t, wait, "run %s: a slow collector has not failed", run)
	}
	cancel()
	e.active.Wait()
}

// A batch of runs costs two reads and one request.
func TestExporter_SendsRunsTogether(t *testing.T) {
	t.Parallel()
	url, requests := newCollector(t, http.StatusOK)
	f := &fakeStore{due: []store.DueTraces{dueAt(url, false, newRuns(batch)...)}}
	e, _ := newExporter(f, nil)
	exportAll(t, e)
	require.Len(t, f.ended, batch)
	require.Equal(t, 2, f.reads)
	require.Len(t, (<-requests).spans[0].ScopeSpans[0].Spans, 4*batch)
	require.Empty(t, requests)
}

// Large journals whose contents are omitted go in several requests, so a failed one does not cost reading the whole batch again.
func TestExporter_LimitsSizeOfRead(t *testing.T) {
	t.Parallel()
	url, requests := newCollector(t, http.StatusOK)
	f := &fakeStore{due: []store.DueTraces{dueAt(url, false, newRuns(7)...)}, toolText: strings.Repeat("x", maxRead/3)}
	e, _ := newExporter(f, nil)
	exportAll(t, e)
	require.Len(t, f.ended, 7)
	for _, runs := range []int{3, 3, 1} {
		require.Len(t, (<-requests).spans[0].ScopeSpans[0].Spans, 4*runs)
	}
	require.Empty(t, requests)
}

// A project with more runs than a batch does not wait for the next look.
func TestExporter_ContinuesAfterFullBatch(t *testing.T) {
	t.Parallel()
	url, _ := newCollector(t, http.StatusOK)
	f := &fakeStore{due: []store.DueTraces{dueAt(url, false, newRuns(5*batch+1)...)}}
	e, _ := newExporter(f, nil)
	e.interval = 24 * time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	require.Eventually(t, func() bool { return len(f.endedRuns()) == 5*batch+1 }, hangTimeout, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

// If the database is slow, the runs that were read in time are sent. A run whose journal cannot be read in time delays no other.
func TestExporter_SendsWithSlowStore(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		unreadable int // the run whose journal is slow
		ended      int
		counts     map[string]float64
	}{
		"after a run": {1, 1, map[string]float64{"dropped": 0, "exported": 1, "failed": 2}},
		"at once":     {0, 0, map[string]float64{"dropped": 0, "exported": 0, "failed": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := newCollector(t, http.StatusOK)
			runs := sortedIDs(newRuns(3))
			f := &fakeStore{due: []store.DueTraces{dueAt(url, false, runs...)}}
			registry := prometheus.NewRegistry()
			e, _ := newExporter(f, registry)
			var expire context.CancelFunc
			e.opts.WithTimeout = func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				if after == readTime {
					expire = cancel
				}
				return ctx, cancel
			}
			seen := 0
			f.readEntry = func(ctx context.Context, run uuid.UUID) error {
				if run == runs[row.unreadable] {
					seen++
				}
				if seen > 1 { // its first entry shows that the run before is complete
					expire()
				}
				return ctx.Err()
			}
			exportAll(t, e)
			require.Equal(t, runs[:row.ended], append([]uuid.UUID{}, f.ended...))
			require.Equal(t, lastPause, f.delays[runs[row.unreadable]])
			require.Zero(t, f.delays[runs[2]], "it does not wait")
			require.Contains(t, f.delays, runs[2])
			require.Equal(t, row.counts, countsOf(t, registry))
		})
	}
}

// A run whose trace cannot be computed is dropped.
func TestExporter_DropsRunAfterPanic(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	e, _ := newExporter(&fakeStore{}, registry)
	due := dueAt("http://127.0.0.1", false)
	require.Empty(t, e.convertSafely(t.Context(), due, store.TracedRun{}, nil))
	require.Equal(t, map[string]float64{"dropped": 1, "exported": 0, "failed": 0}, countsOf(t, registry))
}
