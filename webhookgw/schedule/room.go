// SPDX-License-Identifier: Apache-2.0

package schedule

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
	// measureEvery is for how long what a project has open counts as measured, with the
	// ticks that were run since.
	measureEvery  = time.Second
	measureAtOnce = 4
	// measureWithin bounds measuring one project, measureAllWithin all of them: together they leave the
	// rest of stepTimeout to the ticks.
	measureWithin    = 2 * time.Second
	measureAllWithin = stepTimeout / 2
	// unknownFor is for how long a project is not measured again that could not be.
	unknownFor = 15 * time.Second
)

// rooms know how much of what they may have open and stored the projects have whose
// connectors tick.
type rooms struct {
	source   store.Loads
	now      func() time.Time
	projects map[uuid.UUID]*room
}

type room struct {
	load store.ProjectLoad
	at   time.Time
	// unknown says that the project could not be measured.
	unknown bool
}

// isFresh says whether it need not be measured again.
func (r *room) isFresh(now time.Time) bool {
	age := measureEvery
	if r.unknown {
		age = unknownFor
	}
	return now.Sub(r.at) < age
}

func newRooms(source store.Loads, now func() time.Time) *rooms {
	return &rooms{source: source, now: now, projects: map[uuid.UUID]*room{}}
}

// measure measures those projects again whose figures are old, and forgets all others, except those that
// could not be measured a moment ago. The error says which cannot be.
func (r *rooms) measure(ctx context.Context, projects map[uuid.UUID]bool) error {
	now, known := r.now(), map[uuid.UUID]*room{}
	ctx, cancel := context.WithTimeout(ctx, measureAllWithin)
	defer cancel()
	var (
		group  errgroup.Group
		mutex  sync.Mutex
		failed []error
	)
	group.SetLimit(measureAtOnce)
	for _, project := range r.unknown() {
		known[project] = r.projects[project]
	}
	for project := range projects {
		if had := r.projects[project]; had != nil && had.isFresh(now) {
			known[project] = had
			continue
		}
		fresh := &room{at: now}
		known[project] = fresh
		group.Go(func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, measureWithin)
			defer cancel()
			fresh.load, err = r.source.ProjectLoad(ctx, project)
			if err != nil && !errors.Is(err, store.ErrNotFound) { // of which connectors do not tick any more
				fresh.unknown = true
				mutex.Lock()
				failed = append(failed, fmt.Errorf("measuring project %s: %w", project, err))
				mutex.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // none returns one
	r.projects = known
	return errors.Join(failed...)
}

// isUnknown says of a project that it could not be measured.
func (r *rooms) isUnknown(project uuid.UUID) bool {
	return r.projects[project] != nil && r.projects[project].unknown
}

// unknown returns the projects that could not be measured and are not measured again yet.
func (r *rooms) unknown() (projects []uuid.UUID) {
	for project, had := range r.projects {
		if had.unknown && had.isFresh(r.now()) {
			projects = append(projects, project)
		}
	}
	slices.SortFunc(projects, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return projects
}

// take takes room for an event, or says why there is none.
func (r *rooms) take(e store.Event) (reason string) {
	had := r.projects[e.ProjectID]
	if had == nil {
		return ""
	}
	limits, backlog := had.load.Limits, had.load.Backlog[e.EnvironmentID]
	switch {
	case reached(had.load.Stored, limits.Storage):
		return fmt.Sprintf("%s: the project has stored %d bytes of ended runs and may have %d", httpserver.CodeStorageFull, had.load.Stored, limits.Storage)
	case reached(backlog.Runs, limits.BacklogRuns):
		return fmt.Sprintf("%s: the environment has %d open runs and may have %d", httpserver.CodeBacklogFull, backlog.Runs, limits.BacklogRuns)
	case reached(backlog.Input, limits.BacklogInput):
		return fmt.Sprintf("%s: the open runs of the environment have %d bytes of input and may have %d", httpserver.CodeBacklogFull, backlog.Input, limits.BacklogInput)
	}
	if had.load.Backlog != nil {
		backlog.Runs += int64(len(e.Runs))
		backlog.Input += int64(len(e.Input))
		had.load.Backlog[e.EnvironmentID] = backlog
	}
	return ""
}

// reached says whether there is as much as may be; 0 is any number.
func reached(n, limit int64) bool { return limit > 0 && n >= limit }
