// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

type fakeStore struct {
	down               error
	swept, expunged    int
	partitioned, ended int
	planned            int
	// unrolled are ends that are not rolled up; rollUps how often somebody has begun to.
	unrolled, rollUps atomic.Int64
	// unindexed and indexings are likewise of the index.
	unindexed, indexings atomic.Int64
	moved                int
	stuck                error // of what is always due
	unended              error // of runs that are open for too long
	old, late            int   // runs and deliveries that are open for too long
	// expired are leases beyond the three of each sweep.
	expired int
	broken  error // of sweeping leases
	// past is what is left of history that is too old; freed is what each time gives back.
	past  int
	freed int64
	held  error // of some of it, which stays
	clock time.Time
	// shorter is how much projects keep no longer; took is how long it takes to delete some of it.
	shorter int
	// overdue is how late the most overdue project is.
	overdue time.Duration
	took    func()
	// expunging, unless nil, is called where what has expired is swept.
	expunging func()
}

// settled is a sweeper that saw the store answer for the whole grace.
func settled(opts Options, now time.Time) *Sweeper {
	s := New(opts)
	s.reachable, s.looked, s.asked, s.clock = now.Add(-grace), now, now, now
	s.agree.Store(true)
	if fake, ok := opts.Store.(*fakeStore); ok && fake.clock.IsZero() {
		fake.clock = now
	}
	return s
}

// forget is a round of each of those that end and delete what is too old.
func (s *Sweeper) forget(t *testing.T) (err error) {
	t.Helper()
	for _, do := range []func(ctx context.Context) error{s.expired, s.dropped, s.trimmed} {
		err = errors.Join(err, s.forAge(do)(t.Context()))
	}
	return err
}

// round is one of what sweeps leases and one each of the rest; moved is how many runs the
// former moved.
func (s *Sweeper) round(t *testing.T, fake *fakeStore) (moved int, err error) {
	t.Helper()
	before := fake.moved
	err = errors.Join(s.sweep(t.Context()), s.tidy(t.Context()), s.forget(t))
	return fake.moved - before, err
}

// Now has stood still unless a test moves it.
func (f *fakeStore) Now(context.Context) (time.Time, error) { return f.clock, nil }

func (f *fakeStore) Ping(context.Context) error { return f.down }

func (f *fakeStore) SweepLeases(_ context.Context, limit int) (store.Swept, error) {
	f.swept++
	n := min(limit, f.expired+3)
	f.expired = max(f.expired-n, 0)
	f.moved += n
	return store.Swept{GivenBack: n - 2, Failed: 1, Cancelled: 1}, errors.Join(f.down, f.broken)
}

func (f *fakeStore) SweepExpired(context.Context, int) (int, error) {
	f.expunged++
	if f.expunging != nil {
		f.expunging()
	}
	return 0, nil
}

func (f *fakeStore) ExpireRuns(_ context.Context, age time.Duration, limit int) (int, error) {
	if age != store.MaxOpen {
		return 0, errors.New("not that long")
	}
	n := min(limit, f.old)
	f.old -= n
	return n, f.unended
}

func (f *fakeStore) ExpireDeliveries(_ context.Context, age time.Duration, limit int) (int, error) {
	if age != store.MaxOpen {
		return 0, errors.New("not that long")
	}
	n := min(limit, f.late)
	f.late -= n
	return n, nil
}

func (f *fakeStore) DropHistory(_ context.Context, age time.Duration, limit int) (store.Dropped, error) {
	if age != store.Retention {
		return store.Dropped{}, errors.New("not that long")
	}
	n := min(limit-1, f.past)
	f.past -= n
	return store.Dropped{Count: n, Freed: f.freed}, f.held
}

func (f *fakeStore) OldestHistory(context.Context) (time.Time, error) {
	if f.past > 0 {
		return f.clock.Add(-store.Retention - 3*24*time.Hour), nil
	}
	return time.Time{}, nil
}

func (f *fakeStore) CountStored(_ context.Context, limit int) (int, error) {
	n := min(limit, f.ended)
	f.ended -= n
	return n, f.stuck
}

func (f *fakeStore) RollUp(_ context.Context, limit int) (int, error) {
	n := min(limit, int(f.unrolled.Load()))
	f.rollUps.Add(1)
	f.unrolled.Add(-int64(n))
	return n, f.stuck
}

func (f *fakeStore) Replan(context.Context) error {
	f.planned++
	return nil
}

func (f *fakeStore) EnsurePartitions(_ context.Context, ahead int) (int, error) {
	f.partitioned++
	if f.stuck != nil {
		return 2, f.stuck
	}
	return ahead + 1, nil
}

