// SPDX-License-Identifier: Apache-2.0

// Package replay processes bulk replays of connector runs.
package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

const (
	// replaysAtOnce limits the bulk replays that a gateway processes at the same time.
	replaysAtOnce = 4
	// replayLease is how long a gateway has a replay for itself.
	replayLease = 30 * time.Second
	// replayTurnTime is the time after which a gateway starts no further original and continues with
	// the next replay.
	replayTurnTime = 5 * time.Second
	// pollInterval is the interval for checking for new replays, and noProgressPause the pause after a check that failed.
	pollInterval    = 5 * time.Second
	noProgressPause = time.Second
	// stepTimeout limits a query, so that a hanging store does not stop the replayer.
	stepTimeout = 10 * time.Second
	// capacityWait and connectorWait are how long a replay waits for free capacity in its project, and for
	// its connector to accept events or to send again.
	capacityWait  = 10 * time.Second
	connectorWait = 30 * time.Second
	// stuckTries is how often the replayer tries an original that cannot be read or written. The
	// backoff starts at stuckWait, doubles each time up to maxStuckWait, and takes half an hour in
	// total.
	stuckTries   = 8
	stuckWait    = 30 * time.Second
	maxStuckWait = 10 * time.Minute
)

// Reasons of failed replays and of refused originals, in addition to the reasons of store/replay.
const (
	replayExpired    = "expired"
	replayTooMany    = "too_many"
	replayUnstorable = "not_storable"
	replayStuck      = "unreadable"
)

// Store is the part of the store that bulk replays need.
type Store interface {
	replay.Store
	NextReplay(ctx context.Context) (now time.Time, next *time.Time, err error)
	TakeReplays(ctx context.Context, limit int, lease time.Duration) ([]store.Replay, error)
	ReplayOriginals(ctx context.Context, r store.Replay, limit int) (store.ReplayPage, error)
	MoveReplay(ctx context.Context, step store.ReplayStep) error
}

// Options configure a Replayer.
type Options struct {
	Store  Store
	Logger *slog.Logger
	// Metrics counts the replays; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for the time slices of replays; nil means time.Now. The database's clock
	// decides which replays are due.
	Now func() time.Time
}

// Replayer processes bulk replays. Each gateway can run one, because an original is replayed in the
// transaction that advances its replay.
type Replayer struct{ opts Options }

// New returns a Replayer.
func New(opts Options) *Replayer {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	return &Replayer{opts: opts}
}

