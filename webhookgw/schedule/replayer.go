// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

const (
	// replaysAtOnce is how many replays a gateway takes on at once.
	replaysAtOnce = 4
	// replayLease is how long nobody else takes on a replay that a gateway has taken.
	replayLease = 30 * time.Second
	// replayTime is after how long a gateway begins with no other original before it lets the
	// next replay have its turn.
	replayTime = 5 * time.Second
	// roomWait and openWait are how long a replay waits for room in its project, and for its
	// connector to take events or to send again.
	roomWait = 10 * time.Second
	openWait = 30 * time.Second
	// stuckTries is how often an original is tried in all that cannot be read or written, in half
	// an hour: after stuckWait at first, twice as long each time, and at most maxStuckWait.
	stuckTries   = 8
	stuckWait    = 30 * time.Second
	maxStuckWait = 10 * time.Minute
)

// Reasons of replays that have failed, and of originals that were refused, beside those of
// package replay.
const (
	replayExpired    = "expired"
	replayTooMany    = "too_many"
	replayUnstorable = "not_storable"
	replayStuck      = "unreadable"
)

// ReplayStore is what replays of many need of the store.
type ReplayStore interface {
	replay.Store
	NextReplay(ctx context.Context) (now time.Time, next *time.Time, err error)
	TakeReplays(ctx context.Context, limit int, lease time.Duration) ([]store.Replay, error)
	ReplayOriginals(ctx context.Context, r store.Replay, limit int) (store.ReplayPage, error)
	MoveReplay(ctx context.Context, step store.ReplayStep) error
}

// ReplayerOptions configure a Replayer.
type ReplayerOptions struct {
	Store  ReplayStore
	Logger *slog.Logger
	// Metrics count what is replayed; nil counts nowhere.
	Metrics *metrics.Gateway
	// Now is the clock by which replays take turns; nil means time.Now. What is due is
	// decided by the database's.
	Now func() time.Time
}

// Replayer takes on replays of many. All replicas may run one: an original happens again
// once, in the transaction that takes its replay on.
type Replayer struct{ opts ReplayerOptions }

// NewReplayer returns a replayer.
func NewReplayer(opts ReplayerOptions) *Replayer {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	return &Replayer{opts: opts}
}

// Run takes on what is due until ctx ends.
func (r *Replayer) Run(ctx context.Context) error {
	for {
		wait, err := r.look(ctx)
		if err != nil && ctx.Err() == nil {
			r.opts.Logger.Error("replaying", "error", err)
		}
		if pause.For(ctx, wait) != nil {
			return nil
		}
	}
}

// look takes on all that is due, and says when to look again.
func (r *Replayer) look(ctx context.Context) (wait time.Duration, err error) {
	for ctx.Err() == nil {
		taken, wait, err := r.take(ctx)
		if err != nil || len(taken) == 0 {
			return wait, err
		}
		var group errgroup.Group
		for _, replay := range taken {
			group.Go(func() error { return r.advance(ctx, replay) })
		}
		if err := group.Wait(); err != nil {
			return lookAgain, err
		}
	}
	return 0, nil
}

// take takes replays that are due; where there are none it says when to look again.
func (r *Replayer) take(ctx context.Context) (taken []store.Replay, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	now, next, err := r.opts.Store.NextReplay(ctx)
	switch {
	case err != nil:
		return nil, lookAgain, err
	case next == nil:
		return nil, lookEvery, nil
	case next.After(now):
		return nil, min(next.Sub(now), lookEvery), nil
	}
	taken, err = r.opts.Store.TakeReplays(ctx, replaysAtOnce, replayLease)
	return taken, lookAgain, err
}

// advance takes a replay on. That somebody else has is no error, and neither is that it was
// cancelled.
func (r *Replayer) advance(ctx context.Context, taken store.Replay) error {
	ctx, cancel := context.WithTimeout(ctx, replayLease)
	defer cancel()
	t := turn{store: r.opts.Store, metrics: r.opts.Metrics, at: taken, written: taken.Position, now: r.opts.Now, until: r.opts.Now().Add(replayTime)}
	err := t.run(ctx)
	if errors.Is(err, store.ErrReplayMoved) {
		return nil
	}
	if err == nil && t.at.Status != store.ReplayRunning {
		r.opts.Logger.Info("a replay has ended", "replay", t.at.Key(), "status", string(t.at.Status), "reason", t.at.Reason,
			"replayed", t.at.Replayed, "refused", t.at.Done()-t.at.Replayed)
	}
	if err != nil {
		err = fmt.Errorf("taking replay %s on: %w", taken.Key(), err)
	}
	return err
}

// turn is what is done of a replay at a time.
type turn struct {
	store   ReplayStore
	metrics *metrics.Gateway
	load    store.ProjectLoad
	// at is the replay as it is now; written is its position in the store.
	at      store.Replay
	written uuid.UUID
	now     func() time.Time
	until   time.Time
	// over says that nothing more is to be done in this turn.
	over bool
}

