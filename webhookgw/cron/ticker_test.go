// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// stub returns configured results and records its calls.
type stub struct {
	due     store.DueTicks
	admit   func(store.Event) store.Admission
	err     error
	load    store.ProjectLoad
	loadErr error
	// heavy is a project that cannot be measured.
	heavy uuid.UUID
	// acceptErr is the error of Accept.
	acceptErr error
	measured  atomic.Int64
	looks     []time.Time
	events    []store.Event
	moves     []store.TickMove
}

func (s *stub) DueTicks(_ context.Context, _ int, without ...uuid.UUID) (store.DueTicks, error) {
	s.looks = append(s.looks, time.Now())
	due := s.due
	due.Ticks = slices.DeleteFunc(slices.Clone(due.Ticks), func(d store.DueTick) bool { return slices.Contains(without, d.Route.Connector.ProjectID) })
	return due, s.err
}

func (s *stub) MoveTicks(_ context.Context, moves []store.TickMove) (int, error) {
	s.moves = append(s.moves, moves...)
	return len(moves), nil
}

func (s *stub) Accept(_ context.Context, events []store.Event) (out []store.Admission, err error) {
	s.events = append(s.events, events...)
	if s.acceptErr != nil {
		return nil, s.acceptErr
	}
	for _, e := range events {
		a := s.admit(e)
		if errors.Is(a.Err, store.ErrTickTaken) {
			return nil, fmt.Errorf("accepting: %w", a.Err)
		}
		out = append(out, a)
	}
	return out, nil
}

func (s *stub) ProjectLoad(_ context.Context, project uuid.UUID) (store.ProjectLoad, error) {
	s.measured.Add(1)
	if project == s.heavy {
		return store.ProjectLoad{}, context.DeadlineExceeded
	}
	return s.load, s.loadErr
}

func accepted(store.Event) store.Admission { return store.Admission{} }

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// dueNow returns a tick of midnight, at midnight.
func dueNow(t *testing.T, config connector.Config, agents ...string) store.DueTick {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	c := store.Connector{ProjectID: uuid.New(), ID: uuid.New(), EnvironmentID: uuid.New(), Version: 3, Type: store.TypeCron, Config: text}
	d := store.DueTick{Route: store.Route{Connector: c, Live: true}, At: midnight, Planned: true}
	for _, agent := range agents {
		d.Route.Links = append(d.Route.Links, store.Link{ID: uuid.New(), AgentName: agent})
	}
	return d
}

var daily = connector.Config{Schedule: "@daily", Timezone: "UTC", MissedTicks: "skip", Prompt: "Go", Payload: json.RawMessage(`{"a":1}`)}

func ticking(s *stub) (*Ticker, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	if s.admit == nil {
		s.admit = accepted
	}
	return New(Options{Store: s, Logger: slog.New(slog.DiscardHandler), Metrics: metrics.NewGateway(registry, nil), Now: func() time.Time { return midnight }}), registry
}

func TestTicker_TickIsEvent(t *testing.T) {
	t.Parallel()
	d := dueNow(t, daily, "first", "second")
	d.Route.Concurrency = map[string]store.Concurrency{"first": {Expression: "input.payload.a > 0 ? 'x' : 'y'"}, "second": {Expression: "input.nothing"}}
	s := &stub{due: store.DueTicks{Now: midnight, Ticks: []store.DueTick{d}}}
	ticker, registry := ticking(s)
	_, done, err := ticker.processRound(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, done)
	require.Len(t, s.events, 1)
	e := s.events[0]
	require.Equal(t, store.TriggerCron, e.Trigger)
	require.Equal(t, store.ClassDeferred, e.Class)
	require.Equal(t, int64(3), e.ConnectorVersion)
	require.Equal(t, "tick:2026-01-01T00:00:00Z", e.Idempotency.Key)
	require.Nil(t, e.Idempotency.Fingerprint)
	require.JSONEq(t, `{"scheduled_at":"2026-01-01T00:00:00Z","prompt":"Go","payload":{"a":1}}`, string(e.Input))
	require.Len(t, e.Runs, 2)
	require.Equal(t, d.Route.Links[1].ID, e.Runs[1].LinkID)
	require.Equal(t, "x", e.Runs[0].Concurrency.Text)
	require.Equal(t, runerror.KeyUnavailable, e.Runs[1].ErrorCode)
	require.Equal(t, store.TickMove{Connector: d.Route.Connector.Key(), From: midnight, To: midnight.Add(24 * time.Hour), Planned: true, Done: midnight}, *e.Tick)
	require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", "run"), 0)
}

