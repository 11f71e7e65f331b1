// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// measureEvery is the interval for measuring projects that receive webhooks. If a measurement takes
	// longer than a tenth of the interval, the next one waits ten times that long.
	measureEvery  = time.Second
	measureShare  = 10
	measureAtOnce = 4
	// measureTimeout limits a measurement. If it fails, the last values stay valid. A project
	// without a request within measureFor is removed.
	measureTimeout = 5 * time.Second
	loadTTL        = time.Minute
	// syncBacklogFactor is the factor by which sync requests can exceed the backlog limits.
	syncBacklogFactor = 2
)

// loadCache has the recent loads and limits of projects, so webhooks do not wait for a measurement. A
// project without recent webhooks costs nothing.
type loadCache struct {
	source store.Loads
	logger *slog.Logger
	now    func() time.Time

	mutex    sync.Mutex
	projects map[uuid.UUID]*measuredLoad
}

// measuredLoad is the load of a project.
type measuredLoad struct {
	load store.ProjectLoad
	at   time.Time // zero before the first measurement
	next time.Time
	// asked is the time of the last request for the load.
	asked time.Time
}

func newLoadCache(source store.Loads, logger *slog.Logger, now func() time.Time) *loadCache {
	return &loadCache{source: source, logger: logger, now: now, projects: map[uuid.UUID]*measuredLoad{}}
}

// quotaError returns why a webhook for an environment cannot be accepted, or nil. The number of waiting
// sync callers has a limit. Sync requests also have a backlog limit, because callers can disconnect while
// their runs stay open.
func (l *loadCache) quotaError(project, environment uuid.UUID, class store.Class) *httpserver.Problem {
	load, known := l.projectLoad(project)
	if !known {
		return nil
	}
	limits, backlog := load.Limits, load.Backlog[environment]
	if isReached(load.Stored, limits.Storage) {
		return quotaProblem(httpserver.CodeStorageFull, storageRetry,
			fmt.Sprintf("The project has stored %d bytes of ended runs; its limit is %d. Ask the platform operator for a plan with more storage.",
				load.Stored, limits.Storage))
	}
	room := int64(1)
	if class == store.ClassSync {
		room = syncBacklogFactor
	}
	switch {
	case isReached(backlog.Runs, room*limits.BacklogRuns):
		return quotaProblem(httpserver.CodeBacklogFull, backlogRetry,
			fmt.Sprintf("The environment has %d open runs; its limit is %d. Send the request again when some have ended, or add runners.",
				backlog.Runs, room*limits.BacklogRuns))
	case isReached(backlog.Input, room*limits.BacklogInput):
		return quotaProblem(httpserver.CodeBacklogFull, backlogRetry,
			fmt.Sprintf("The open runs of the environment have %d bytes of input; the limit is %d. "+
				"Send the request again when some have ended, or add runners.", backlog.Input, room*limits.BacklogInput))
	}
	return nil
}

// isReached reports whether a limit is reached; 0 means no limit.
func isReached(n, limit int64) bool { return limit > 0 && n >= limit }

func quotaProblem(code httpserver.Code, after time.Duration, detail string) *httpserver.Problem {
	p := httpserver.NewProblem(http.StatusTooManyRequests, code, detail)
	p.RetryAfter = after
	return &p
}

// projectLoad returns the load of a project, and starts to measure it.
func (l *loadCache) projectLoad(project uuid.UUID) (load store.ProjectLoad, known bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.now()
	m := l.projects[project]
	if m == nil {
		m = &measuredLoad{}
		l.projects[project] = m
	}
	m.asked = now
	return m.load, !m.at.IsZero()
}

// runLoop measures projects until ctx ends.
func (l *loadCache) runLoop(ctx context.Context) {
	for pause.For(ctx, measureEvery) == nil {
		l.measure(ctx)
	}
}

// measure measures the projects that are due.
func (l *loadCache) measure(ctx context.Context) {
	group := errgroup.Group{}
	group.SetLimit(measureAtOnce)
	for _, project := range l.dueProjects() {
		group.Go(func() error {
			l.measureProject(ctx, project)
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
}

// dueProjects returns the projects with a request since their last measurement that are due. It removes
// projects without recent requests.
func (l *loadCache) dueProjects() (projects []uuid.UUID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.now()
	for project, m := range l.projects {
		switch {
		case now.Sub(m.asked) >= loadTTL:
			delete(l.projects, project)
		case m.asked.After(m.at) && !now.Before(m.next):
			projects = append(projects, project)
		}
	}
	return projects
}

// measureProject measures a project.
func (l *loadCache) measureProject(ctx context.Context, project uuid.UUID) {
	begun := l.now()
	within, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	load, err := l.source.ProjectLoad(within, project)
	if err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
		l.logger.Error("measuring a project", "project", project, "error", err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	m := l.projects[project]
	if m == nil {
		return
	}
	m.next = begun.Add(max(measureEvery, measureShare*l.now().Sub(begun)) - measureEvery/2)
	if err == nil {
		m.load, m.at = load, begun
	}
}
