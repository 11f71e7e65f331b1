// SPDX-License-Identifier: Apache-2.0

// Package schedule does what is due: it records the ticks of cron connectors, takes on replays
// of many, ends claims whose lease expired, consumes what ended runs leave to do, makes room for history, and
// deletes what is remembered for a time only, history among it.
package schedule

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

// Intervals and bounds of sweeping.
const (
	// sweepInterval is how often leases are looked at, and what else is due.
	sweepInterval = 5 * time.Second
	// consumeInterval is how soon ended runs are rolled up or indexed again where some were a
	// moment ago: what is not is read one by one by who asks for numbers, or searches.
	consumeInterval = time.Second
	// expireInterval is how often what is too old is looked for, partitionEvery how many rounds make
	// one look at the partitions.
	expireInterval = time.Minute
	partitionEvery = 720
	// sweepLimit is how many rows one statement moves.
	sweepLimit = 500
	// partitionsAhead is for how many days partitions are made.
	partitionsAhead = 14
	// stepTimeout bounds each step: a store that does not answer, as after a failover
	// that nobody was told of, holds nothing up for longer.
	stepTimeout = 10 * time.Second
	// dropTimeout bounds a step that drops partitions, of which each may wait for readers.
	dropTimeout = 40 * time.Second
	// sweepTurn is how long what is due goes on at most, however much of it there is, until the
	// rest has its turn.
	sweepTurn = time.Minute
	// restFor is how many times as long as history was deleted nobody here deletes any after that: so that
	// takes a twentieth of the time, however slow the store is, and whoever waits for it, or for the disk,
	// has the rest.
	restFor = 19
	// restForByte is for how long nobody here deletes any after a file of history went, for each of its
	// bytes: where the file system gives blocks back to the disk at once, every commit may wait for 0.5 ms
	// a megabyte, which is a four hundredth of the time then.
	restForByte = 200 * time.Nanosecond
	// longestRest bounds that: a day, with its nine tables, goes in two hours, however large it is.
	longestRest = 10 * time.Minute
	// maxTrimHaste is how overdue a project counts as at most: so deleting its history takes a third of the
	// time and no more, even if its retention was lowered by months.
	maxTrimHaste = 9 * 24 * time.Hour
)

// grace is how long the store must have answered without a break before leases
// are swept: runners need that long to renew theirs after an outage.
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
	// Metrics count what is swept; nil counts nowhere.
	Metrics *metrics.Gateway
	// Now is the clock of the grace; nil means time.Now.
	Now func() time.Time
	// WithTimeout bounds each step; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Sweeper sweeps at intervals. What ends leases waits for nothing else that is due.
type Sweeper struct {
	opts Options
	// reachable is since when the store answered without a break; zero when it
	// did not the last time. looked is when it did last.
	reachable, looked time.Time
	// clock is the store's as it was last seen, asked when that was.
	clock, asked time.Time
	// compared says whether the two clocks have been.
	compared bool
	// answers, settled and agree are what the rest goes by: whether the store answered when it
	// was last asked, and has for the whole grace; and whether its clock is near this process's.
	answers, settled, agree atomic.Bool
	rounds                  int // of tidy
	// overdue is for how long the oldest day of history should have been deleted, a time.Duration.
	overdue atomic.Int64
	// hasExpired says that what was open for too long has been ended once.
	hasExpired atomic.Bool
	// slow is how often the number of leases that are swept at once is halved.
	slow int
}

// New returns a sweeper; all replicas of the gateway may run one.
func New(opts Options) *Sweeper {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
	}
	opts.Retention = cmp.Or(opts.Retention, store.Retention)
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
	}
	return &Sweeper{opts: opts}
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) error {
	s.log(ctx, s.sweep(ctx)) // after which it is known whether the store answers
	var all sync.WaitGroup
	all.Go(func() { s.repeat(ctx, sweepInterval, s.sweep) })
	all.Go(func() { s.repeat(ctx, sweepInterval, s.tidy) })
	all.Go(func() { s.repeat(ctx, expireInterval, s.forAge(s.expired)) })
	all.Go(func() { s.repeat(ctx, expireInterval, s.forAge(s.dropped)) })
	all.Go(func() { s.repeat(ctx, sweepInterval, s.forAge(s.trimmed)) })
	all.Go(func() { s.consume(ctx, s.opts.Store.RollUp) })
	all.Go(func() { s.consume(ctx, s.indexRuns) })
	all.Wait()
	return nil
}

// repeat does something at once and at intervals until ctx ends.
func (s *Sweeper) repeat(ctx context.Context, every time.Duration, do func(ctx context.Context) error) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		s.log(ctx, do(ctx))
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// consume does what is left to do for what has ended until ctx ends: by so many rows of the
// outbox at a time.
func (s *Sweeper) consume(ctx context.Context, do func(ctx context.Context, limit int) (int, error)) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		some, err := s.consumeAll(ctx, do)
		s.log(ctx, err)
		if some {
			wait.Reset(consumeInterval)
		} else {
			wait.Reset(sweepInterval)
		}
	}
}

