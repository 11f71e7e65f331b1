// SPDX-License-Identifier: Apache-2.0

// Package housekeeping runs the periodic work of a gateway on the store:
//
//   - it ends claims with an expired lease
//   - it processes the outbox of ended runs
//   - it creates partitions of history
//   - it deletes expired data, including history
package housekeeping

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

// Intervals and limits of the sweeper.
const (
	// sweepInterval is the interval for expired leases and other due work.
	sweepInterval = 5 * time.Second
	// consumeInterval is the pause after a round that rolled up or indexed runs. Until then,
	// statistics and searches read such runs one by one.
	consumeInterval = time.Second
	// expireInterval is the interval for expired data. Every partitionEvery rounds the sweeper also
	// checks the partitions.
	expireInterval = time.Minute
	partitionEvery = 720
	// sweepLimit is the number of rows per statement.
	sweepLimit = 500
	// partitionsAhead is the number of days to create partitions for.
	partitionsAhead = 14
	// stepTimeout limits each step, so that a hanging store does not block the other steps. A store
	// can hang after a failover that closed no connection.
	stepTimeout = 10 * time.Second
	// dropTimeout limits a step that drops partitions. Each partition may wait for readers.
	dropTimeout = 40 * time.Second
	// turnTimeout limits the time for one kind of work. Then the other kinds run.
	turnTimeout = time.Minute
	// pauseFactor is the pause after a deletion of history, as a multiple of the duration of the
	// deletion. So deletion takes a twentieth of the time, however slow the store is, and other
	// queries get the rest.
	pauseFactor = 19
	// pausePerByte is the pause per deleted byte of a history file. If the file system returns
	// blocks to the disk at once, each commit may wait for 0.5 ms per megabyte. This is then a
	// four-hundredth of the time.
	pausePerByte = 200 * time.Nanosecond
	// maxPause limits the pause. So a day with its nine tables is deleted within two hours,
	// however large it is.
	maxPause = 10 * time.Minute
	// maxTrimDelay limits the delay of a project that counts for the speed of trimming it. So
	// trimming takes at most a third of the time, even if a retention was lowered by months.
	maxTrimDelay = 9 * 24 * time.Hour
)

// grace is how long the store must have answered without an outage before leases are swept. Runners
// need this time to renew their leases after an outage.
const grace = store.LeaseDuration

// Options configure a Sweeper.
type Options struct {
	Store interface {
		store.Housekeeping
		Ping(ctx context.Context) error
	}
	Logger *slog.Logger
	// Retention is how long history is kept; 0 means store.Retention.
	Retention time.Duration
	// Metrics counts the swept rows; nil disables the metrics.
	Metrics *metrics.Gateway
	// Now is the clock for the grace period; nil means time.Now.
	Now func() time.Time
	// WithTimeout limits each step; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Sweeper runs the periodic work. Ending leases does not wait for other work.
type Sweeper struct {
	opts Options
	// reachable is the time since when the store has answered without an outage, or zero after a
	// failed check. lastCheck is the time of the last check.
	reachable, lastCheck time.Time
	// storeClock is the last seen time of the store, and clockReadAt the local time of that check.
	storeClock, clockReadAt time.Time
	// compared means that the two clocks were compared.
	compared bool
	// storeReachable, stableForGrace and clockInSync control the other work: the store answered the last check, it
	// answered for the whole grace period, and its clock is near this process's clock.
	storeReachable, stableForGrace, clockInSync atomic.Bool
	rounds                                      int // rounds of tidy
	// overdue is how long ago the oldest day of history should have been deleted, as a
	// time.Duration.
	overdue atomic.Int64
	// hasExpired means that one round has ended the runs and deliveries that were open for too
	// long.
	hasExpired atomic.Bool
	// halvings is how many times the number of leases per sweep is halved.
	halvings int
}

// New returns a Sweeper. Each gateway can run one.
func New(opts Options) *Sweeper {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
	}
	opts.Retention = cmp.Or(opts.Retention, store.Retention)
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	return &Sweeper{opts: opts}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	s.logError(ctx, s.sweepExpiredLeases(ctx)) // afterwards it is known whether the store answers
	var all sync.WaitGroup
	all.Go(func() { s.runEvery(ctx, sweepInterval, s.sweepExpiredLeases) })
	all.Go(func() { s.runEvery(ctx, sweepInterval, s.runHousekeeping) })
	all.Go(func() { s.runEvery(ctx, expireInterval, s.ifStoreSettled(s.deleteExpired)) })
	all.Go(func() { s.runEvery(ctx, expireInterval, s.ifStoreSettled(s.dropHistory)) })
	all.Go(func() { s.runEvery(ctx, sweepInterval, s.ifStoreSettled(s.trimHistory)) })
	all.Go(func() { s.consumeOutbox(ctx, s.opts.Store.RollUp) })
	all.Go(func() { s.consumeOutbox(ctx, s.indexRuns) })
	all.Wait()
	return nil
}

