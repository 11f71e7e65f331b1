// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/google/uuid"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/store"
)

// maxRequest is the size in bytes from which a request is sent before more runs are added. Collectors accept 4 MiB or more.
const maxRequest = 1 << 20

// maxRead is the size in bytes of journals from which an upload reads no further run. Spans omit large contents, so journals of
// any size make a small request. A failed request costs reading its journals again.
const maxRead = store.MaxJournal

var (
	// errFull ends the reading of journals when an upload has its size.
	errFull = errors.New("the upload is full")
	// errRead means that the journal of the first run cannot be read in time.
	errRead = errors.New("reading journals")
)

// runSpans are the spans of a run.
type runSpans []*trace.Span

// upload collects the spans of the first runs of a list from their journals, which come in the order of the runs.
type upload struct {
	runs    []store.TracedRun
	convert func(store.TracedRun, *runtrace.Builder) runSpans
	// done are the runs whose journals are complete. building is the builder of the next run.
	done     []runSpans
	building *runtrace.Builder
	// size is the size of the spans in bytes, read the size of the journals.
	size int
	read int64
}

// newUpload returns an upload of runs.
func newUpload(runs []store.TracedRun, convert func(store.TracedRun, *runtrace.Builder) runSpans) *upload {
	u := &upload{runs: runs, convert: convert}
	u.beginRun()
	return u
}

func (u *upload) beginRun() {
	if n := len(u.done); n < len(u.runs) {
		u.building = runtrace.NewBuilder(u.runs[n].Run.ID.String())
		u.building.Version = u.runs[n].BundleDigest
	}
}

// endRun completes the next run. It returns errFull if no further run should be added.
func (u *upload) endRun() error {
	run := u.runs[len(u.done)]
	spans := u.convert(run, u.building)
	for _, span := range spans {
		u.size += proto.Size(span)
	}
	u.done = append(u.done, spans)
	if u.beginRun(); u.size >= maxRequest || u.read >= maxRead {
		return errFull
	}
	return nil
}

// addEntry adds a journal entry, which completes the runs before its run.
func (u *upload) addEntry(run uuid.UUID, entry store.JournalEntry) error {
	for len(u.done) < len(u.runs) && u.runs[len(u.done)].Run.ID != run {
		if err := u.endRun(); err != nil {
			return err
		}
	}
	u.read += entry.Size()
	// An entry that cannot be read adds nothing.
	read := runtrace.NewEntry(entry.Sequence, string(entry.Kind), entry.Data, entry.At)
	_ = u.building.AddEntry(&read)
	return nil
}

// endRuns completes the remaining runs after the last entry.
func (u *upload) endRuns() error {
	for len(u.done) < len(u.runs) {
		if err := u.endRun(); err != nil {
			return err
		}
	}
	return nil
}

// readUpload reads the journals of the first runs until the spans or the journals have their size, or the time for reading is
// over. It returns at least one run without an error.
func (e *Exporter) readUpload(ctx context.Context, d store.DueTraces, runs []store.TracedRun) ([]runSpans, error) {
	select {
	case e.readers <- struct{}{}:
		defer func() { <-e.readers }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	limited, cancel := e.opts.WithTimeout(ctx, readTime)
	defer cancel()
	u := newUpload(runs, func(run store.TracedRun, b *runtrace.Builder) runSpans { return e.convertSafely(ctx, d, run, b) })
	err := e.opts.Store.RunJournals(limited, d.ProjectID, runIDsOf(runs), u.addEntry)
	if err == nil {
		err = u.endRuns()
	}
	switch {
	case len(u.done) > 0:
		return u.done, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: %w", errRead, err)
}

// convertSafely returns the spans of a run. A run that causes a panic is dropped, because it would cause another one.
func (e *Exporter) convertSafely(ctx context.Context, d store.DueTraces, run store.TracedRun, b *runtrace.Builder) (spans runSpans) {
	defer func() {
		if p := recover(); p != nil {
			e.opts.Metrics.Traced(metrics.TraceDropped, 1)
			e.opts.Logger.ErrorContext(ctx, "computing a trace", "run", run.Run.Key(), "panic", p, "stack", string(debug.Stack()))
			spans = nil
		}
	}()
	return convertTrace(run.Run, run.Traceparent, buildTrace(run.Run, b), d.Telemetry.WithContent)
}