// consumeAll does so until nothing is left, while the store answers, and says whether there was any.
func (s *Sweeper) consumeAll(ctx context.Context, do func(ctx context.Context, limit int) (int, error)) (some bool, err error) {
	if !s.answers.Load() {
		return false, nil // which sweep says
	}
	err = s.until(ctx, func(ctx context.Context, limit int) (int, error) {
		n, err := do(ctx, limit)
		some = some || n > 0
		return n, err
	})
	return some, err
}

// indexRuns indexes ended runs by their words.
func (s *Sweeper) indexRuns(ctx context.Context, limit int) (int, error) {
	return s.opts.Store.IndexRuns(ctx, limit, func(run store.Searched) []string {
		return search.Run{Error: run.Error, ErrorCode: string(run.ErrorCode), Output: run.Output, ContentType: run.ContentType, Input: run.Input}.Words()
	})
}

// log says what did not come off.
func (s *Sweeper) log(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.opts.Logger.Error("sweeping", "error", err)
	}
}

// step runs a part of a round within its time.
func (s *Sweeper) step(ctx context.Context, do func(ctx context.Context) error) error {
	return s.stepWithin(ctx, stepTimeout, do)
}

// stepWithin is step for one that has a time of its own.
func (s *Sweeper) stepWithin(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := s.opts.WithTimeout(ctx, within)
	defer cancel()
	return do(ctx)
}

// sweep ends claims whose lease expired if the store was reachable for the whole grace.
func (s *Sweeper) sweep(ctx context.Context) error {
	err := s.step(ctx, s.look)
	s.opts.Metrics.StoreReachable(err == nil)
	s.answers.Store(err == nil)
	if err != nil {
		s.reachable = time.Time{}
		s.settled.Store(false)
		return err
	}
	settled := s.looked.Sub(s.reachable) >= grace
	s.settled.Store(settled)
	if !settled {
		return nil
	}
	moved, err := s.leases(ctx)
	if moved > 0 {
		s.opts.Logger.Info("ended claims without a runner", "runs", moved)
	}
	return err
}

// tidy does the rest that is due while the store answers. What does not come off
// keeps nothing else from being done.
func (s *Sweeper) tidy(ctx context.Context) error {
	if !s.answers.Load() {
		return nil // which sweep says
	}
	var partitions error
	if s.rounds++; s.rounds%partitionEvery == 1 {
		if partitions = s.step(ctx, s.partitions); partitions != nil {
			s.rounds = 0 // again at once
		}
	}
	return errors.Join(partitions, s.step(ctx, s.opts.Store.Replan), s.until(ctx, s.opts.Store.CountStored))
}

// forAge does what ends or deletes something for its age, while the store answers and has for the
// whole grace, and the clocks agree, which look says: what goes so never comes back. There may be so much of each
// of these that none waits for another.
func (s *Sweeper) forAge(do func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if !s.answers.Load() || !s.settled.Load() || !s.agree.Load() {
			return nil
		}
		return do(ctx)
	}
}

// expired deletes what has expired, ends what has been open for too long, and tells what is overdue.
func (s *Sweeper) expired(ctx context.Context) error {
	swept := s.until(ctx, s.aged(s.opts.Store.SweepExpired))
	runs, deliveries := s.until(ctx, s.aged(s.expire)), s.until(ctx, s.aged(s.expireDeliveries))
	if err := worse(runs, deliveries); err == nil || isAside(err) {
		s.hasExpired.Store(true)
	}
	return errors.Join(swept, runs, deliveries, s.step(ctx, s.oldest))
}

// isAside says whether an error is only of rows that are set aside.
func isAside(err error) bool {
	var aside *store.SetAsideError
	return errors.As(err, &aside)
}

// worse is the first of two errors that is not only of rows that are set aside.
func worse(a, b error) error {
	if a == nil || b != nil && isAside(a) {
		return b
	}
	return a
}

// dropped deletes history that is too old. Until nothing is left there is more, also if some of it
// stays because it is read. It begins once what was open for too long has ended: that needs its history.
func (s *Sweeper) dropped(ctx context.Context) error {
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
	return s.during(ctx, dropTimeout, rest, s.aged(drop))
}

// trimmed deletes history that projects keep no longer: the faster, the more days the most overdue project is
// late.
func (s *Sweeper) trimmed(ctx context.Context) error {
	var overdue time.Duration
	look := s.step(ctx, func(ctx context.Context) (err error) {
		overdue, err = s.opts.Store.ProjectHistoryOverdue(ctx)
		return err
	})
	if look == nil {
		s.opts.Metrics.ProjectHistoryOverdue(overdue)
	}
	rest := func(took time.Duration) time.Duration { return Rest(took, 0, min(overdue, maxTrimHaste)) }
	return errors.Join(look, s.during(ctx, stepTimeout, rest, s.aged(s.trimHistory)))
}