// runEvery calls do at once and at intervals until ctx ends.
func (s *Sweeper) runEvery(ctx context.Context, every time.Duration, do func(ctx context.Context) error) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		s.logError(ctx, do(ctx))
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// consumeOutbox processes outbox rows until ctx ends, a limited number at a time.
func (s *Sweeper) consumeOutbox(ctx context.Context, do func(ctx context.Context, limit int) (int, error)) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		some, err := s.consumeAll(ctx, do)
		s.logError(ctx, err)
		if some {
			wait.Reset(consumeInterval)
		} else {
			wait.Reset(sweepInterval)
		}
	}
}

// consumeAll processes rows until none is left, while the store answers. It reports whether there
// were any.
func (s *Sweeper) consumeAll(ctx context.Context, do func(ctx context.Context, limit int) (int, error)) (some bool, err error) {
	if !s.storeReachable.Load() {
		return false, nil // sweep logs the error
	}
	err = s.repeatUntilFew(ctx, func(ctx context.Context, limit int) (int, error) {
		n, err := do(ctx, limit)
		some = some || n > 0
		return n, err
	})
	return some, err
}

// indexRuns adds ended runs to the search index.
func (s *Sweeper) indexRuns(ctx context.Context, limit int) (int, error) {
	return s.opts.Store.IndexRuns(ctx, limit, func(run store.Searched) []string {
		return search.Run{Error: run.Error, ErrorCode: string(run.ErrorCode), Output: run.Output, ContentType: run.ContentType, Input: run.Input}.Words()
	})
}

// logError logs an error.
func (s *Sweeper) logError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.opts.Logger.Error("sweeping", "error", err)
	}
}

// runStep runs one step with stepTimeout.
func (s *Sweeper) runStep(ctx context.Context, do func(ctx context.Context) error) error {
	return s.stepWithin(ctx, stepTimeout, do)
}

// stepWithin runs one step with its own timeout.
func (s *Sweeper) stepWithin(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := s.opts.WithTimeout(ctx, within)
	defer cancel()
	return do(ctx)
}

// sweepExpiredLeases ends claims with an expired lease, if the store was reachable for the whole grace period.
func (s *Sweeper) sweepExpiredLeases(ctx context.Context) error {
	err := s.runStep(ctx, s.checkStore)
	s.opts.Metrics.StoreReachable(err == nil)
	s.storeReachable.Store(err == nil)
	if err != nil {
		s.reachable = time.Time{}
		s.stableForGrace.Store(false)
		return err
	}
	settled := s.lastCheck.Sub(s.reachable) >= grace
	s.stableForGrace.Store(settled)
	if !settled {
		return nil
	}
	moved, err := s.endExpiredLeases(ctx)
	if moved > 0 {
		s.opts.Logger.Info("ended claims without a runner", "runs", moved)
	}
	return err
}

// runHousekeeping runs the other work while the store answers. An error of one kind of work does not block the
// others.
func (s *Sweeper) runHousekeeping(ctx context.Context) error {
	if !s.storeReachable.Load() {
		return nil // sweep logs the error
	}
	var partitions error
	if s.rounds++; s.rounds%partitionEvery == 1 {
		if partitions = s.runStep(ctx, s.ensurePartitions); partitions != nil {
			s.rounds = 0 // again at once
		}
	}
	return errors.Join(partitions, s.runStep(ctx, s.opts.Store.Replan), s.repeatUntilFew(ctx, s.opts.Store.CountStored))
}