// Run processes due replays until ctx ends.
func (r *Replayer) Run(ctx context.Context) error {
	for {
		wait, err := r.processDue(ctx)
		if err != nil && ctx.Err() == nil {
			r.opts.Logger.Error("replaying", "error", err)
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// processDue processes all due replays and returns the time until the next check.
func (r *Replayer) processDue(ctx context.Context) (wait time.Duration, err error) {
	for ctx.Err() == nil {
		taken, wait, err := r.takeDue(ctx)
		if err != nil || len(taken) == 0 {
			return wait, err
		}
		var group errgroup.Group
		for _, replay := range taken {
			group.Go(func() error { return r.advance(ctx, replay) })
		}
		if err := group.Wait(); err != nil {
			return noProgressPause, err
		}
	}
	return 0, nil
}

// takeDue claims due replays. If none is due, it returns the time until the next check.
func (r *Replayer) takeDue(ctx context.Context) (taken []store.Replay, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	now, next, err := r.opts.Store.NextReplay(ctx)
	switch {
	case err != nil:
		return nil, noProgressPause, err
	case next == nil:
		return nil, pollInterval, nil
	case next.After(now):
		return nil, min(next.Sub(now), pollInterval), nil
	}
	taken, err = r.opts.Store.TakeReplays(ctx, replaysAtOnce, replayLease)
	return taken, noProgressPause, err
}

// advance continues a replay. It returns no error if another gateway has the replay, or if the
// replay was cancelled.
func (r *Replayer) advance(ctx context.Context, taken store.Replay) error {
	ctx, cancel := context.WithTimeout(ctx, replayLease)
	defer cancel()
	t := replayTurn{store: r.opts.Store, metrics: r.opts.Metrics, at: taken, written: taken.Position, now: r.opts.Now, until: r.opts.Now().Add(replayTurnTime)}
	err := t.replayBatch(ctx)
	if errors.Is(err, store.ErrReplayMoved) {
		return nil
	}
	if err == nil && t.at.Status != store.ReplayRunning {
		r.opts.Logger.Info("a replay has ended", "replay", t.at.Key(), "status", string(t.at.Status), "reason", t.at.Reason,
			"replayed", t.at.Replayed, "refused", t.at.Done()-t.at.Replayed)
	}
	if err != nil {
		err = fmt.Errorf("continuing replay %s: %w", taken.Key(), err)
	}
	return err
}

// replayTurn is one time slice of a replay.
type replayTurn struct {
	store   Store
	metrics *metrics.Gateway
	load    store.ProjectLoad
	// at is the current replay. written is its position in the store.
	at      store.Replay
	written uuid.UUID
	now     func() time.Time
	until   time.Time
	// over means that the turn ends.
	over bool
}

// replayBatch replays as many originals as the rate allows now, and stores when to continue.
func (t *replayTurn) replayBatch(ctx context.Context) (err error) {
	if t.at.TakenAt.Sub(t.at.CreatedAt) > store.MaxOpen {
		return t.endReplay(ctx, store.ReplayFailed, replayExpired, "The replay did not end within 30 days.")
	}
	if t.load, err = t.store.ProjectLoad(ctx, t.at.ProjectID); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	at := int(max(t.at.PerMinute/60, 1))
	due := t.at.TakenAt.Add(time.Minute * time.Duration(at) / time.Duration(t.at.PerMinute))
	for left := at; left > 0 && t.now().Before(t.until); {
		page, err := t.store.ReplayOriginals(ctx, t.at, left)
		if err != nil {
			return err
		}
		for _, original := range page.Originals {
			if err := t.replayOriginal(ctx, original); err != nil || t.over {
				return err
			}
			if left--; !t.now().Before(t.until) {
				return t.saveProgress(ctx, t.at, due)
			}
		}
		t.at.Position = page.Last
		if page.End {
			return t.endReplay(ctx, store.ReplayCompleted, "", "")
		}
	}
	return t.saveProgress(ctx, t.at, due)
}

// replayOriginal replays an original, counts it as refused, or makes the replay wait or end.
func (t *replayTurn) replayOriginal(ctx context.Context, original store.ConnectorRun) error {
	if t.at.Done() >= store.MaxReplayed {
		return t.endReplay(ctx, store.ReplayFailed, replayTooMany, fmt.Sprintf(
			"A replay has at most %d connector runs, and there are more. Start another one with a later since.", store.MaxReplayed))
	}
	to := t.at
	to.Position, to.Tries, to.Reason, to.Detail = original.ID, 0, "", ""
	to.Replayed++
	a, err := replay.Step(ctx, t.store, replay.Rules{Evaluate: expr.On, RequiresFiles: connector.RequiresFiles}, t.load, original, store.ReplayStep{From: t.written, To: to})
	var refused *replay.Refused
	switch {
	case err == nil:
		t.countOpened(original, a)
		t.metrics.Replayed(metrics.ReplayDone)
		t.at, t.written = to, to.Position
		return nil
	case errors.As(err, &refused):
		return t.handleRefusal(ctx, original, *refused)
	case errors.Is(err, store.ErrNotFound):
		return t.recordRefused(ctx, original, string(replay.Gone))
	case errors.Is(err, replay.ErrUnstorable):
		return t.recordRefused(ctx, original, replayUnstorable)
	}
	return t.recordStuck(ctx, original, err)
}

// recordStuck records a failed original in the replay, if the store accepts it, and schedules a retry.
// After the last try it counts the original as refused, and the replay continues without it.
func (t *replayTurn) recordStuck(ctx context.Context, original store.ConnectorRun, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(because, store.ErrReplayMoved) {
		return because // the gateway stops, or another gateway has the replay
	}
	t.over = true
	// The failed try may have used the whole time limit.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	to := t.at
	if to.Tries++; to.Tries >= stuckTries {
		return errors.Join(fmt.Errorf("skipping connector run %s after %d tries: %w", original.ID, to.Tries, because), t.recordRefused(ctx, original, replayStuck))
	}
	wait := min(stuckWait<<(to.Tries-1), maxStuckWait)
	to.Reason, to.Detail = replayStuck, fmt.Sprintf("Connector run %s cannot be replayed at the moment, because its data cannot be read or written. "+
		"Try %d of %d failed; the next try is in %d seconds. After the last try it counts as refused, and the replay continues without it.",
		original.ID, to.Tries, stuckTries, int(wait.Seconds()))
	return errors.Join(because, t.saveProgress(ctx, to, t.at.TakenAt.Add(wait)))
}

// handleRefusal handles an original that cannot be replayed now or at all.
func (t *replayTurn) handleRefusal(ctx context.Context, original store.ConnectorRun, r replay.Refused) error {
	var wait time.Duration
	switch r.Reason {
	case replay.Gone, replay.InProgress, replay.NotOutbound:
		return t.recordRefused(ctx, original, string(r.Reason))
	case replay.Retired:
		return t.endReplay(ctx, store.ReplayFailed, string(r.Reason), r.Detail)
	case replay.BacklogFull, replay.StorageFull, replay.Changing:
		wait = capacityWait
	default:
		wait = connectorWait
	}
	t.over = true
	to := t.at
	to.Reason, to.Detail = string(r.Reason), r.Detail
	return t.saveProgress(ctx, to, t.at.TakenAt.Add(wait))
}

// recordRefused counts an original that cannot be replayed.
func (t *replayTurn) recordRefused(ctx context.Context, original store.ConnectorRun, reason string) error {
	to := t.at
	to.Position, to.Tries, to.Reason, to.Detail, to.Refused = original.ID, 0, "", "", maps.Clone(t.at.Refused)
	if to.Refused == nil {
		to.Refused = map[string]int64{}
	}
	to.Refused[reason]++
	if err := t.saveProgress(ctx, to, time.Time{}); err != nil {
		return err
	}
	t.metrics.Replayed(metrics.ReplayRefused)
	return nil
}

// countOpened adds the runs of a replayed original to the measured load of the project.
func (t *replayTurn) countOpened(original store.ConnectorRun, a store.Admission) {
	if original.Trigger == store.TriggerOutbound || t.load.Backlog == nil {
		return
	}
	backlog := t.load.Backlog[original.EnvironmentID]
	backlog.Runs += int64(len(a.RunIDs))
	t.load.Backlog[original.EnvironmentID] = backlog
}

// endReplay ends the replay.
func (t *replayTurn) endReplay(ctx context.Context, status store.ReplayStatus, reason, detail string) error {
	t.over = true
	to := t.at
	to.Status, to.Reason, to.Detail = status, reason, detail
	return t.saveProgress(ctx, to, time.Time{})
}

// saveProgress stores the progress of the replay and when it continues.
func (t *replayTurn) saveProgress(ctx context.Context, to store.Replay, due time.Time) error {
	if err := t.store.MoveReplay(ctx, store.ReplayStep{From: t.written, To: to, Due: due}); err != nil {
		return err
	}
	t.at, t.written = to, to.Position
	return nil
}
