// SPDX-License-Identifier: Apache-2.0

// Package telemetry exports the traces of ended runs to the collectors of their projects, as OTLP over HTTP. A run is exported
// at least once. All IDs are derived from the run, so a run that is exported twice is one trace.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxAge is how long after its end a run is exported.
	maxAge = time.Hour
	// interval is the time between two looks for ended runs, unless a project has more.
	interval = 2 * time.Second
	// batch limits the runs of a turn of a project. turnTime is the time after which a turn begins no further upload.
	batch    = 100
	turnTime = 30 * time.Second
	// lease is the time after which claimed runs are due again: longer than a turn with its last upload.
	lease = 5 * time.Minute
	// readTime limits reading the journals of an upload, and the wait for it. sendTime limits sending an upload, requestTime a
	// request to a collector, and storeTime another call of the store. No phase uses the time of another.
	readTime    = 30 * time.Second
	sendTime    = 30 * time.Second
	requestTime = 10 * time.Second
	storeTime   = 20 * time.Second
	// readersAtOnce limits the projects whose journals are read at the same time, because pages of journals are large.
	readersAtOnce = 4
	// dropBatch limits the runs that one call drops.
	dropBatch = 10_000
)

// Store is the part of the store that the export needs.
type Store interface {
	ClaimTraces(ctx context.Context, c store.TraceClaim) ([]store.DueTraces, error)
	DelayTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration) error
	EndTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error
	DropTraces(ctx context.Context, age time.Duration, limit int) (int, error)
	TracedRuns(ctx context.Context, project uuid.UUID, runs []uuid.UUID) ([]store.TracedRun, error)
	RunJournals(ctx context.Context, project uuid.UUID, runs []uuid.UUID, visit func(run uuid.UUID, e store.JournalEntry) error) error
}

// Keys opens the headers for collectors.
type Keys interface {
	Open(field secrets.Field, sealed []byte) ([]byte, error)
}

// Options configure an Exporter.
type Options struct {
	Store Store
	// Keys may be nil. Then projects with headers export nothing.
	Keys   Keys
	Guard  *egress.Guard
	Logger *slog.Logger
	// Metrics counts the exported runs; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for pauses of projects; nil means time.Now.
	Now func() time.Time
	// WithTimeout limits phases of the work; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
	// AfterFunc calls a function after a time, unless it is stopped; nil means time.AfterFunc.
	AfterFunc func(after time.Duration, call func()) (stop func() bool)
}

// Exporter exports ended runs. Each gateway can run one, because a claim gives a run to one of them.
type Exporter struct {
	opts    Options
	sender  *sender
	readers chan struct{}
	// more has a value if a project has more due runs. interval is the time between two looks without it.
	more     chan struct{}
	interval time.Duration
	active   sync.WaitGroup

	mu    sync.Mutex
	slots slots
}

// New returns an Exporter.
func New(opts Options) *Exporter {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
	}
	if opts.AfterFunc == nil {
		opts.AfterFunc = func(after time.Duration, call func()) func() bool { return time.AfterFunc(after, call).Stop }
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	return &Exporter{
		opts: opts, sender: newSender(opts.Guard), readers: make(chan struct{}, readersAtOnce), more: make(chan struct{}, 1),
		interval: interval, slots: slots{projects: map[uuid.UUID]*project{}},
	}
}

// Run exports ended runs until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.active.Wait()
	ticks := time.NewTicker(e.interval)
	defer ticks.Stop()
	for drop := true; ; {
		var err error
		if drop {
			err = e.dropOld(ctx)
		}
		if err = errors.Join(err, e.exportDue(ctx)); err != nil && ctx.Err() == nil {
			e.opts.Logger.Error("exporting traces", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			drop = true
		case <-e.more:
			drop = false
		}
	}
}

// dropOld drops runs that are too old.
func (e *Exporter) dropOld(ctx context.Context) error {
	ctx, cancel := e.opts.WithTimeout(ctx, storeTime)
	defer cancel()
	dropped, err := e.opts.Store.DropTraces(ctx, maxAge, dropBatch)
	e.opts.Metrics.Traced(metrics.TraceDropped, dropped)
	return err
}

// exportDue begins the export of due runs.
func (e *Exporter) exportDue(ctx context.Context) error {
	e.mu.Lock()
	fast, without, slow := e.slots.claimable(e.opts.Now())
	e.mu.Unlock()
	if len(slow) > 0 {
		if err := e.claimRuns(ctx, slowSlot, store.TraceClaim{Only: slow}); err != nil {
			return err
		}
	}
	if fast <= 0 {
		return nil
	}
	return e.claimRuns(ctx, fastSlot, store.TraceClaim{Without: without, Projects: fast})
}