func TestTicker_LinkThatRequiresFilesFails(t *testing.T) {
	t.Parallel()
	d := dueNow(t, daily, "first", "second")
	d.Route.Links[1].FilesRequired = true
	s := &stub{due: store.DueTicks{Now: midnight, Ticks: []store.DueTick{d}}}
	ticker, _ := ticking(s)
	_, _, err := ticker.processRound(t.Context())
	require.NoError(t, err)
	require.Len(t, s.events, 1)
	require.Empty(t, s.events[0].Runs[0].ErrorCode)
	require.Equal(t, runerror.FilesRequired, s.events[0].Runs[1].ErrorCode)
}

func TestTicker_SkippedTicksHaveReason(t *testing.T) {
	t.Parallel()
	late := dueNow(t, daily, "first")
	late.At = midnight.Add(-48 * time.Hour)
	large := daily
	large.Payload = json.RawMessage(`[]`)
	for reason, c := range map[string]struct {
		due    store.DueTick
		limits store.ProjectLimits
		stored int64
		open   store.Backlog
	}{
		"":                            {due: dueNow(t, daily, "first"), limits: store.ProjectLimits{BacklogRuns: 2, BacklogInput: 2, Storage: 2}, stored: 1, open: store.Backlog{Runs: 1, Input: 1}},
		"no_agent: no agent is li":    {due: dueNow(t, daily)},
		"missed: ":                    {due: late},
		"project_storage_full: ":      {due: dueNow(t, daily, "first"), limits: store.ProjectLimits{Storage: 2}, stored: 2},
		"backlog_full: the envir":     {due: dueNow(t, daily, "first"), limits: store.ProjectLimits{BacklogRuns: 2}, open: store.Backlog{Runs: 2}},
		"backlog_full: the open ru":   {due: dueNow(t, daily, "first"), limits: store.ProjectLimits{BacklogInput: 2}, open: store.Backlog{Input: 2}},
		"the input cannot be created": {due: dueNow(t, large, "first")},
	} {
		t.Run(reason, func(t *testing.T) {
			s := &stub{
				due:  store.DueTicks{Now: midnight, Ticks: []store.DueTick{c.due}},
				load: store.ProjectLoad{Limits: c.limits, Stored: c.stored, Backlog: map[uuid.UUID]store.Backlog{c.due.Route.Connector.EnvironmentID: c.open}},
			}
			ticker, registry := ticking(s)
			_, _, err := ticker.processRound(t.Context())
			require.NoError(t, err)
			require.Len(t, s.events, 1)
			outcome := metrics.TickRun
			if reason != "" {
				outcome = metrics.TickSkipped
				require.Contains(t, s.events[0].Skipped, reason)
				require.Empty(t, s.events[0].Runs)
				require.Empty(t, s.events[0].Input)
			} else {
				require.Empty(t, s.events[0].Skipped)
			}
			require.InEpsilon(t, 1, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", outcome), 0, reason)
		})
	}
}

// TestTicker_CountsTicksBeforeMeasurement: ticks of the same moment count for the backlog before
// the next measurement.
func TestTicker_CountsTicksBeforeMeasurement(t *testing.T) {
	t.Parallel()
	s := &stub{due: store.DueTicks{Now: midnight}}
	first := dueNow(t, daily, "first")
	for range 5 {
		d := first
		d.Route.Connector.ID = uuid.New()
		s.due.Ticks = append(s.due.Ticks, d)
	}
	s.load = store.ProjectLoad{Limits: store.ProjectLimits{BacklogRuns: 3}, Backlog: map[uuid.UUID]store.Backlog{}}
	ticker, registry := ticking(s)
	for range 2 {
		_, _, err := ticker.processRound(t.Context())
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, s.measured.Load(), "once a second")
	require.InEpsilon(t, 3, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", "run"), 0)
	require.InEpsilon(t, 7, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", "skipped"), 0)

	s.loadErr = errors.New("away")
	other, _ := ticking(s)
	_, _, err := other.processRound(t.Context())
	require.ErrorIs(t, err, s.loadErr, "no tick runs without a measurement")
	s.loadErr = store.ErrNotFound
	_, _, err = other.processRound(t.Context())
	require.NoError(t, err)
}

// TestTicker_RunsTicksBesideUnmeasuredProjects: the ticks of a project that cannot be measured
// wait, and delay no other project. The project is measured again after a while.
func TestTicker_RunsTicksBesideUnmeasuredProjects(t *testing.T) {
	t.Parallel()
	s := &stub{due: store.DueTicks{Now: midnight}, admit: accepted, heavy: uuid.New()}
	for range 3 {
		heavy, other := dueNow(t, daily, "first"), dueNow(t, daily, "first")
		heavy.Route.Connector.ProjectID, other.Route.Connector.ProjectID = s.heavy, uuid.New()
		s.due.Ticks = append(s.due.Ticks, heavy, other)
	}
	now := midnight
	ticker := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	round := func(events, measured int) {
		t.Helper()
		s.events = nil
		s.measured.Store(0)
		_, _, err := ticker.processRound(t.Context())
		require.NoError(t, err)
		require.Len(t, s.events, events)
		for _, e := range s.events {
			require.NotEqual(t, s.heavy, e.ProjectID)
		}
		require.EqualValues(t, measured, s.measured.Load())
	}
	round(3, 4)
	now = now.Add(measureEvery)
	round(3, 3)
	now = now.Add(failedMeasurementTTL)
	round(3, 4)
}

// TestTicker_LimitsRunsPerRound: to fewer runs after the store took too long.
func TestTicker_LimitsRunsPerRound(t *testing.T) {
	t.Parallel()
	s := &stub{due: store.DueTicks{Now: midnight}}
	for range tickLimit {
		s.due.Ticks = append(s.due.Ticks, dueNow(t, daily, slices.Repeat([]string{"agent"}, 100)...))
	}
	ticker, _ := ticking(s)
	for i, step := range []struct {
		err  error
		want int // ticks
	}{
		{nil, 10},
		{context.DeadlineExceeded, 10}, {context.DeadlineExceeded, 5}, {context.DeadlineExceeded, 2}, {context.DeadlineExceeded, 1}, {context.DeadlineExceeded, 1},
		{errors.New("away"), 1}, {nil, 1}, {nil, 1}, {nil, 1}, {nil, 2}, {nil, 5}, {nil, 10}, {nil, 10},
	} {
		s.events = nil
		s.admit = func(store.Event) store.Admission { return store.Admission{} }
		s.acceptErr = step.err
		_, _, err := ticker.processRound(t.Context())
		require.ErrorIs(t, err, step.err)
		require.Len(t, s.events, step.want, "round %d", i)
	}
	s.due.Ticks = []store.DueTick{dueNow(t, daily), dueNow(t, daily)}
	require.Len(t, limitRuns(s.due.Ticks, 1), 1, "a tick without runs is recorded too")
}

func TestTicker_UnrecordedTicks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		admission     store.Admission
		moved, failed int
	}{
		"run by another gateway":    {store.Admission{Verdict: store.Repeated}, 1, 0},
		"the connector has changed": {store.Admission{Verdict: store.Outdated}, 0, 0},
		"taken":                     {store.Admission{Err: store.ErrTickTaken}, 0, 0},
		"bad":                       {store.Admission{Err: errors.New("bad")}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{due: store.DueTicks{Now: midnight, Ticks: []store.DueTick{dueNow(t, daily, "first")}}, admit: func(store.Event) store.Admission { return c.admission }}
			ticker, registry := ticking(s)
			_, done, err := ticker.processRound(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.moved, done)
			require.Len(t, s.moves, c.moved)
			require.InDelta(t, c.failed, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", "failed"), 0)
		})
	}
	unreadable := dueNow(t, connector.Config{Schedule: "@fortnightly"}, "first")
	s := &stub{due: store.DueTicks{Now: midnight, Ticks: []store.DueTick{unreadable, dueNow(t, daily, "first")}}}
	ticker, _ := ticking(s)
	_, done, err := ticker.processRound(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, done, "the other tick runs")
	require.Equal(t, []store.TickMove{{Connector: unreadable.Route.Connector.Key(), From: midnight, To: midnight.Add(time.Minute)}}, s.moves)
}

// TestTicker_LookInterval: the ticker checks when the next tick is due, and rarely without ticks.
func TestTicker_LookInterval(t *testing.T) {
	t.Parallel()
	soon, later := midnight.Add(time.Second), midnight.Add(time.Hour)
	for name, c := range map[string]struct {
		due   store.DueTicks
		err   error
		every time.Duration
	}{
		"none":    {store.DueTicks{Now: midnight}, nil, pollInterval},
		"soon":    {store.DueTicks{Now: midnight, Next: &soon}, nil, time.Second},
		"later":   {store.DueTicks{Now: midnight, Next: &later}, nil, pollInterval},
		"failing": {store.DueTicks{}, errors.New("away"), noProgressPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stub{due: c.due, err: c.err}
				ticker, _ := ticking(s)
				ctx, stop := context.WithTimeout(t.Context(), 10*c.every+time.Millisecond)
				defer stop()
				require.NoError(t, ticker.Run(ctx))
				require.Len(t, s.looks, 11)
				require.Equal(t, c.every, s.looks[1].Sub(s.looks[0]))
			})
		})
	}
}

