// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// modelPromises compare an engine with a small model of every method of Dispatch, over random
// histories.
var modelPromises = []promise{
	{"runs behave like the model", func(w *world) {
		rapid.Check(w.t, func(rt *rapid.T) {
			m := newModel(rt, w)
			rt.Repeat(map[string]func(*rapid.T){
				"accept": m.accept, "claim": m.claim, "heartbeat": m.heartbeat, "journal": m.journal,
				"complete": m.complete, "release": m.release, "suspend": m.suspend, "resume": m.resume,
				"cancel": m.cancel, "sweep": m.sweep, "wear": m.loseUntilFailed, "": m.compare,
			})
		})
	}},
}

const (
	// modelSlots is the number of slots of each runner in the model. modelLimit is the limit of
	// its second agent.
	modelSlots = 3
	modelLimit = 2
)

// modelRun is the state of a run.
type modelRun struct {
	store.Candidate
	event           uuid.UUID
	status          store.RunStatus
	code            runerror.Code
	token           int64
	attempt, losses int
	runner          string // the current or last one
	expired         bool   // the lease, or the waiting time
	journal         []store.JournalEntry
	writers         []int64 // the tokens that wrote the entries
	openTools       int
	completedBy     int64
	output          string
	key             string // other runs with the same key are blocked
	blocked         bool
}

// model has the runs of one environment, and its runners.
type model struct {
	*world
	runs    []*modelRun
	pool    store.Pool
	held    map[string][]store.Lease // by runner that has claimed: the leases that it knows
	touched *modelRun
}

func newModel(rt *rapid.T, of *world) *model {
	w := *of
	w.Assertions = require.New(rt)
	w.limits = map[string]int{"second": modelLimit}
	name := "e-" + uuid.NewString()
	w.environment = w.newEnvironment(name, origin)
	w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
	w.deploy("d-"+name, "first", "second")
	return &model{world: &w, held: map[string][]store.Lease{}}
}

func (m *model) accept(rt *rapid.T) {
	e := m.event()
	e.Class = store.Class(rapid.IntRange(0, store.Classes-1).Draw(rt, "class"))
	e.Runs = e.Runs[:rapid.IntRange(1, 2).Draw(rt, "links")]
	for i := range e.Runs {
		e.Runs[i].Concurrency = store.ConcurrencyKey{
			Text: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "key"), Drop: rapid.IntRange(0, 3).Draw(rt, "drops") == 0,
		}
	}
	if _, there := m.held["one"]; there && rapid.Bool().Draw(rt, "a runner waits") {
		e.RunnerID = "one"
	}
	if e.RunnerID != "" && e.MayBegin() { // its agent is the first, which has no limits
		m.acceptOnRunner(rt, e)
		return
	}
	m.world.accept(&e)
	for _, run := range e.Runs {
		r := &modelRun{
			Candidate: store.Candidate{ID: run.ID, Class: e.Class, Agent: run.AgentName, Fresh: true, Max: m.limits[run.AgentName]},
			event:     e.ConnectorRunID, status: store.RunQueued, key: run.Concurrency.Text,
		}
		if r.blocked = slices.ContainsFunc(m.runs, r.hasSameKey); r.blocked && run.Concurrency.Drop {
			r.status, r.code = store.RunCancelled, runerror.ConcurrencyDropped
		}
		m.runs = append(m.runs, r)
	}
}

// acceptOnRunner accepts an event whose run starts on its runner. The response to the runner may be lost.
func (m *model) acceptOnRunner(rt *rapid.T, e store.Event) {
	c, hold, lost := m.acceptStarted(&e), holding(rt), rapid.Bool().Draw(rt, "answer lost")
	rest, err := m.s.Heartbeat(m.ctx, m.environment.Key(), heldClaims(leaseOf(c)), hold) // or it lasts for a few seconds of the test
	m.NoError(err)
	m.Empty(rest)
	m.runs = append(m.runs, &modelRun{
		Candidate: store.Candidate{ID: c.Run.ID, Class: e.Class, Agent: c.Run.AgentName, Fresh: true}, event: e.ConnectorRunID,
		status: store.RunRunning, token: c.Token, attempt: 1, runner: e.RunnerID, expired: hold == expired,
	})
	if !lost {
		m.held[e.RunnerID] = append(m.held[e.RunnerID], leaseOf(c))
	}
}