func TestSweepingWaitsForAWholeLeaseOfReachability(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fake := &fakeStore{clock: now}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	once := func(after time.Duration) int {
		now, fake.clock = now.Add(after), fake.clock.Add(after)
		moved, err := s.round(t, fake)
		if fake.down == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fake.down)
		}
		return moved
	}
	moved := func(lookAfter ...time.Duration) (moved int) {
		for _, after := range lookAfter {
			moved += once(after)
		}
		return moved
	}
	lease := []time.Duration{10 * time.Second, 10 * time.Second, 9 * time.Second}
	require.Zero(t, once(0), "the store was only just reached")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	fake.down = errors.New("away")
	require.Zero(t, once(time.Second))
	fake.down = nil
	require.Zero(t, once(time.Hour), "runners have not had time to renew their leases")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))

	require.Zero(t, once(40*time.Second), "the process stood still, and so did its runners' renewals")
	require.Zero(t, moved(lease...))
	require.Equal(t, 3, once(time.Second))
	require.Equal(t, 3, fake.swept)
	require.Equal(t, 3, fake.expunged, "what is deleted waits for as long")
}

// TestExpiredRowsAreDeletedAgainAndAgain: each minute from the grace on.
func TestExpiredRowsAreDeletedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeStore{clock: time.Now()}
		ctx, stop := context.WithTimeout(t.Context(), 3*expireInterval+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Equal(t, 3, fake.expunged)
	})
}

// TestWhatIsOpenForTooLongEnds: all of it, with every sweep that deletes.
func TestWhatIsOpenForTooLongEnds(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{old: 3 * sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	_, err := s.round(t, fake)
	require.NoError(t, err)
	require.Zero(t, fake.old)
}

// TestHistoryThatIsTooOldGoes: all of it, and how far that is behind is told.
func TestHistoryThatIsTooOldGoes(t *testing.T) {
	t.Parallel()
	now, registry := time.Unix(0, 0), prometheus.NewRegistry()
	fake := &fakeStore{past: 3 * sweepLimit, clock: now}
	s := settled(Options{Store: fake, Logger: slog.Default(), Metrics: metrics.NewGateway(registry), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.oldest(t.Context()))
	overdue := func() float64 { return metrictest.Of(t, registry).Value(t, "agentplatform_history_overdue_seconds") }
	require.InEpsilon(t, (2 * 24 * time.Hour).Seconds(), overdue(), 0)
	for range 2 { // which is told beside the deleting
		_, err := s.round(t, fake)
		require.NoError(t, err)
	}
	require.Zero(t, fake.past)
	require.Zero(t, overdue())
	require.InEpsilon(t, 3*sweepLimit, metrictest.Of(t, registry).Value(t, "agentplatform_history_dropped_total"), 0)
}

// TestSweeper_DropsHistoryOnceItHasExpiredRuns: what was open for too long needs its history to end. Runs that
// are set aside because they cannot end keep no history.
func TestSweeper_DropsHistoryOnceItHasExpiredRuns(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{past: 3, clock: now, unended: errors.New("away")}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.NoError(t, s.sweep(t.Context()))
	require.ErrorIs(t, s.forget(t), fake.unended)
	require.Equal(t, 3, fake.past)
	fake.unended = &store.SetAsideError{Rows: []error{errors.New("one that cannot end")}}
	require.Error(t, s.forget(t))
	require.Zero(t, fake.past)
}

// TestWhatIsOpenIsYoungerThanWhatGoes: of a run that is open nothing is deleted.
func TestWhatIsOpenIsYoungerThanWhatGoes(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.MaxOpen, store.OpenFor(store.Retention))
	require.Equal(t, 24*time.Hour, store.OpenFor(store.MinRetention))
}

// TestSomebodysManyLeasesKeepNobodyWaiting: a sweep goes on while it finds as many
// as one statement moves.
func TestSomebodysManyLeasesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{expired: 4 * sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	moved, err := s.round(t, fake)
	require.NoError(t, err)
	require.Equal(t, 4*sweepLimit+3, moved)
	require.Equal(t, 5, fake.swept)
}

// TestLostLeasesAreCounted: by what became of their runs, and whether the store
// was there.
func TestLostLeasesAreCounted(t *testing.T) {
	t.Parallel()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	scene := storebench.NewScene(t, st, 2)
	_, err = st.Accept(t.Context(), []store.Event{scene.Event(t)})
	require.NoError(t, err)
	result, err := st.Claim(t.Context(), store.Claim{
		Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "lost", Limit: 2, Lease: -time.Second,
	})
	require.NoError(t, err)
	claimed := result.Runs
	require.Len(t, claimed, 2)
	require.NoError(t, st.AppendJournal(t.Context(), store.Lease{Run: claimed[0].Run.Key(), Token: claimed[0].Token}, []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalToolStarted, Data: []byte(`{}`), Unsafe: true},
	}))

	registry := prometheus.NewRegistry()
	s := settled(Options{Store: st, Logger: slog.Default(), Metrics: metrics.NewGateway(registry)}, time.Now())
	require.NoError(t, s.sweep(t.Context()))
	require.NoError(t, s.tidy(t.Context()))
	require.Equal(t, map[string]float64{
		`agentplatform_lost_leases_total{outcome="given_back"}`: 1,
		`agentplatform_lost_leases_total{outcome="failed"}`:     1,
		`agentplatform_ended_runs_total{status="failed"}`:       1,
		`agentplatform_store_reachable`:                         1,
		`agentplatform_partitions_ahead`:                        partitionsAhead + 1,
	}, metrictest.Of(t, registry).Moved())

	s.opts.Store = &fakeStore{down: errors.New("away")}
	require.Error(t, s.sweep(t.Context()))
	require.Zero(t, metrictest.Of(t, registry).Value(t, "agentplatform_store_reachable"))
}

