// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
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
}

func newRooms(source store.Loads, now func() time.Time) *rooms {
	return &rooms{source: source, now: now, projects: map[uuid.UUID]*room{}}
}

// measure measures those projects again whose figures are old, and forgets all others.
func (r *rooms) measure(ctx context.Context, projects map[uuid.UUID]bool) error {
	now, known := r.now(), map[uuid.UUID]*room{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(measureAtOnce)
	for project := range projects {
		if had := r.projects[project]; had != nil && now.Sub(had.at) < measureEvery {
			known[project] = had
			continue
		}
		fresh := &room{at: now}
		known[project] = fresh
		group.Go(func() (err error) {
			fresh.load, err = r.source.ProjectLoad(ctx, project)
			if errors.Is(err, store.ErrNotFound) {
				return nil // then its connectors do not tick any more
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("measuring projects: %w", err)
	}
	r.projects = known
	return nil
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
