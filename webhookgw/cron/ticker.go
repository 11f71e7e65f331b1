// SPDX-License-Identifier: Apache-2.0

// Package cron records the ticks of cron connectors as events.
package cron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// tickLimit is the number of ticks that are read and recorded at once. Their inputs are in
	// memory.
	tickLimit = 100
	// tickRuns is the number of runs that one transaction starts, unless a single tick has more.
	// The ticker halves it after a timeout and doubles it again after a success.
	tickRuns = 1024
	// pollInterval is the interval for checking for unexpected ticks, for example of new connectors.
	pollInterval = 5 * time.Second
	// stepTimeout limits a round, so that a hanging store does not stop the ticker. A store can hang after a failover that closed no
	// connection.
	stepTimeout = 10 * time.Second
	// noProgressPause is the pause after a check without progress.
	noProgressPause = time.Second
	// tickTTL is how long the idempotency key of a tick is stored: longer than a replica works on
	// the ticks it has read. Later duplicates are prevented by the move of the tick.
	tickTTL = 10 * time.Minute
)

// Store is the part of the store that ticks need.
type Store interface {
	store.Loads
	DueTicks(ctx context.Context, limit int, without ...uuid.UUID) (store.DueTicks, error)
	MoveTicks(ctx context.Context, moves []store.TickMove) (int, error)
	Accept(ctx context.Context, events []store.Event) ([]store.Admission, error)
}

// Options configure a Ticker.
type Options struct {
	Store  Store
	Logger *slog.Logger
	// Metrics counts the ticks; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for measuring projects; nil means time.Now. The database's clock decides
	// which ticks are due.
	Now func() time.Time
}

// Ticker records the ticks of cron connectors as events. Each gateway can run one, because a tick
// is one event whichever gateway records it.
type Ticker struct {
	opts       Options
	capacities *backlogCapacities
	// runs is the number of runs that a round starts, at most tickRuns.
	runs int
}

// New returns a Ticker.
func New(opts Options) *Ticker {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	return &Ticker{opts: opts, capacities: newBacklogCapacities(opts.Store, opts.Now), runs: tickRuns}
}