// hasSameKey reports whether two open runs have the same key.
func (r *modelRun) hasSameKey(other *modelRun) bool {
	return r != other && r.key != "" && r.key == other.key && r.Agent == other.Agent && !other.status.Terminal()
}

// handOver unblocks the next runs of free keys, in the order of acceptance.
func (m *model) handOver() {
	for _, run := range m.runs {
		if run.blocked && !run.status.Terminal() {
			run.blocked = slices.ContainsFunc(m.runs, func(other *modelRun) bool { return run.hasSameKey(other) && !other.blocked })
		}
	}
}

// current reports whether a lease is the current one of a run.
func (r *modelRun) current(l store.Lease) bool {
	return r.status == store.RunRunning && r.token == l.Token
}

func (m *model) findRun(id uuid.UUID) *modelRun {
	i := slices.IndexFunc(m.runs, func(r *modelRun) bool { return r.ID == id })
	m.GreaterOrEqual(i, 0)
	return m.runs[i]
}

func (m *model) claim(rt *rapid.T) {
	runner := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "runner")
	if rapid.IntRange(0, 3).Draw(rt, "answers lost") == 0 {
		m.held[runner] = nil
	}
	m.claimAs(runner, rapid.IntRange(0, modelSlots).Draw(rt, "limit"), holding(rt))
}

// claimAs claims as a runner, which gets the result.
func (m *model) claimAs(runner string, limit int, hold time.Duration) {
	holding := m.held[runner]
	if holding == nil {
		m.held[runner] = []store.Lease{} // present from now on
	}
	var again, lost []store.Lease
	for _, run := range m.runs {
		l := store.Lease{Run: m.key(run.ID), Token: run.token}
		if run.status == store.RunRunning && run.runner == runner && !slices.Contains(holding, l) {
			again = append(again, l)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(holding), func(l store.Lease) bool {
		run := m.findRun(l.Run.ID)
		gone := !run.current(l) || run.runner != runner
		if gone {
			lost = append(lost, l)
		}
		return gone
	})
	want := m.pickRuns(limit)
	got, err := m.s.Claim(m.ctx, store.Claim{
		Environment: m.environment.Key(), RunnerID: runner, Slots: modelSlots, Limit: limit, Holding: holding, Lease: hold,
	})
	m.NoError(err)
	m.ElementsMatch(lost, got.Lost)
	m.Len(got.Runs, len(again)+len(want))
	for _, c := range got.Runs[:len(again)] {
		m.Contains(again, leaseOf(c), "handed again")
		kept = append(kept, leaseOf(c))
	}
	for i, c := range got.Runs[len(again):] {
		run := m.findRun(want[i].ID)
		m.Equal(run.ID, c.Run.ID, "in the picked order")
		run.status, run.expired, run.runner = store.RunRunning, hold == expired, runner
		run.attempt++
		m.Equal(run.attempt, c.Run.Attempt)
		m.NotEqual(run.token, c.Token)
		m.EqualValues(run.attempt, c.Token>>31)
		run.token = c.Token
		m.EqualValues(len(run.journal), c.JournalLength)
		kept = append(kept, leaseOf(c))
	}
	m.held[runner] = kept
}

// pickRuns returns the runs that a claim takes now.
func (m *model) pickRuns(limit int) []store.Candidate {
	pool := m.pool
	pool.Slots, pool.Lower, pool.Running = modelSlots*len(m.held), 0, map[string]int{}
	m.handOver()
	var queued []store.Candidate
	for _, run := range m.runs {
		switch run.status {
		case store.RunRunning:
			pool.Running[run.Agent]++
			if run.Class != store.ClassSync && run.Fresh {
				pool.Lower++
			}
		case store.RunQueued:
			if !run.blocked {
				queued = append(queued, run.Candidate)
			}
		}
	}
	slices.SortFunc(queued, func(a, b store.Candidate) int {
		switch {
		case a.Fresh == b.Fresh:
			return slices.Compare(a.ID[:], b.ID[:])
		case b.Fresh:
			return -1
		}
		return 1
	})
	picked, pool := store.Pick(pool, queued, limit)
	m.pool.Served, m.pool.LastAgents = pool.Served, pool.LastAgents
	return picked
}

// entries draws entries that a runner with a lease might append: the next ones, some repeated, or
// with a gap.
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
		e := newEntry(int64(i), kind, kind != store.JournalModelAnswer && rapid.Bool().Draw(rt, "unsafe"))
		if size := drawSize(rt); size > 0 {
			e.Data = answerOfSize(e.Sequence, size).Data
		}
		entries = append(entries, e)
	}
	if from > length+1 {
		err = store.ErrConflict
	}
	return entries, err
}