// ifStoreSettled runs work that ends or deletes rows because of their age. It requires that the store has
// answered for the whole grace period and that the clocks agree, because such rows cannot be
// restored. Each kind of work runs in its own loop, because each can have many rows.
func (s *Sweeper) ifStoreSettled(do func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if !s.storeReachable.Load() || !s.stableForGrace.Load() || !s.clockInSync.Load() {
			return nil
		}
		return do(ctx)
	}
}

// deleteExpired deletes expired rows, ends runs and deliveries that were open for too long, and reports
// overdue history.
func (s *Sweeper) deleteExpired(ctx context.Context) error {
	swept := s.repeatUntilFew(ctx, s.ifClocksAgree(s.opts.Store.SweepExpired))
	runs, deliveries := s.repeatUntilFew(ctx, s.ifClocksAgree(s.expireRuns)), s.repeatUntilFew(ctx, s.ifClocksAgree(s.expireDeliveries))
	if err := worseError(runs, deliveries); err == nil || isSetAside(err) {
		s.hasExpired.Store(true)
	}
	return errors.Join(swept, runs, deliveries, s.runStep(ctx, s.reportOverdue))
}

// isSetAside reports whether an error is only about rows that are set aside.
func isSetAside(err error) bool {
	var aside *store.SetAsideError
	return errors.As(err, &aside)
}

// worseError returns the first of two errors that is not only about rows that are set aside.
func worseError(a, b error) error {
	if a == nil || b != nil && isSetAside(a) {
		return b
	}
	return a
}

// dropHistory deletes expired history. It repeats until no history is left, even if some partitions stay
// because they are read. It starts after the first round of expired runs, because ending a run needs its
// history.
func (s *Sweeper) dropHistory(ctx context.Context) error {
	if !s.hasExpired.Load() {
		return nil
	}
	var last store.Dropped
	drop := func(ctx context.Context, limit int) (n int, err error) {
		last, err = s.opts.Store.DropHistory(ctx, s.opts.Retention, limit)
		s.opts.Metrics.HistoryDropped(last.Count)
		if last.Count > 0 {
			n = limit
		}
		return n, err
	}
	rest := func(took time.Duration) time.Duration { return Rest(took, last.Freed, time.Duration(s.overdue.Load())) }
	return s.repeatPaced(ctx, dropTimeout, rest, s.ifClocksAgree(drop))
}

// trimHistory deletes the history of projects with a shorter retention. The pause after each project is
// shorter if this project is more days late.
func (s *Sweeper) trimHistory(ctx context.Context) error {
	var overdue time.Duration
	look := s.runStep(ctx, func(ctx context.Context) (err error) {
		overdue, err = s.opts.Store.ProjectHistoryOverdue(ctx)
		return err
	})
	if look == nil {
		s.opts.Metrics.ProjectHistoryOverdue(overdue)
	}
	var last store.Trimmed
	trim := func(ctx context.Context, limit int) (n int, err error) {
		last, err = s.opts.Store.TrimHistory(ctx, limit)
		s.opts.Metrics.HistoryDropped(last.Count)
		if last.Count > 0 && (err == nil || errors.As(err, new(*store.SetAsideError))) {
			return limit, err // there is more until nothing is left
		}
		return last.Count, err
	}
	rest := func(took time.Duration) time.Duration { return Rest(took, 0, min(last.Overdue, maxTrimDelay)) }
	return errors.Join(look, s.repeatPaced(ctx, stepTimeout, rest, s.ifClocksAgree(trim)))
}

// ensurePartitions reports the number of partitions even if it cannot create more.
func (s *Sweeper) ensurePartitions(ctx context.Context) error {
	days, err := s.opts.Store.EnsurePartitions(ctx, partitionsAhead)
	s.opts.Metrics.Partitions(days)
	return err
}

// endExpiredLeases ends claims with an expired lease until few are left, so that many leases of one project
// do not delay the others.
func (s *Sweeper) endExpiredLeases(ctx context.Context) (moved int, errs error) {
	for ctx.Err() == nil {
		var (
			swept store.Swept
			late  bool
		)
		limit := sweepLimit >> s.halvings
		err := s.runStep(ctx, func(ctx context.Context) (err error) {
			swept, err = s.opts.Store.SweepLeases(ctx, limit)
			late = ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
			return err
		})
		s.countSwept(swept)
		moved += swept.Runs()
		if err == nil {
			s.lastCheck = s.opts.Now() // a long step is no pause of the process
		}
		s.adjustBatchSize(err != nil && late && swept.Runs() == 0)
		errs = cmp.Or(errs, err)
		if swept.Runs() < limit { // otherwise there are more, even if some failed
			return moved, errs
		}
	}
	return moved, errs
}