// TestWhatEndsLeaveIsConsumed: all of it, at once, also while leases are not swept;
// and the partitions are looked at with the first round and every hour.
func TestWhatEndsLeaveIsConsumed(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{ended: 3*sweepLimit + 1}
	s := New(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }})
	for round := range partitionEvery + 1 {
		_, err := s.round(t, fake)
		require.NoError(t, err)
		require.Zero(t, fake.ended)
		require.Equal(t, 1+round/partitionEvery, fake.partitioned)
		now = now.Add(sweepInterval)
	}
}

// TestAStoreThatDoesNotAnswerHoldsNoStepForLonger: each step has its time.
func TestAStoreThatDoesNotAnswerHoldsNoStepForLonger(t *testing.T) {
	t.Parallel()
	s := New(Options{Store: hanging{&fakeStore{}}, Logger: slog.Default(), WithTimeout: func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
		require.Equal(t, stepTimeout, after)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}})
	require.ErrorIs(t, s.sweep(t.Context()), context.Canceled)
}

// hanging answers nothing until it is not asked any more.
type hanging struct{ *fakeStore }

func (hanging) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWhatDoesNotComeOffKeepsNoLeaseFromBeingSwept: partitions that cannot be made, and
// ends that cannot be counted, are told, and tried again.
func TestWhatDoesNotComeOffKeepsNoLeaseFromBeingSwept(t *testing.T) {
	t.Parallel()
	now, registry := time.Unix(0, 0), prometheus.NewRegistry()
	fake := &fakeStore{stuck: errors.New("permission denied")}
	s := settled(Options{Store: fake, Logger: slog.Default(), Metrics: metrics.NewGateway(registry), Now: func() time.Time { return now }}, now)
	for round := range 2 {
		moved, err := s.round(t, fake)
		require.ErrorIs(t, err, fake.stuck)
		require.Equal(t, 3, moved)
		require.Equal(t, round+1, fake.partitioned, "at once again")
	}
	require.InEpsilon(t, 2, metrictest.Of(t, registry).Value(t, "agentplatform_partitions_ahead"), 0, "what is there is shown")
}

// TestAPartThatFailsKeepsNoOtherFromBeingDone: and begins no grace, for the store was
// there all the time.
func TestAPartThatFailsKeepsNoOtherFromBeingDone(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{broken: errors.New("one run cannot end"), stuck: errors.New("permission denied"), old: sweepLimit}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	for round := range 3 {
		moved, err := s.round(t, fake)
		require.ErrorIs(t, err, fake.broken)
		require.ErrorIs(t, err, fake.stuck)
		require.Equal(t, 3, moved, "what can be ended is, without another grace")
		require.Equal(t, round+1, fake.swept)
		now = now.Add(sweepInterval)
	}
	require.Equal(t, 3, fake.expunged)
	require.Zero(t, fake.old)
}

// TestWhatFailsForLongIsAnOutage: a store that has not done what it was asked for half
// of the grace may not have let runners renew their leases either.
func TestWhatFailsForLongIsAnOutage(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	fake := &fakeStore{broken: context.DeadlineExceeded}
	s := settled(Options{Store: fake, Logger: slog.Default(), Now: func() time.Time { return now }}, now)
	require.Error(t, s.sweep(t.Context()))
	fake.broken = nil
	now = now.Add(grace/2 + time.Second)
	require.NoError(t, s.sweep(t.Context()))
	require.Equal(t, 1, fake.swept)
}

// TestLeasesWaitForNothingElse: whatever takes long, and however much of it there is.
func TestLeasesWaitForNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{fakeStore: fakeStore{clock: time.Now()}}
		ctx, stop := context.WithTimeout(t.Context(), grace+time.Minute+time.Second)
		defer stop()
		require.NoError(t, New(Options{Store: slow, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Equal(t, int(time.Minute/sweepInterval)+1, slow.swept)
		require.Positive(t, slow.expunged)
	})
}

// TestWhatHasNoEndKeepsNothingElseWaiting: it goes on when its turn comes again.
func TestWhatHasNoEndKeepsNothingElseWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{fakeStore: fakeStore{clock: time.Now(), late: 10 * sweepLimit}}
		ctx, stop := context.WithTimeout(t.Context(), expireInterval+sweepTurn+2*stepTimeout)
		defer stop()
		require.NoError(t, New(Options{Store: slow, Logger: slog.New(slog.DiscardHandler)}).Run(ctx))
		require.Zero(t, slow.late)
		require.Greater(t, slow.expunged, 1)
	})
}

// slowStore takes long for what expired, of which there is no end.
type slowStore struct{ fakeStore }

func (s *slowStore) SweepExpired(ctx context.Context, limit int) (int, error) {
	s.expunged++
	select {
	case <-time.After(stepTimeout - time.Second):
	case <-ctx.Done():
	}
	return limit, ctx.Err()
}
