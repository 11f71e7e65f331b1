// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// tickLimit is how many ticks are read and recorded at once: the inputs of that many
	// are in memory.
	tickLimit = 100
	// tickRuns is how many runs one transaction starts of them, unless one tick has more. It is
	// halved where that took too long, and doubled again where it did not.
	tickRuns = 1024
	// lookEvery is how long nobody looks for ticks that nobody expects, such as those of a
	// connector that has just been made.
	lookEvery = 5 * time.Second
	// lookAgain is the pause after a look of which nothing came.
	lookAgain = time.Second
	// tickTTL is how long a tick is known by its key: for longer than any replica works on
	// what it has read. That it is run once whoever comes later is its move's affair.
	tickTTL = 10 * time.Minute
)

// TickStore is what ticks need of the store.
type TickStore interface {
	store.Loads
	DueTicks(ctx context.Context, limit int, without ...uuid.UUID) (store.DueTicks, error)
	MoveTicks(ctx context.Context, moves []store.TickMove) (int, error)
	Accept(ctx context.Context, events []store.Event) ([]store.Admission, error)
}

// TickerOptions configure a Ticker.
type TickerOptions struct {
	Store  TickStore
	Logger *slog.Logger
	// Metrics count the ticks; nil counts nowhere.
	Metrics *metrics.Gateway
	// Now is the clock by which projects are measured; nil means time.Now. What is due is
	// decided by the database's.
	Now func() time.Time
}

// Ticker records the ticks of cron connectors as events. All replicas may run one: a tick
// is one event whoever records it.
type Ticker struct {
	opts  TickerOptions
	rooms *rooms
	// runs is how many runs a round starts, at most tickRuns.
	runs int
}

// NewTicker returns a ticker.
func NewTicker(opts TickerOptions) *Ticker {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	return &Ticker{opts: opts, rooms: newRooms(opts.Store, opts.Now), runs: tickRuns}
}