// partitions tells how many there are also where no more can be made.
func (s *Sweeper) partitions(ctx context.Context) error {
	days, err := s.opts.Store.EnsurePartitions(ctx, partitionsAhead)
	s.opts.Metrics.Partitions(days)
	return err
}

// leases ends the claims whose lease expired, until few are left: somebody's many
// keep nobody else's waiting.
func (s *Sweeper) leases(ctx context.Context) (moved int, errs error) {
	for ctx.Err() == nil {
		var (
			swept store.Swept
			late  bool
		)
		limit := sweepLimit >> s.slow
		err := s.step(ctx, func(ctx context.Context) (err error) {
			swept, err = s.opts.Store.SweepLeases(ctx, limit)
			late = ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
			return err
		})
		s.count(swept)
		moved += swept.Runs()
		if err == nil {
			s.looked = s.opts.Now() // however long that took, it was no standstill
		}
		s.pace(err != nil && late && swept.Runs() == 0)
		errs = cmp.Or(errs, err)
		if swept.Runs() < limit { // else there are more, whatever is wrong with some
			return moved, errs
		}
	}
	return moved, errs
}

// pace halves how many leases are swept at once for each time that nothing came of it in the
// time of a step, as where the store is too slow for so many, and doubles it for each other
// time. What fails at once does so for a run which is at fault: the fewer are swept, the
// more of them it would keep waiting.
func (s *Sweeper) pace(failed bool) {
	switch {
	case failed && sweepLimit>>s.slow > 1:
		s.slow++
	case !failed && s.slow > 0:
		s.slow--
	}
}

func (s *Sweeper) count(swept store.Swept) {
	s.opts.Metrics.LeasesLost(metrics.LeaseGivenBack, swept.GivenBack)
	s.opts.Metrics.LeasesLost(metrics.LeaseFailed, swept.Failed)
	s.opts.Metrics.Ended(string(store.RunFailed), swept.Failed)
	s.opts.Metrics.Ended(string(store.RunCancelled), swept.Cancelled)
}

// expire ends runs that have been open for too long.
func (s *Sweeper) expire(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.ExpireRuns(ctx, store.OpenFor(s.opts.Retention), limit)
	s.opts.Metrics.Ended(string(store.RunFailed), n)
	return n, err
}

// expireDeliveries ends those that nobody has taken for too long.
func (s *Sweeper) expireDeliveries(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.ExpireDeliveries(ctx, store.OpenFor(s.opts.Retention), limit)
	for range n {
		s.opts.Metrics.DeliveryEnded(store.DeliveryFailed.String())
	}
	return n, err
}

// trimHistory deletes what projects keep no longer, of which there is more until nothing is left.
func (s *Sweeper) trimHistory(ctx context.Context, limit int) (int, error) {
	n, err := s.opts.Store.TrimHistory(ctx, limit)
	s.opts.Metrics.HistoryDropped(n)
	if err == nil && n > 0 {
		n = limit
	}
	return n, err
}

// oldest tells for how long the oldest day of history should have been deleted.
func (s *Sweeper) oldest(ctx context.Context) error {
	now, err := s.opts.Store.Now(ctx)
	if err != nil {
		return err
	}
	oldest, err := s.opts.Store.OldestHistory(ctx)
	if err != nil {
		return err
	}
	overdue := now.Sub(oldest.Add(24*time.Hour)) - s.opts.Retention
	if oldest.IsZero() {
		overdue = 0
	}
	overdue = max(overdue, 0)
	s.overdue.Store(int64(overdue))
	s.opts.Metrics.HistoryOverdue(overdue)
	return nil
}

// Rest is for how long no history is deleted after some was for so long, and so many bytes of files
// went with it: the more days are overdue, the shorter.
func Rest(deleted time.Duration, freed int64, overdue time.Duration) time.Duration {
	rest := min(max(restFor*deleted, time.Duration(freed)*restForByte), longestRest)
	return rest / (1 + overdue/(24*time.Hour))
}

// until repeats what takes so many at a time until few are left, or its turn is over.
func (s *Sweeper) until(ctx context.Context, take func(ctx context.Context, limit int) (int, error)) error {
	return s.during(ctx, stepTimeout, func(time.Duration) time.Duration { return 0 }, take)
}

// during is until with a wait after each time, by how long that took, which within bounds.
func (s *Sweeper) during(
	ctx context.Context, within time.Duration, rest func(took time.Duration) time.Duration, take func(ctx context.Context, limit int) (int, error),
) error {
	var errs error
	for begin := s.opts.Now(); ctx.Err() == nil && s.opts.Now().Sub(begin) < sweepTurn; {
		n, begun := 0, s.opts.Now()
		errs = worse(errs, s.stepWithin(ctx, within, func(ctx context.Context) (err error) {
			n, err = take(ctx, sweepLimit)
			return err
		}))
		if n < sweepLimit { // else there are more, whatever is wrong with some
			return errs
		}
		select {
		case <-time.After(rest(s.opts.Now().Sub(begun))):
		case <-ctx.Done():
		}
	}
	return errs
}
