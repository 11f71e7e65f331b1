// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// measureEvery is how long a measurement of a project's open runs is valid, together with the
	// ticks that ran since.
	measureEvery  = time.Second
	measureAtOnce = 4
	// measureTimeout limits the measurement of one project, and measureAllTimeout the measurement of all.
	// Together they leave the rest of stepTimeout to the ticks.
	measureTimeout    = 2 * time.Second
	measureAllTimeout = stepTimeout / 2
	// failedMeasurementTTL is how long a project is not measured again after a failed measurement.
	failedMeasurementTTL = 15 * time.Second
)

// backlogCapacities has the load and the limits of the projects whose connectors tick.
type backlogCapacities struct {
	source   store.Loads
	now      func() time.Time
	projects map[uuid.UUID]*backlogCapacity
}

type backlogCapacity struct {
	load store.ProjectLoad
	at   time.Time
	// unknown means that the measurement failed.
	unknown bool
}

// isFresh reports whether the measurement is still valid.
func (r *backlogCapacity) isFresh(now time.Time) bool {
	age := measureEvery
	if r.unknown {
		age = failedMeasurementTTL
	}
	return now.Sub(r.at) < age
}

func newBacklogCapacities(source store.Loads, now func() time.Time) *backlogCapacities {
	return &backlogCapacities{source: source, now: now, projects: map[uuid.UUID]*backlogCapacity{}}
}

// measure updates outdated measurements. It removes all other projects, except recently failed
// ones. The error names the projects that could not be measured.
func (r *backlogCapacities) measure(ctx context.Context, projects map[uuid.UUID]bool) error {
	now, known := r.now(), map[uuid.UUID]*backlogCapacity{}
	ctx, cancel := context.WithTimeout(ctx, measureAllTimeout)
	defer cancel()
	var (
		group  errgroup.Group
		mutex  sync.Mutex
		failed []error
	)
	group.SetLimit(measureAtOnce)
	for _, project := range r.unknownProjects() {
		known[project] = r.projects[project]
	}
	for project := range projects {
		if had := r.projects[project]; had != nil && had.isFresh(now) {
			known[project] = had
			continue
		}
		fresh := &backlogCapacity{at: now}
		known[project] = fresh
		group.Go(func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, measureTimeout)
			defer cancel()
			fresh.load, err = r.source.ProjectLoad(ctx, project)
			if err != nil && !errors.Is(err, store.ErrNotFound) { // a missing project has no connectors that tick any more
				fresh.unknown = true
				mutex.Lock()
				failed = append(failed, fmt.Errorf("measuring project %s: %w", project, err))
				mutex.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	r.projects = known
	return errors.Join(failed...)
}

// isUnknown reports whether the last measurement of a project failed.
func (r *backlogCapacities) isUnknown(project uuid.UUID) bool {
	return r.projects[project] != nil && r.projects[project].unknown
}

// unknownProjects returns the projects with a failed measurement that are not due for a retry.
func (r *backlogCapacities) unknownProjects() (projects []uuid.UUID) {
	for project, had := range r.projects {
		if had.unknown && had.isFresh(r.now()) {
			projects = append(projects, project)
		}
	}
	slices.SortFunc(projects, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return projects
}

// reserveCapacity reserves capacity for an event, or returns the reason why there is none.
func (r *backlogCapacities) reserveCapacity(e store.Event) (reason string) {
	had := r.projects[e.ProjectID]
	if had == nil {
		return ""
	}
	limits, backlog := had.load.Limits, had.load.Backlog[e.EnvironmentID]
	switch {
	case isReached(had.load.Stored, limits.Storage):
		return fmt.Sprintf("%s: the project has stored %d bytes of ended runs; its limit is %d", httpserver.CodeStorageFull, had.load.Stored, limits.Storage)
	case isReached(backlog.Runs, limits.BacklogRuns):
		return fmt.Sprintf("%s: the environment has %d open runs; its limit is %d", httpserver.CodeBacklogFull, backlog.Runs, limits.BacklogRuns)
	case isReached(backlog.Input, limits.BacklogInput):
		return fmt.Sprintf("%s: the open runs of the environment have %d bytes of input; the limit is %d", httpserver.CodeBacklogFull, backlog.Input, limits.BacklogInput)
	}
	if had.load.Backlog != nil {
		backlog.Runs += int64(len(e.Runs))
		backlog.Input += int64(len(e.Input))
		had.load.Backlog[e.EnvironmentID] = backlog
	}
	return ""
}

// isReached reports whether a limit is reached; 0 means no limit.
func isReached(n, limit int64) bool { return limit > 0 && n >= limit }