// appendEntries appends entries to the model.
func (r *modelRun) appendEntries(entries []store.JournalEntry, token int64) {
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
	run, l := m.drawLease(rt)
	entries, want := m.entries(rt, run, l)
	err := m.s.AppendJournal(m.ctx, l, entries)
	switch {
	case !run.current(l):
		m.ErrorIs(err, store.ErrFenced)
	case want != nil:
		m.ErrorIs(err, want)
	default:
		m.NoError(err)
		run.appendEntries(entries, l.Token)
	}
}

func (m *model) complete(rt *rapid.T) {
	run, l := m.drawLease(rt)
	c := store.Completion{Lease: l, Status: rapid.SampledFrom([]store.RunStatus{
		store.RunCompleted, store.RunFailed, store.RunCancelled,
	}).Draw(rt, "status"), Output: variedText(drawSize(rt))}
	var want error
	if rapid.Bool().Draw(rt, "with a journal") {
		c.Journal, want = m.entries(rt, run, l)
	}
	err := m.world.complete(c)
	switch {
	case !run.current(l) && run.completedBy == l.Token && l.Token > 0:
		m.NoError(err, "a repetition")
	case !run.current(l):
		m.ErrorIs(err, store.ErrFenced)
	case want != nil:
		m.ErrorIs(err, want)
	default:
		m.NoError(err)
		run.appendEntries(c.Journal, l.Token)
		run.status, run.completedBy, run.output = c.Status, l.Token, c.Output
	}
}

func (m *model) release(rt *rapid.T) {
	run, l := m.drawLease(rt)
	err := m.s.Release(m.ctx, l, 0)
	released := run.token == l.Token && (run.status == store.RunQueued || run.code == runerror.ToolInterrupted && run.runner == "")
	switch {
	case run.current(l) && run.openTools > 0:
		m.NoError(err)
		run.status, run.code, run.runner = store.RunFailed, runerror.ToolInterrupted, ""
	case run.current(l):
		m.NoError(err)
		run.status, run.Fresh, run.runner = store.RunQueued, false, ""
	case released:
		m.NoError(err, "a repetition")
	default:
		m.ErrorIs(err, store.ErrFenced)
	}
}

func (m *model) suspend(rt *rapid.T) {
	run, l := m.drawLease(rt)
	hold := holding(rt)
	err := m.s.Suspend(m.ctx, store.Suspension{Lease: l, For: hold})
	switch {
	case !run.current(l):
		m.ErrorIs(err, store.ErrFenced)
	case run.openTools > 0:
		m.ErrorIs(err, store.ErrConflict)
	default:
		m.NoError(err)
		run.status, run.expired, run.runner = store.RunAwaitingApproval, hold == expired, ""
	}
}

func (m *model) resume(rt *rapid.T) {
	run, l := m.drawLease(rt)
	data := json.RawMessage(`{"approved":true}`)
	if size := drawSize(rt); size > 0 {
		data = answerOfSize(1, size).Data
	}
	err := m.s.Resume(m.ctx, l.Run, data)
	if run.status != store.RunAwaitingApproval {
		m.ErrorIs(err, store.ErrConflict)
		return
	}
	m.NoError(err)
	run.requeue(store.JournalResumed, data)
}

