// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/store"
)

// modelPromises compare an engine with a model of a few lines in which every
// method of Dispatch is what its comment says, over histories that nobody thought of.
var modelPromises = []promise{
	{"runs live as in the model, whatever is asked in whatever order", func(w *world) {
		rapid.Check(w.t, func(rt *rapid.T) {
			m := newModel(rt, w)
			rt.Repeat(map[string]func(*rapid.T){
				"accept": m.accept, "claim": m.claim, "heartbeat": m.heartbeat, "journal": m.journal,
				"complete": m.complete, "release": m.release, "sweep": m.sweep, "wear": m.wear, "": m.compare,
			})
		})
	}},
}

// modelRun is what there is to know of a run.
type modelRun struct {
	event       uuid.UUID
	id          uuid.UUID
	status      store.RunStatus
	code        store.RunErrorCode
	token       int64
	expired     bool
	journal     []store.JournalEntry
	writers     []int64 // the tokens that wrote the entries
	openTools   int
	completedBy int64
}

// model is the runs of one environment, in the order in which they came.
type model struct {
	*world
	runs    []*modelRun
	touched *modelRun
}

func newModel(rt *rapid.T, of *world) *model {
	w := *of
	w.Assertions = require.New(rt)
	name := "e-" + uuid.NewString()
	w.environment = w.newEnvironment(name, origin)
	w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
	w.deploy("d-"+name, "first", "second")
	return &model{world: &w}
}

func (m *model) accept(rt *rapid.T) {
	e := m.event()
	e.Runs = e.Runs[:rapid.IntRange(1, 2).Draw(rt, "links")]
	m.world.accept(e)
	for _, run := range e.Runs {
		m.runs = append(m.runs, &modelRun{event: e.ConnectorRunID, id: run.ID, status: store.RunQueued})
	}
}

// holding draws how long a claim holds.
func holding(rt *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{lease, expired}).Draw(rt, "lease")
}

// lease draws a run and a claim on it: the current one, or one before.
func (m *model) lease(rt *rapid.T) (*modelRun, store.Lease) {
	if len(m.runs) == 0 {
		rt.Skip("no run yet")
	}
	m.touched = m.runs[rapid.IntRange(0, len(m.runs)-1).Draw(rt, "run")]
	age := rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(rt, "age of the claim")
	return m.touched, store.Lease{Run: m.key(m.touched.id), Token: m.touched.token - age}
}

// current says whether a lease is the one that a run runs under.
func (r *modelRun) current(l store.Lease) bool {
	return r.status == store.RunRunning && r.token == l.Token
}

func (m *model) claim(rt *rapid.T) {
	m.take(rapid.IntRange(0, 3).Draw(rt, "limit"), holding(rt))
}

// take claims the oldest queued runs.
func (m *model) take(limit int, hold time.Duration) {
	var want []*modelRun
	for _, run := range m.runs {
		if run.status == store.RunQueued && len(want) < limit {
			want = append(want, run)
		}
	}
	got := m.world.claim(limit, hold)
	m.Len(got, len(want))
	slices.SortFunc(want, func(a, b *modelRun) int { return cmp.Compare(a.id.String(), b.id.String()) })
	for i, run := range want {
		run.status, run.expired = store.RunRunning, hold == expired
		run.token++
		m.Equal(run.id, got[i].Run.ID, "oldest first")
		m.Equal(run.token, got[i].Token)
		m.Equal(run.journal, got[i].Journal)
	}
}

func (m *model) heartbeat(rt *rapid.T) {
	run, l := m.lease(rt)
	hold := holding(rt)
	lost, err := m.s.Heartbeat(m.ctx, []store.Lease{l}, hold)
	m.NoError(err)
	if !run.current(l) {
		m.Equal([]store.Lease{l}, lost)
		return
	}
	m.Empty(lost)
	run.expired = hold == expired
}

// entries draws what a runner that holds a lease might record: what comes next,
// some of it again, or with a gap.
func (m *model) entries(rt *rapid.T, run *modelRun, l store.Lease) (entries []store.JournalEntry, err error) {
	length := len(run.journal)
	from := rapid.IntRange(max(length-1, 1), length+2).Draw(rt, "first sequence")
	for i := range rapid.IntRange(1, 3).Draw(rt, "entries") {
		i += from
		if i <= length {
			entries = append(entries, run.journal[i-1])
			if run.writers[i-1] != l.Token {
				err = store.ErrConflict
			}
			continue
		}
		kind := rapid.SampledFrom([]store.JournalKind{
			store.JournalToolStarted, store.JournalToolResult, store.JournalModelAnswer,
		}).Draw(rt, "kind")
		entries = append(entries, entry(int64(i), kind, kind != store.JournalModelAnswer && rapid.Bool().Draw(rt, "unsafe")))
	}
	if from > length+1 {
		err = store.ErrConflict
	}
	return entries, err
}