// Run records what is due until ctx ends.
func (t *Ticker) Run(ctx context.Context) error {
	for {
		wait, err := t.look(ctx)
		if err != nil && ctx.Err() == nil {
			t.opts.Logger.Error("running cron connectors", "error", err)
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// look records all that is due, and says when to look again.
func (t *Ticker) look(ctx context.Context) (wait time.Duration, err error) {
	for ctx.Err() == nil {
		due, done, err := t.round(ctx)
		switch {
		case err != nil:
			return lookAgain, err
		case len(due.Ticks) == 0 && len(t.rooms.unknown()) > 0: // whose ticks are due, and wait
			return lookAgain, nil
		case len(due.Ticks) == 0:
			return untilNext(due), nil
		case done == 0: // somebody else has done it all, or the connectors change
			return lookAgain, nil
		}
	}
	return 0, nil
}

// untilNext is how long nothing is due.
func untilNext(due store.DueTicks) time.Duration {
	if due.Next == nil {
		return lookEvery
	}
	return min(max(due.Next.Sub(due.Now), 0), lookEvery)
}

// round records some of what is due; done is how many ticks went on for it.
func (t *Ticker) round(ctx context.Context) (due store.DueTicks, done int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if due, err = t.opts.Store.DueTicks(ctx, tickLimit, t.rooms.unknown()...); err != nil || len(due.Ticks) == 0 {
		return due, 0, err
	}
	due.Ticks = atMost(due.Ticks, t.runs)
	defer func() { t.learn(ctx, err) }()
	projects := map[uuid.UUID]bool{}
	for _, d := range due.Ticks {
		projects[d.Route.Connector.ProjectID] = true
	}
	unmeasured := t.rooms.measure(ctx, projects)
	due.Ticks = slices.DeleteFunc(due.Ticks, func(d store.DueTick) bool { return t.rooms.isUnknown(d.Route.Connector.ProjectID) })
	if len(due.Ticks) == 0 {
		return due, 0, unmeasured
	}
	if unmeasured != nil {
		t.opts.Logger.Error("running cron connectors: the ticks of some projects wait", "error", unmeasured)
	}
	var (
		events []store.Event
		moves  []store.TickMove
	)
	for _, d := range due.Ticks {
		event, move, err := t.decide(d, due.Now)
		switch {
		case err != nil:
			return due, 0, err
		case event != nil:
			events = append(events, *event)
		default:
			moves = append(moves, move)
		}
	}
	over, recorded, err := t.record(ctx, events)
	if err != nil {
		return due, 0, err
	}
	moved := 0
	if moves = append(moves, over...); len(moves) > 0 {
		moved, err = t.opts.Store.MoveTicks(ctx, moves)
	}
	return due, recorded + moved, err
}

// atMost are the first of the ticks, at least one, that start no more than so many runs; one
// that starts none counts as one.
func atMost(ticks []store.DueTick, runs int) []store.DueTick {
	for i, d := range ticks {
		if runs -= max(len(d.Route.Links), 1); runs < 0 && i > 0 {
			return ticks[:i]
		}
	}
	return ticks
}

// learn has the next round start fewer runs where this one took too long, and more where it
// did not.
func (t *Ticker) learn(ctx context.Context, err error) {
	switch {
	case err == nil:
		t.runs = min(2*t.runs, tickRuns)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		t.runs = max(t.runs/2, 1)
	}
}

// decide makes an event of what is due of a connector; a move alone where there is none.
func (t *Ticker) decide(due store.DueTick, now time.Time) (*store.Event, store.TickMove, error) {
	move := store.TickMove{Connector: due.Route.Connector.Key(), From: due.At}
	config, err := due.Route.Connector.Cron()
	var schedule cron.Schedule
	if err == nil {
		schedule, err = cron.Parse(config.Schedule, config.TimeZone)
	}
	missed, wrong := cron.ParseMissed(config.MissedTicks)
	if err = errors.Join(err, wrong); err != nil { // of another release: those who can read it go on with it
		t.opts.Logger.Error("reading the schedule of a cron connector", "connector", move.Connector, "error", err)
		t.opts.Metrics.Ticked(metrics.TickFailed, 1)
		move.To = now.Add(time.Minute)
		return nil, move, nil
	}
	step := plan(due, schedule, missed, now)
	move.To, move.Planned, move.Done = step.next, step.planned, step.tick
	if step.tick.IsZero() {
		return nil, move, nil
	}
	event, err := newEvent(due.Route, config, step)
	if err != nil {
		return nil, move, err
	}
	if event.Skipped == "" {
		event.Skipped = t.rooms.take(event)
	}
	if event.Skipped != "" {
		event.Runs, event.Input = nil, nil
	}
	event.Tick = &move
	return &event, move, nil
}

// newEvent is the event of a tick.
func newEvent(route store.Route, config store.CronConfig, step step) (store.Event, error) {
	c := route.Connector
	event := store.Event{
		ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID, ConnectorID: c.ID, ConnectorVersion: c.Version,
		Trigger: store.TriggerCron, Class: store.ClassDeferred, ContentType: "application/json", Skipped: step.skipped,
		Idempotency: &store.Idempotency{Key: "tick:" + step.tick.UTC().Format(time.RFC3339), TTL: tickTTL},
	}
	var err error
	if event.ConnectorRunID, err = uuid.NewV7(); err != nil {
		return event, fmt.Errorf("making an id: %w", err)
	}
	event.Input, err = cron.Input{ScheduledAt: step.tick, Prompt: config.Prompt, Payload: config.Payload}.JSON()
	switch {
	case event.Skipped != "":
		return event, nil
	case err != nil:
		event.Skipped = "the input cannot be made: " + err.Error()
		return event, nil
	case len(route.Links) == 0:
		event.Skipped = "no_agent: no agent is linked to the connector"
		return event, nil
	}
	evaluate := expr.On(event.Input)
	for _, link := range route.Links {
		id, err := uuid.NewV7()
		if err != nil {
			return event, fmt.Errorf("making an id: %w", err)
		}
		run := store.EventRun{ID: id, LinkID: link.ID, AgentName: link.AgentName}
		if run.Concurrency, err = route.KeyOf(link.AgentName, event.Input, evaluate); err != nil {
			run.ErrorCode, run.Error = store.RunErrorKeyUnavailable, err.Error()
		}
		event.Runs = append(event.Runs, run)
	}
	return event, nil
}

// record records events, and returns those ticks that are over and have not gone on: their
// event was there before, or cannot be recorded whoever tries.
func (t *Ticker) record(ctx context.Context, events []store.Event) (over []store.TickMove, recorded int, err error) {
	if len(events) == 0 {
		return nil, 0, nil
	}
	admissions, err := t.opts.Store.Accept(ctx, events)
	if errors.Is(err, store.ErrTickTaken) {
		return nil, 0, nil // and all that is due is read again
	}
	if err != nil {
		return nil, 0, fmt.Errorf("recording %d ticks: %w", len(events), err)
	}
	for i, a := range admissions {
		switch {
		case a.Err != nil:
			t.opts.Logger.Error("recording a tick", "connector", events[i].Tick.Connector, "error", a.Err)
			t.opts.Metrics.Ticked(metrics.TickFailed, 1)
			over = append(over, *events[i].Tick)
		case a.Verdict == store.Repeated:
			over = append(over, *events[i].Tick)
		case a.Verdict == store.Accepted && events[i].Skipped != "":
			t.opts.Metrics.Ticked(metrics.TickSkipped, 1)
			recorded++
		case a.Verdict == store.Accepted:
			t.opts.Metrics.Ticked(metrics.TickRun, 1)
			recorded++
		}
	}
	return over, recorded, nil
}