// requeue queues a suspended run.
func (r *modelRun) requeue(kind store.JournalKind, data json.RawMessage) {
	r.appendEntries([]store.JournalEntry{{Sequence: int64(len(r.journal) + 1), Kind: kind, Data: data}}, 0)
	r.status, r.Fresh = store.RunQueued, false
}

func (m *model) cancel(rt *rapid.T) {
	run, l := m.drawLease(rt)
	err := m.s.Cancel(m.ctx, l.Run, runerror.Cancelled, "somebody said so")
	if run.status.Terminal() {
		m.ErrorIs(err, store.ErrConflict)
		return
	}
	m.NoError(err)
	run.status, run.code = store.RunCancelled, runerror.Cancelled
}

// sweep also ends claims of earlier histories.
func (m *model) sweep(*rapid.T) {
	m.NoError(errorOf(m.s.SweepLeases(m.ctx, 1000)))
	for _, run := range m.runs {
		switch {
		case !run.expired:
		case run.status == store.RunAwaitingApproval:
			run.requeue(store.JournalExpired, nil)
		case run.status != store.RunRunning:
		case run.openTools > 0:
			run.status, run.code = store.RunFailed, runerror.ToolInterrupted
		case run.losses+1 >= store.MaxLosses:
			run.status, run.code = store.RunFailed, runerror.RunnerLost
		default:
			run.status, run.Fresh = store.RunQueued, false
			run.losses++
		}
	}
}

// loseUntilFailed claims and loses runs until they fail.
func (m *model) loseUntilFailed(rt *rapid.T) {
	if len(m.runs) == 0 || rapid.IntRange(0, 3).Draw(rt, "rarely") > 0 {
		rt.Skip("not now")
	}
	for range store.MaxLosses {
		m.claimAs("one", modelSlots, expired)
		m.sweep(rt)
	}
}

// compare compares the run of the last step and all connector runs.
func (m *model) compare(*rapid.T) {
	m.handOver()
	open, failed, completed := map[uuid.UUID]int{}, map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, run := range m.runs {
		open[run.event] += 0
		switch {
		case !run.status.Terminal():
			open[run.event]++
		case run.status == store.RunFailed:
			failed[run.event]++
		case run.status == store.RunCompleted:
			completed[run.event]++
		}
	}
	outcomes := map[uuid.UUID]store.Outcome{}
	var over []store.Key
	for event := range maps.Keys(open) {
		outcomes[event] = m.outcome(event)
		m.Equal(store.ConnectorRunOutcome(open[event], failed[event], completed[event]), outcomes[event].Status)
		if open[event] == 0 {
			over = append(over, m.key(event))
		}
	}
	var all []store.Key
	for _, run := range m.runs {
		outcome := outcomes[run.event]
		i := slices.IndexFunc(outcome.Runs, func(r store.Run) bool { return r.ID == run.ID })
		m.GreaterOrEqual(i, 0)
		got := outcome.Runs[i]
		m.Equal(fmt.Sprint(run.status, " ", run.code, " ", run.attempt), fmt.Sprint(got.Status, " ", got.ErrorCode, " ", got.Attempt))
		m.True(run.output == got.Output)
		if key := m.key(run.event); !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	ended, err := m.s.Ended(m.ctx, all)
	m.NoError(err)
	m.ElementsMatch(over, ended)
	if m.touched == nil {
		return
	}
	for _, size := range []int{store.MaxEntries, 1} {
		m.sameEntries(m.touched.journal, m.readPages(m.touched.ID, size))
	}
	journal := m.world.readJournal(m.key(m.touched.ID))
	m.Equal(m.touched.journal, m.undated(journal))
	m.True(m.touched.output == m.run(m.touched.ID).Output)
	m.touched = nil
	m.Zero(m.queryCount(`SELECT count(*) FROM blobs WHERE project_id = $1 AND mark = ''`), "unmarked blobs are deleted")
}