// append is what recording entries does.
func (r *modelRun) append(entries []store.JournalEntry, token int64) {
	opened := 0
	for _, e := range entries {
		if e.Sequence <= int64(len(r.journal)) {
			continue
		}
		r.journal, r.writers = append(r.journal, e), append(r.writers, token)
		switch {
		case e.Unsafe && e.Kind == store.JournalToolStarted:
			opened++
		case e.Unsafe && e.Kind == store.JournalToolResult:
			opened--
		}
	}
	r.openTools = max(r.openTools+opened, 0)
}

func (m *model) journal(rt *rapid.T) {
	run, l := m.lease(rt)
	entries, want := m.entries(rt, run, l)
	err := m.s.AppendJournal(m.ctx, l, entries)
	switch {
	case !run.current(l):
		m.ErrorIs(err, store.ErrFenced)
	case want != nil:
		m.ErrorIs(err, want)
	default:
		m.NoError(err)
		run.append(entries, l.Token)
	}
}

func (m *model) complete(rt *rapid.T) {
	run, l := m.lease(rt)
	c := store.Completion{Lease: l, Status: rapid.SampledFrom([]store.RunStatus{
		store.RunCompleted, store.RunFailed, store.RunCancelled,
	}).Draw(rt, "status")}
	var want error
	if rapid.Bool().Draw(rt, "with a journal") {
		c.Journal, want = m.entries(rt, run, l)
	}
	err := m.s.Complete(m.ctx, c)
	switch {
	case !run.current(l) && run.completedBy == l.Token && l.Token > 0:
		m.NoError(err, "a repetition")
	case !run.current(l):
		m.ErrorIs(err, store.ErrFenced)
	case want != nil:
		m.ErrorIs(err, want)
	default:
		m.NoError(err)
		run.append(c.Journal, l.Token)
		run.status, run.completedBy = c.Status, l.Token
	}
}

// giveBack is what the end of a claim does, other than by completion.
func (r *modelRun) giveBack(attempts int64) {
	switch {
	case r.openTools > 0:
		r.status, r.code = store.RunFailed, store.RunErrorToolInterrupted
	case r.token >= attempts:
		r.status, r.code = store.RunFailed, store.RunErrorRunnerLost
	default:
		r.status = store.RunQueued
	}
	r.openTools = 0
}

func (m *model) release(rt *rapid.T) {
	run, l := m.lease(rt)
	err := m.s.Release(m.ctx, l)
	released := run.token == l.Token && (run.status == store.RunQueued || run.code == store.RunErrorToolInterrupted)
	switch {
	case run.current(l):
		m.NoError(err)
		run.giveBack(math.MaxInt64)
	case released:
		m.NoError(err, "a repetition")
	default:
		m.ErrorIs(err, store.ErrFenced)
	}
}

// sweep also ends claims of histories before this one.
func (m *model) sweep(*rapid.T) {
	_, err := m.s.SweepLeases(m.ctx, 1000)
	m.NoError(err)
	for _, run := range m.runs {
		if run.status == store.RunRunning && run.expired {
			run.giveBack(store.MaxAttempts)
		}
	}
}

// wear claims and loses runs until they fail.
func (m *model) wear(rt *rapid.T) {
	if len(m.runs) == 0 || rapid.IntRange(0, 3).Draw(rt, "rarely") > 0 {
		rt.Skip("not now")
	}
	for range store.MaxAttempts {
		m.take(3, expired)
		m.sweep(rt)
	}
}

// compare looks at the run of the last step and at all connector runs.
func (m *model) compare(*rapid.T) {
	open, failed := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, run := range m.runs {
		switch {
		case !run.status.Terminal():
			open[run.event]++
		case run.status != store.RunCompleted:
			failed[run.event]++
		}
	}
	for _, run := range m.runs {
		outcome := m.outcome(run.event)
		m.Equal(store.ConnectorRunOutcome(open[run.event], failed[run.event]), outcome.Status)
		i := slices.IndexFunc(outcome.Runs, func(r store.Run) bool { return r.ID == run.id })
		m.GreaterOrEqual(i, 0)
		got := outcome.Runs[i]
		m.Equal(fmt.Sprint(run.status, " ", run.code, " ", run.token), fmt.Sprint(got.Status, " ", got.ErrorCode, " ", got.Attempt))
	}
	if m.touched == nil {
		return
	}
	journal, err := m.s.Journal(m.ctx, m.key(m.touched.id))
	m.NoError(err)
	m.Equal(m.touched.journal, journal)
	m.touched = nil
}