// Run records due ticks until ctx ends.
func (t *Ticker) Run(ctx context.Context) error {
	for {
		wait, err := t.processDue(ctx)
		if err != nil && ctx.Err() == nil {
			t.opts.Logger.Error("running cron connectors", "error", err)
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// processDue records all due ticks and returns the time until the next check.
func (t *Ticker) processDue(ctx context.Context) (wait time.Duration, err error) {
	for ctx.Err() == nil {
		due, done, err := t.processRound(ctx)
		switch {
		case err != nil:
			return noProgressPause, err
		case len(due.Ticks) == 0 && len(t.capacities.unknownProjects()) > 0: // their ticks are due and wait
			return noProgressPause, nil
		case len(due.Ticks) == 0:
			return untilNext(due), nil
		case done == 0: // another gateway did it all, or the connectors are changing
			return noProgressPause, nil
		}
	}
	return 0, nil
}

// untilNext returns the time until the next tick is due.
func untilNext(due store.DueTicks) time.Duration {
	if due.Next == nil {
		return pollInterval
	}
	return min(max(due.Next.Sub(due.Now), 0), pollInterval)
}

// processRound records some of the due ticks. done is the number of ticks that advanced.
func (t *Ticker) processRound(ctx context.Context) (due store.DueTicks, done int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if due, err = t.opts.Store.DueTicks(ctx, tickLimit, t.capacities.unknownProjects()...); err != nil || len(due.Ticks) == 0 {
		return due, 0, err
	}
	due.Ticks = limitRuns(due.Ticks, t.runs)
	defer func() { t.adjustRoundSize(ctx, err) }()
	projects := map[uuid.UUID]bool{}
	for _, d := range due.Ticks {
		projects[d.Route.Connector.ProjectID] = true
	}
	unmeasured := t.capacities.measure(ctx, projects)
	due.Ticks = slices.DeleteFunc(due.Ticks, func(d store.DueTick) bool { return t.capacities.isUnknown(d.Route.Connector.ProjectID) })
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
		event, move, err := t.planDue(d, due.Now)
		switch {
		case err != nil:
			return due, 0, err
		case event != nil:
			events = append(events, *event)
		default:
			moves = append(moves, move)
		}
	}
	over, recorded, err := t.recordEvents(ctx, events)
	if err != nil {
		return due, 0, err
	}
	moved := 0
	if moves = append(moves, over...); len(moves) > 0 {
		moved, err = t.opts.Store.MoveTicks(ctx, moves)
	}
	return due, recorded + moved, err
}

// limitRuns returns the first ticks, at least one, that start at most the given number of runs. A tick
// without runs counts as one.
func limitRuns(ticks []store.DueTick, runs int) []store.DueTick {
	for i, d := range ticks {
		if runs -= max(len(d.Route.Links), 1); runs < 0 && i > 0 {
			return ticks[:i]
		}
	}
	return ticks
}

// adjustRoundSize lowers the number of runs of the next round after a timeout, and raises it after a success.
func (t *Ticker) adjustRoundSize(ctx context.Context, err error) {
	switch {
	case err == nil:
		t.runs = min(2*t.runs, tickRuns)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		t.runs = max(t.runs/2, 1)
	}
}

// planDue returns the event for a due tick of a connector, or only a move if there is no event.
func (t *Ticker) planDue(due store.DueTick, now time.Time) (*store.Event, store.TickMove, error) {
	move := store.TickMove{Connector: due.Route.Connector.Key(), From: due.At}
	var (
		schedule cron.Schedule
	)
	config, err := connector.ParseConfig(due.Route.Connector.Config)
	if err == nil {
		schedule, err = cron.Parse(config.Schedule, config.Timezone)
	}
	missed, wrong := cron.ParseMissed(config.MissedTicks)
	if err = errors.Join(err, wrong); err != nil { // another release wrote it, and gateways that can read it will process it
		t.opts.Logger.Error("reading the schedule of a cron connector", "connector", move.Connector, "error", err)
		t.opts.Metrics.Ticked(metrics.TickFailed, 1)
		move.To = now.Add(time.Minute)
		return nil, move, nil
	}
	step := planTick(due, schedule, missed, now)
	move.To, move.Planned, move.Done = step.next, step.planned, step.tick
	if step.tick.IsZero() {
		return nil, move, nil
	}
	event, err := newEvent(due.Route, config, step)
	if err != nil {
		return nil, move, err
	}
	if event.Skipped == "" {
		event.Skipped = t.capacities.reserveCapacity(event)
	}
	if event.Skipped != "" {
		event.Runs, event.Input = nil, nil
	}
	event.Tick = &move
	return &event, move, nil
}

// newEvent returns the event of a tick.
func newEvent(route store.Route, config connector.Config, step tickStep) (store.Event, error) {
	c := route.Connector
	event := store.Event{
		ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID, ConnectorID: c.ID, ConnectorVersion: c.Version,
		Trigger: store.TriggerCron, Class: store.ClassDeferred, ContentType: "application/json", Skipped: step.skipped,
		Idempotency: &store.Idempotency{Key: "tick:" + step.tick.UTC().Format(time.RFC3339), TTL: tickTTL},
	}
	var err error
	if event.ConnectorRunID, err = uuid.NewV7(); err != nil {
		return event, fmt.Errorf("generating an ID: %w", err)
	}
	event.Input, err = cron.Input{ScheduledAt: step.tick, Prompt: config.Prompt, Payload: config.Payload}.JSON()
	switch {
	case event.Skipped != "":
		return event, nil
	case err != nil:
		event.Skipped = "the input cannot be created: " + err.Error()
		return event, nil
	case len(route.Links) == 0:
		event.Skipped = "no_agent: no agent is linked to the connector"
		return event, nil
	}
	err = route.AddRuns(&event, config.RequiresFiles(), expr.On(event.Input))
	return event, err
}

// recordEvents records events. It returns the moves of ticks that are over but did not advance: their
// event existed before, or no gateway can record it.
func (t *Ticker) recordEvents(ctx context.Context, events []store.Event) (over []store.TickMove, recorded int, err error) {
	if len(events) == 0 {
		return nil, 0, nil
	}
	admissions, err := t.opts.Store.Accept(ctx, events)
	if errors.Is(err, store.ErrTickTaken) {
		return nil, 0, nil // all due ticks are read again
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