// adjustBatchSize halves the number of leases per sweep after each timeout, because the store may be too slow
// for so many. It doubles the number after each other sweep. An immediate error does not count as a
// timeout: it comes from one run, and smaller sweeps would delay more of the other runs.
func (s *Sweeper) adjustBatchSize(failed bool) {
	switch {
	case failed && sweepLimit>>s.halvings > 1:
		s.halvings++
	case !failed && s.halvings > 0:
		s.halvings--
	}
}

func (s *Sweeper) countSwept(swept store.Swept) {
	s.opts.Metrics.LeasesLost(metrics.LeaseGivenBack, swept.GivenBack)
	s.opts.Metrics.LeasesLost(metrics.LeaseFailed, swept.Failed)
	s.opts.Metrics.Ended(string(store.RunFailed), swept.Failed)
	s.opts.Metrics.Ended(string(store.RunCancelled), swept.Cancelled)
}

// expireRuns ends runs that have been open for too long.
func (s *Sweeper) expireRuns(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.ExpireRuns(ctx, store.OpenFor(s.opts.Retention), limit)
	s.opts.Metrics.Ended(string(store.RunFailed), n)
	return n, err
}

// expireDeliveries ends deliveries that have been open for too long.
func (s *Sweeper) expireDeliveries(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.ExpireDeliveries(ctx, store.OpenFor(s.opts.Retention), limit)
	for range n {
		s.opts.Metrics.DeliveryEnded(store.DeliveryFailed.String())
	}
	return n, err
}

// reportOverdue reports how long ago the oldest day of history should have been deleted, and how long
// the oldest open day has been older than the retention.
func (s *Sweeper) reportOverdue(ctx context.Context) error {
	now, err := s.opts.Store.Now(ctx)
	if err != nil {
		return err
	}
	oldest, err := s.opts.Store.OldestHistory(ctx)
	if err != nil {
		return err
	}
	overdue := s.overdueSince(oldest.Deletable, now)
	s.overdue.Store(int64(overdue))
	s.opts.Metrics.HistoryOverdue(overdue)
	s.opts.Metrics.OpenHistoryOverdue(s.overdueSince(oldest.Open, now))
	return nil
}

// overdueSince returns how long a day has been older than the retention; 0 for no day.
func (s *Sweeper) overdueSince(begin, now time.Time) time.Duration {
	if begin.IsZero() {
		return 0
	}
	return max(now.Sub(begin.Add(24*time.Hour))-s.opts.Retention, 0)
}

// Rest returns the pause after a deletion that took a given time and freed a number of bytes. The
// pause is shorter if more days are overdue.
func Rest(deleted time.Duration, freed int64, overdue time.Duration) time.Duration {
	rest := min(max(pauseFactor*deleted, time.Duration(freed)*pausePerByte), maxPause)
	return rest / (1 + overdue/(24*time.Hour))
}

// repeatUntilFew calls take until few rows are left, or the turn is over.
func (s *Sweeper) repeatUntilFew(ctx context.Context, take func(ctx context.Context, limit int) (int, error)) error {
	return s.repeatPaced(ctx, stepTimeout, func(time.Duration) time.Duration { return 0 }, take)
}

// repeatPaced is like repeatUntilFew, but pauses after each call for a time that depends on its duration.
func (s *Sweeper) repeatPaced(
	ctx context.Context, within time.Duration, rest func(took time.Duration) time.Duration, take func(ctx context.Context, limit int) (int, error),
) error {
	var errs error
	for begin := s.opts.Now(); ctx.Err() == nil && s.opts.Now().Sub(begin) < turnTimeout; {
		n, begun := 0, s.opts.Now()
		errs = worseError(errs, s.stepWithin(ctx, within, func(ctx context.Context) (err error) {
			n, err = take(ctx, sweepLimit)
			return err
		}))
		select { // also after a failure, because it may have taken long
		case <-time.After(rest(s.opts.Now().Sub(begun))):
		case <-ctx.Done():
		}
		if n < sweepLimit { // otherwise there are more, even if some failed
			return errs
		}
	}
	return errs
}