// TestTicker_ReplicasShareTicks: each tick is one connector run, with one run for each link.
func TestTicker_ReplicasShareTicks(t *testing.T) {
	t.Parallel()
	const connectors = 3*tickLimit + 7
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	scene := storebench.NewScene(t, st, 1)
	conns := scene.Crons(t, connectors)
	registry := prometheus.NewRegistry()
	counted := metrics.NewGateway(registry, nil)
	lookAll := func() {
		var replicas sync.WaitGroup
		for range 3 {
			replicas.Go(func() {
				ticker := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler), Metrics: counted})
				for {
					due, _, err := ticker.processRound(t.Context())
					if err != nil || len(due.Ticks) == 0 {
						return
					}
				}
			})
		}
		replicas.Wait()
	}
	lookAll() // the first round only plans
	moves, ids := make([]store.TickMove, len(conns)), make([]uuid.UUID, len(conns))
	for i, c := range conns {
		ids[i] = c.ID
	}
	times, err := st.TickTimes(t.Context(), scene.Project, ids)
	require.NoError(t, err)
	due, err := st.DueTicks(t.Context(), 1)
	require.NoError(t, err)
	for i, c := range conns {
		require.True(t, times[c.ID].Planned)
		moves[i] = store.TickMove{Connector: c.Key(), From: times[c.ID].Next, To: due.Now.Truncate(time.Second), Planned: true}
	}
	moved, err := st.MoveTicks(t.Context(), moves)
	require.NoError(t, err)
	require.Equal(t, connectors, moved)
	lookAll()
	for _, c := range conns {
		_, total, err := st.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Trigger: store.TriggerCron, Limit: 10})
		require.NoError(t, err)
		require.EqualValues(t, 1, total)
	}
	require.InEpsilon(t, connectors, metrictest.Of(t, registry).Value(t, "agentplatform_cron_ticks_total", "outcome", "run"), 0)
}