// claimRuns claims runs and begins their export.
func (e *Exporter) claimRuns(ctx context.Context, kind slot, claim store.TraceClaim) error {
	limited, cancel := e.opts.WithTimeout(ctx, storeTime)
	defer cancel()
	claim.Runs, claim.Lease = batch, lease
	due, err := e.opts.Store.ClaimTraces(limited, claim)
	if err != nil {
		return err
	}
	for _, d := range due {
		e.mu.Lock()
		canBegin := e.slots.beginTurn(d.ProjectID, kind, hostOf(d.Telemetry.Endpoint), e.opts.Now())
		e.mu.Unlock()
		if canBegin {
			e.active.Go(func() { e.takeTurn(ctx, d) })
		} else {
			err = errors.Join(err, e.opts.Store.DelayTraces(limited, d.ProjectID, d.Runs, 0))
		}
	}
	return err
}

// hostOf returns the host and port of an endpoint.
func hostOf(endpoint string) string {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	return parsed.Host
}

// takeTurn exports claimed runs of a project. After an error the remaining runs are due again once the project has paused.
func (e *Exporter) takeTurn(ctx context.Context, d store.DueTraces) {
	left, err := e.exportSafely(ctx, d)
	hasFailed := err != nil && !errors.Is(err, errSlow) && ctx.Err() == nil
	e.mu.Lock()
	wait := time.Duration(0)
	if hasFailed {
		wait = pauseAfter(e.slots.projects[d.ProjectID].failures)
	}
	e.mu.Unlock()
	if hasFailed {
		e.opts.Metrics.Traced(metrics.TraceFailed, len(left))
	}
	if delayErr := e.delayRuns(ctx, d.ProjectID, left, wait, errors.Is(err, errRead)); delayErr != nil {
		err = errors.Join(err, delayErr)
	}
	e.mu.Lock()
	e.slots.endTurn(d.ProjectID, hasFailed, e.opts.Now())
	e.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		e.opts.Logger.Warn("exporting traces of a project", "project", d.ProjectID, "error", err)
	}
	if !hasFailed && (len(left) > 0 || len(d.Runs) == batch) {
		select {
		case e.more <- struct{}{}:
		default:
		}
	}
}

// delayRuns makes claimed runs due again after a time. If the journal of the first run cannot be read, only that run waits.
func (e *Exporter) delayRuns(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration, isUnreadable bool) error {
	ctx, cancel := e.opts.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	if !isUnreadable || len(runs) == 0 {
		return e.opts.Store.DelayTraces(ctx, project, runs, wait)
	}
	return errors.Join(e.opts.Store.DelayTraces(ctx, project, runs[:1], lastPause), e.opts.Store.DelayTraces(ctx, project, runs[1:], 0))
}

// exportSafely returns a panic as an error, so that it does not end the gateway.
func (e *Exporter) exportSafely(ctx context.Context, d store.DueTraces) (left []uuid.UUID, err error) {
	defer func() {
		if p := recover(); p != nil {
			left, err = d.Runs, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return e.exportRuns(ctx, d)
}

// exportRuns exports claimed runs in uploads of bounded size, until the time of its turn is over. It returns the runs that are
// left.
func (e *Exporter) exportRuns(ctx context.Context, d store.DueTraces) (left []uuid.UUID, err error) {
	headers, err := e.openHeaders(d)
	if err != nil {
		return d.Runs, err
	}
	runs, err := e.readRuns(ctx, d)
	if err != nil {
		return d.Runs, err
	}
	for end := e.opts.Now().Add(turnTime); len(runs) > 0 && e.opts.Now().Before(end); {
		next, err := e.readUpload(ctx, d, runs)
		if err != nil {
			return runIDsOf(runs), err
		}
		done, err := e.sendUpload(ctx, d, headers, next)
		if endErr := e.endRuns(ctx, d.ProjectID, runIDsOf(runs[:done])); endErr != nil {
			return runIDsOf(runs), errors.Join(err, endErr)
		}
		if runs = runs[done:]; err != nil {
			return runIDsOf(runs), err
		}
	}
	return runIDsOf(runs), nil
}

// readRuns reads claimed runs. Runs that are no longer stored have no trace.
func (e *Exporter) readRuns(ctx context.Context, d store.DueTraces) ([]store.TracedRun, error) {
	limited, cancel := e.opts.WithTimeout(ctx, storeTime)
	defer cancel()
	runs, err := e.opts.Store.TracedRuns(limited, d.ProjectID, d.Runs)
	if err != nil {
		return nil, err
	}
	stored := runIDsOf(runs)
	missing := slices.DeleteFunc(slices.Clone(d.Runs), func(id uuid.UUID) bool { return slices.Contains(stored, id) })
	return runs, e.endRuns(ctx, d.ProjectID, missing)
}

// endRuns ends the export of runs, also of a gateway that stops.
func (e *Exporter) endRuns(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error {
	if len(runs) == 0 {
		return nil
	}
	ctx, cancel := e.opts.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	return e.opts.Store.EndTraces(ctx, project, runs)
}

func runIDsOf(runs []store.TracedRun) []uuid.UUID {
	ids := make([]uuid.UUID, len(runs))
	for i, run := range runs {
		ids[i] = run.Run.ID
	}
	return ids
}
