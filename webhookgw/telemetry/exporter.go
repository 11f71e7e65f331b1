// SPDX-License-Identifier: Apache-2.0

// Package telemetry exports the traces of ended runs to the collectors of their projects, as OTLP over HTTP. A run is exported
// at least once. All IDs are derived from the run, so a run that is exported twice is one trace.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxAge is how long after its end a run is exported.
	maxAge = time.Hour
	// interval is the time between two looks for ended runs.
	interval = 2 * time.Second
	// atOnce limits the projects whose traces a gateway exports at the same time, batch the runs of each.
	atOnce = 16
	batch  = 100
	// lease is the time after which claimed runs are due again. workTime limits the work on them.
	lease    = 3 * time.Minute
	workTime = lease / 2
	// requestTime limits a request to a collector, storeTime a call of the store.
	requestTime = 10 * time.Second
	storeTime   = 20 * time.Second
	// firstPause is the pause of a project after a failed request. It doubles up to lastPause.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	// dropBatch limits the runs that one call drops.
	dropBatch = 10_000
)

// Store is the part of the store that the export needs.
type Store interface {
	ClaimTraces(ctx context.Context, c store.TraceClaim) ([]store.DueTraces, error)
	DelayTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration) error
	EndTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error
	DropTraces(ctx context.Context, age time.Duration, limit int) (int, error)
	RunTraceparent(ctx context.Context, run store.Key) (string, error)
	Run(ctx context.Context, key store.Key) (store.Run, error)
	JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) ([]store.JournalEntry, error)
}

// Keys opens the headers for collectors.
type Keys interface {
	Open(field seal.Field, sealed []byte) ([]byte, error)
}

// Options configure an Exporter.
type Options struct {
	Store  Store
	Keys   Keys
	Guard  *egress.Guard
	Logger *slog.Logger
	// Metrics counts the exported runs; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for pauses of projects; nil means time.Now.
	Now func() time.Time
}

// Exporter exports ended runs. Each gateway can run one, because a claim gives a run to one of them.
type Exporter struct {
	opts   Options
	sender *sender

	mu       sync.Mutex
	projects map[uuid.UUID]*project
	active   sync.WaitGroup
}

// project is the state of the export of a project. Exporter.mu guards it.
type project struct {
	isBusy   bool
	failures int
	until    time.Time // the end of its pause
}

// New returns an Exporter.
func New(opts Options) *Exporter {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	return &Exporter{opts: opts, sender: newSender(opts.Guard), projects: map[uuid.UUID]*project{}}
}

// Run exports ended runs until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.active.Wait()
	for {
		if err := e.exportDue(ctx); err != nil && ctx.Err() == nil {
			e.opts.Logger.Error("exporting traces", "error", err)
		}
		if pause.For(ctx, interval) != nil {
			return nil
		}
	}
}

// exportDue begins the export of due runs, and drops runs that are too old.
func (e *Exporter) exportDue(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	dropped, err := e.opts.Store.DropTraces(limited, maxAge, dropBatch)
	if err != nil {
		return err
	}
	e.opts.Metrics.Traced(metrics.TraceDropped, dropped)
	without, free := e.unavailableProjects()
	if free <= 0 {
		return nil
	}
	due, err := e.opts.Store.ClaimTraces(limited, store.TraceClaim{Without: without, Projects: free, Runs: batch, Lease: lease})
	if err != nil {
		return err
	}
	for _, d := range due {
		e.beginProject(d.ProjectID)
		e.active.Go(func() {
			err := e.exportSafely(ctx, d)
			e.endProject(d.ProjectID, err)
			if err != nil && ctx.Err() == nil {
				e.opts.Logger.Warn("exporting traces of a project", "project", d.ProjectID, "error", err)
			}
		})
	}
	return nil
}

// unavailableProjects returns the projects that are being exported or pause, and the number of further ones that can begin.
func (e *Exporter) unavailableProjects() (without []uuid.UUID, free int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	free = atOnce
	for id, p := range e.projects {
		switch {
		case p.isBusy:
			free--
			without = append(without, id)
		case e.opts.Now().Before(p.until):
			without = append(without, id)
		case p.failures == 0 || e.opts.Now().Sub(p.until) > lastPause:
			delete(e.projects, id)
		}
	}
	return without, free
}

func (e *Exporter) beginProject(id uuid.UUID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.projects[id] == nil {
		e.projects[id] = &project{}
	}
	e.projects[id].isBusy = true
}

// endProject ends the work on a project, which then pauses if it failed.
func (e *Exporter) endProject(id uuid.UUID, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.projects[id]
	p.isBusy = false
	if err == nil {
		p.failures = 0
		return
	}
	p.until = e.opts.Now().Add(pauseAfter(p.failures))
	p.failures++
}

// pauseAfter returns the pause after so many failures before this one.
func pauseAfter(failures int) time.Duration {
	return min(firstPause<<min(failures, 10), lastPause)
}

// exportSafely returns a panic as an error: the data of a run must not end the gateway.
func (e *Exporter) exportSafely(ctx context.Context, d store.DueTraces) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return e.exportProject(ctx, d)
}

// exportProject exports claimed runs of a project. After an error the remaining runs are due again once the project has paused.
func (e *Exporter) exportProject(ctx context.Context, d store.DueTraces) error {
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	left, err := e.sendRuns(ctx, d)
	if err == nil {
		return nil
	}
	e.opts.Metrics.Traced(metrics.TraceFailed, len(left))
	e.mu.Lock()
	wait := pauseAfter(e.projects[d.ProjectID].failures)
	e.mu.Unlock()
	limited, cancelWrite := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancelWrite()
	return errors.Join(err, e.opts.Store.DelayTraces(limited, d.ProjectID, left, wait))
}
