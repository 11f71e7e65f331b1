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
	// measureEvery is how often projects are measured that take webhooks; one whose
	// measuring takes longer than a tenth of that waits ten times as long as it took.
	measureEvery  = time.Second
	measureShare  = 10
	measureAtOnce = 4
	// measureTimeout bounds measuring; where it fails, what was measured last counts. A
	// project that nobody asked for within measureFor is forgotten.
	measureTimeout = 5 * time.Second
	measureFor     = time.Minute
	// syncRoom is how many times as much may be open when somebody waits for the answer.
	syncRoom = 2
)

// loads knows how much of what they may have projects have, as it was a moment ago:
// no webhook waits for it. A project that nobody has sent any for a while costs
// nothing.
type loads struct {
	source store.Loads
	logger *slog.Logger
	now    func() time.Time

	mutex    sync.Mutex
	projects map[uuid.UUID]*measured
}

// measured is a project's load.
type measured struct {
	load store.ProjectLoad
	at   time.Time // zero before the first time
	next time.Time
	// asked is when somebody last wanted to know.
	asked time.Time
}

func newLoads(source store.Loads, logger *slog.Logger, now func() time.Time) *loads {
	return &loads{source: source, logger: logger, now: now, projects: map[uuid.UUID]*measured{}}
}

// refusal is why a webhook of a project cannot be taken for an environment, nil when
// it can. Callers who wait for an answer are bounded by their number first; but they may
// go, and what they asked for stays, so that there is an end to those too.
func (l *loads) refusal(project, environment uuid.UUID, class store.Class) *httpserver.Problem {
	load, known := l.of(project)
	if !known {
		return nil
	}
	limits, backlog := load.Limits, load.Backlog[environment]
	if reached(load.Stored, limits.Storage) {
		return full(httpserver.CodeStorageFull, storageRetry,
			fmt.Sprintf("The project has stored %d bytes of ended runs and may have %d. Ask the operator for a plan with more storage.",
				load.Stored, limits.Storage))
	}
	room := int64(1)
	if class == store.ClassSync {
		room = syncRoom
	}
	switch {
	case reached(backlog.Runs, room*limits.BacklogRuns):
		return full(httpserver.CodeBacklogFull, backlogRetry,
			fmt.Sprintf("The environment has %d open runs and may have %d. Send the request again when some have ended, or give it more runners.",
				backlog.Runs, room*limits.BacklogRuns))
	case reached(backlog.Input, room*limits.BacklogInput):
		return full(httpserver.CodeBacklogFull, backlogRetry,
			fmt.Sprintf("The open runs of the environment have %d bytes of input and may have %d. "+
				"Send the request again when some have ended, or give it more runners.", backlog.Input, room*limits.BacklogInput))
	}
	return nil
}

// reached says whether there is as much as may be; 0 is any number.
func reached(n, limit int64) bool { return limit > 0 && n >= limit }

func full(code httpserver.Code, after time.Duration, detail string) *httpserver.Problem {
	p := httpserver.NewProblem(http.StatusTooManyRequests, code, detail)
	p.RetryAfter = after
	return &p
}

// of is what is known of a project, which is measured from now on.
func (l *loads) of(project uuid.UUID) (load store.ProjectLoad, known bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.now()
	m := l.projects[project]
	if m == nil {
		m = &measured{}
		l.projects[project] = m
	}
	m.asked = now
	return m.load, !m.at.IsZero()
}

// run measures until ctx ends.
func (l *loads) run(ctx context.Context) {
	for pause.For(ctx, measureEvery) == nil {
		l.measure(ctx)
	}
}

// measure measures the projects that are due.
func (l *loads) measure(ctx context.Context) {
	group := errgroup.Group{}
	group.SetLimit(measureAtOnce)
	for _, project := range l.due() {
		group.Go(func() error {
			l.one(ctx, project)
			return nil
		})
	}
	_ = group.Wait() // they return none
}

// due are the projects that somebody has asked for since they were measured, and
// whose time has come. Those that nobody asks for any more are forgotten.
func (l *loads) due() (projects []uuid.UUID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.now()
	for project, m := range l.projects {
		switch {
		case now.Sub(m.asked) >= measureFor:
			delete(l.projects, project)
		case m.asked.After(m.at) && !now.Before(m.next):
			projects = append(projects, project)
		}
	}
	return projects
}

// one measures a project.
func (l *loads) one(ctx context.Context, project uuid.UUID) {
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