// run replays as many as the rate lets happen at once, and says when it goes on.
func (t *turn) run(ctx context.Context) (err error) {
	if t.at.TakenAt.Sub(t.at.CreatedAt) > store.MaxOpen {
		return t.end(ctx, store.ReplayFailed, replayExpired, "It has not come to its end in 30 days.")
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
			if err := t.replay(ctx, original); err != nil || t.over {
				return err
			}
			if left--; !t.now().Before(t.until) {
				return t.move(ctx, t.at, due)
			}
		}
		t.at.Position = page.Last
		if page.End {
			return t.end(ctx, store.ReplayCompleted, "", "")
		}
	}
	return t.move(ctx, t.at, due)
}

// replay lets an original happen again, counts it as one that cannot, or lets the replay
// wait or end for it.
func (t *turn) replay(ctx context.Context, original store.ConnectorRun) error {
	if t.at.Done() >= store.MaxReplayed {
		return t.end(ctx, store.ReplayFailed, replayTooMany, fmt.Sprintf(
			"One replay replays at most %d connector runs, and there are more. Begin another one with a later since.", store.MaxReplayed))
	}
	to := t.at
	to.Position, to.Tries, to.Reason, to.Detail = original.ID, 0, "", ""
	to.Replayed++
	a, err := replay.Step(ctx, t.store, expr.On, t.load, original, store.ReplayStep{From: t.written, To: to})
	var refused *replay.Refused
	switch {
	case err == nil:
		t.count(original, a)
		t.metrics.Replayed(metrics.ReplayDone)
		t.at, t.written = to, to.Position
		return nil
	case errors.As(err, &refused):
		return t.refused(ctx, original, *refused)
	case errors.Is(err, store.ErrNotFound):
		return t.refuse(ctx, original, string(replay.Gone))
	case errors.Is(err, replay.ErrUnstorable):
		return t.refuse(ctx, original, replayUnstorable)
	}
	return t.stuck(ctx, original, err)
}

// stuck says in the replay that it has not come past an original, as far as the store takes
// that, and lets it try again. At last it counts that one as one that cannot be replayed, and the
// replay goes on without it.
func (t *turn) stuck(ctx context.Context, original store.ConnectorRun, because error) error {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(because, store.ErrReplayMoved) {
		return because // the gateway stops, or the replay has gone on elsewhere
	}
	t.over = true
	// What failed may have taken all the time that there was.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	to := t.at
	if to.Tries++; to.Tries >= stuckTries {
		return errors.Join(fmt.Errorf("passing over connector run %s after %d tries: %w", original.ID, to.Tries, because), t.refuse(ctx, original, replayStuck))
	}
	wait := min(stuckWait<<(to.Tries-1), maxStuckWait)
	to.Reason, to.Detail = replayStuck, fmt.Sprintf("Connector run %s cannot be replayed at the moment, for what it has stored cannot be read or written. "+
		"It was tried %d of %d times, and is tried again in %d seconds; after the last time it is counted as refused, and the replay goes on without it.",
		original.ID, to.Tries, stuckTries, int(wait.Seconds()))
	return errors.Join(because, t.move(ctx, to, t.at.TakenAt.Add(wait)))
}

// refused deals with an original that is not replayed now, or never is.
func (t *turn) refused(ctx context.Context, original store.ConnectorRun, r replay.Refused) error {
	var wait time.Duration
	switch r.Reason {
	case replay.Gone, replay.InProgress, replay.NotOutbound:
		return t.refuse(ctx, original, string(r.Reason))
	case replay.Retired:
		return t.end(ctx, store.ReplayFailed, string(r.Reason), r.Detail)
	case replay.BacklogFull, replay.StorageFull, replay.Changing:
		wait = roomWait
	default:
		wait = openWait
	}
	t.over = true
	to := t.at
	to.Reason, to.Detail = string(r.Reason), r.Detail
	return t.move(ctx, to, t.at.TakenAt.Add(wait))
}

// refuse counts an original that cannot be replayed.
func (t *turn) refuse(ctx context.Context, original store.ConnectorRun, reason string) error {
	to := t.at
	to.Position, to.Tries, to.Reason, to.Detail, to.Refused = original.ID, 0, "", "", maps.Clone(t.at.Refused)
	if to.Refused == nil {
		to.Refused = map[string]int64{}
	}
	to.Refused[reason]++
	if err := t.move(ctx, to, time.Time{}); err != nil {
		return err
	}
	t.metrics.Replayed(metrics.ReplayRefused)
	return nil
}

// count notes that a project has more open than when it was measured.
func (t *turn) count(original store.ConnectorRun, a store.Admission) {
	if original.Trigger == store.TriggerOutbound || t.load.Backlog == nil {
		return
	}
	backlog := t.load.Backlog[original.EnvironmentID]
	backlog.Runs += int64(len(a.RunIDs))
	t.load.Backlog[original.EnvironmentID] = backlog
}

// end ends the replay.
func (t *turn) end(ctx context.Context, status store.ReplayStatus, reason, detail string) error {
	t.over = true
	to := t.at
	to.Status, to.Reason, to.Detail = status, reason, detail
	return t.move(ctx, to, time.Time{})
}

// move writes how far the replay has come, and when it goes on.
func (t *turn) move(ctx context.Context, to store.Replay, due time.Time) error {
	if err := t.store.MoveReplay(ctx, store.ReplayStep{From: t.written, To: to, Due: due}); err != nil {
		return err
	}
	t.at, t.written = to, to.Position
	return nil
}
