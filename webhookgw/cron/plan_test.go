// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/cron"
	"github.com/agentplatform/agentplatform/store"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

func TestPlan_DueTicks(t *testing.T) {
	t.Parallel()
	const noon = "2026-01-01T12:00:00Z"
	for name, c := range map[string]struct {
		schedule, at, last, now string
		unplanned               bool
		missed                  cron.Missed
		tick, next              string
		skipped                 bool
	}{
		"nothing is planned yet":             {schedule: "@hourly", at: "2026-01-01T11:30:00Z", now: noon, unplanned: true, next: noon},
		"not before the last one":            {schedule: "@hourly", at: "2026-01-01T11:30:00Z", last: noon, now: noon, unplanned: true, next: "2026-01-01T13:00:00Z"},
		"in time":                            {schedule: "@hourly", at: noon, now: noon, tick: noon, next: "2026-01-01T13:00:00Z"},
		"late, but not too late":             {schedule: "* * * * *", at: "2026-01-01T11:55:00Z", now: noon, tick: "2026-01-01T11:55:00Z", next: "2026-01-01T11:56:00Z"},
		"too late":                           {schedule: "* * * * *", at: "2026-01-01T11:54:00Z", now: noon, tick: "2026-01-01T11:54:00Z", skipped: true, next: "2026-01-01T11:55:00Z"},
		"too late, no tick in time":          {schedule: "@daily", at: "2026-01-01T00:00:00Z", now: noon, tick: "2026-01-01T00:00:00Z", skipped: true, next: "2026-01-02T00:00:00Z"},
		"the newest of many":                 {schedule: "30 * * * *", at: "2025-12-01T00:30:00Z", now: noon, missed: cron.MissedLatest, tick: "2026-01-01T11:30:00Z", next: "2026-01-01T12:30:00Z"},
		"the newest is in time":              {schedule: "@hourly", at: "2025-12-01T00:00:00Z", now: noon, missed: cron.MissedLatest, next: noon},
		"the newest, planned by other rules": {schedule: "@daily", at: "2026-01-01T01:00:00Z", now: noon, missed: cron.MissedLatest, tick: "2026-01-01T01:00:00Z", next: "2026-01-02T00:00:00Z"},
		"no tick for years":                  {schedule: "0 0 29 2 *", at: "2097-01-01T00:00:00Z", now: "2097-01-01T00:00:00Z", unplanned: true, next: "2097-01-31T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			schedule, err := cron.Parse(c.schedule, "")
			require.NoError(t, err)
			due := store.DueTick{At: moment(t, c.at), Planned: !c.unplanned}
			if c.last != "" {
				last := moment(t, c.last)
				due.LastAt = &last
			}
			missed := c.missed
			if missed == "" {
				missed = cron.MissedSkip
			}
			got := planTick(due, schedule, missed, moment(t, c.now))
			var tick time.Time
			if c.tick != "" {
				tick = moment(t, c.tick)
			}
			require.Equal(t, tick, got.tick)
			require.Equal(t, c.skipped, got.skipped != "")
			require.Equal(t, moment(t, c.next), got.next)
			require.Equal(t, name != "no tick for years", got.planned)
		})
	}
}

// model is a store with one cron connector and a clock that the test moves. The conformance tests
// of the stores show that store.Ticks and store.Ingest work.
type model struct {
	t         *rapid.T
	now       time.Time
	connector store.Connector
	active    bool
	due       time.Time
	planned   bool
	last      *time.Time
	keys      map[string]time.Time // with their expiry
	link      uuid.UUID

	// ran has the executed ticks, with the generation of the connector. A re-created connector does
	// not know the ticks of its predecessor.
	ran  map[time.Time]int
	made int
	// since is the time from which ticks are due.
	since time.Time
	// high is the maximum of the clock, because late ticks stay late.
	high time.Time
	// between runs between the read and the write of a replica.
	between func()
	depth   int
}

func (m *model) DueTicks(context.Context, int, ...uuid.UUID) (store.DueTicks, error) {
	due := store.DueTicks{Now: m.now}
	if m.now.After(m.high) {
		m.high = m.now
	}
	if m.active {
		next := m.due
		due.Next = &next
	}
	if m.active && !m.due.After(m.now) {
		due.Ticks = []store.DueTick{{
			Route: store.Route{Connector: m.connector, Links: []store.Link{{ID: m.link, AgentName: "a"}}, Live: true}, At: m.due, Planned: m.planned, LastAt: m.last,
		}}
	}
	m.between()
	return due, nil
}

func (m *model) move(move store.TickMove) bool {
	if !m.active || !m.due.Equal(move.From) {
		return false
	}
	if m.due, m.planned = move.To, move.Planned; !move.Done.IsZero() {
		m.last = &move.Done
	}
	return true
}

func (m *model) MoveTicks(_ context.Context, moves []store.TickMove) (n int, err error) {
	for _, move := range moves {
		if m.move(move) {
			n++
		}
	}
	return n, nil
}

var errLost = errors.New("the answer is lost")

func (m *model) Accept(_ context.Context, events []store.Event) ([]store.Admission, error) {
	fate := rapid.SampledFrom([]string{"well", "well", "well", "failed", "lost"}).Draw(m.t, "accepting")
	if fate == "failed" {
		return nil, errLost
	}
	out := make([]store.Admission, len(events))
	for i, e := range events {
		switch end, known := m.keys[e.Idempotency.Key]; {
		case e.ConnectorVersion != m.connector.Version:
			out[i].Verdict = store.Outdated
		case known && end.After(m.now):
			out[i].Verdict = store.Repeated
		case !m.move(*e.Tick):
			return nil, store.ErrTickTaken
		default:
			m.keys[e.Idempotency.Key] = m.now.Add(e.Idempotency.TTL)
			m.note(e)
		}
	}
	if fate == "lost" {
		return nil, errLost
	}
	return out, nil
}

// note checks an executed tick.
func (m *model) note(e store.Event) {
	if e.Skipped != "" {
		return
	}
	var input cron.Input
	if err := json.Unmarshal(e.Input, &input); err != nil || !input.ScheduledAt.Equal(e.Tick.Done) {
		m.t.Fatalf("input %s of tick %s: %v", e.Input, e.Tick.Done, err)
	}
	tick := e.Tick.Done
	if made, ran := m.ran[tick]; ran && made == m.made {
		m.t.Fatalf("the tick of %s is run twice", tick)
	}
	if !tick.After(m.since) {
		m.t.Fatalf("the tick of %s is of before %s, when the schedule began", tick, m.since)
	}
	schedule, missed := m.schedule()
	if !schedule.Next(tick.Add(-time.Second)).Equal(tick) {
		m.t.Fatalf("%s is no tick", tick)
	}
	if missed == cron.MissedSkip && m.now.Sub(tick) > 5*maxLateness { // a replica can be paused three times
		m.t.Fatalf("the tick of %s is run at %s", tick, m.now)
	}
	if missed == cron.MissedLatest && !schedule.Next(tick).After(m.now.Add(-5*maxLateness)) {
		m.t.Fatalf("the tick of %s is run at %s, and is not the newest", tick, m.now)
	}
	m.ran[tick] = m.made
}

func (m *model) ProjectLoad(context.Context, uuid.UUID) (store.ProjectLoad, error) {
	return store.ProjectLoad{}, nil
}

func (m *model) schedule() (cron.Schedule, cron.Missed) {
	var config connector.Config
	if err := json.Unmarshal(m.connector.Config, &config); err != nil {
		m.t.Fatal(err)
	}
	schedule, err := cron.Parse(config.Schedule, config.Timezone)
	if err != nil {
		m.t.Fatal(err)
	}
	return schedule, cron.Missed(config.MissedTicks)
}

// begin simulates a changed or reactivated schedule.
func (m *model) begin(active bool) {
	m.connector.Version++
	m.active, m.planned, m.due, m.since = active, false, m.now, m.now
	if m.last != nil && m.last.After(m.since) {
		m.since = *m.last
	}
}

// put changes the configuration of the connector.
func (m *model) put() {
	text, err := json.Marshal(connector.Config{
		Schedule:    rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "@hourly", "30 2 * * *", "15,45 1-3 * * *", "@daily", "0 0 1 * *", "0 12 * * 1"}).Draw(m.t, "schedule"),
		Timezone:    rapid.SampledFrom([]string{"", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(m.t, "zone"),
		MissedTicks: rapid.SampledFrom([]string{"skip", "latest"}).Draw(m.t, "missed"), Prompt: "Go",
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.connector.Config = text
	m.begin(m.active)
}

// settled checks that all due ticks have run.
func (m *model) settled() {
	if !m.active {
		return
	}
	schedule, missed := m.schedule()
	from := m.high.Add(-maxLateness)
	if !from.After(m.since) {
		from = m.since.Add(time.Nanosecond)
	}
	for tick := schedule.Next(from.Add(-time.Nanosecond)); !tick.IsZero() && !tick.After(m.now); tick = schedule.Next(tick) {
		if _, ran := m.ran[tick]; !ran {
			m.t.Fatalf("the tick of %s has not run at %s", tick, m.now)
		}
	}
	if m.now.Before(m.high) {
		return
	}
	newest := schedule.Latest(m.since.Add(time.Nanosecond), m.now)
	if _, ran := m.ran[newest]; missed == cron.MissedLatest && !newest.IsZero() && !ran {
		m.t.Fatalf("the newest tick, of %s, has not run at %s", newest, m.now)
	}
}

// TestTicker_RunsEachTickOnce: with random schedules, clock jumps, replicas, pauses and lost
// responses.
func TestTicker_RunsEachTickOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			t: t, now: time.Unix(1_770_000_000, 0).UTC().Add(draw(t, "start", 0, 50*24*time.Hour, 260*24*time.Hour, 300*24*time.Hour)), active: true, link: uuid.New(),
			connector: store.Connector{ProjectID: uuid.New(), EnvironmentID: uuid.New(), ID: uuid.New()}, keys: map[string]time.Time{}, ran: map[time.Time]int{},
		}
		m.put()
		var replicas []*Ticker
		for range rapid.IntRange(1, 3).Draw(t, "replicas") {
			replicas = append(replicas, New(Options{Store: m, Logger: slog.New(slog.DiscardHandler)}))
		}
		anyone := func() *Ticker { return rapid.SampledFrom(replicas).Draw(t, "replica") }
		m.between = func() {
			if m.depth > 2 {
				return
			}
			m.depth++
			defer func() { m.depth-- }()
			switch rapid.IntRange(0, 8).Draw(t, "between") {
			case 0:
				_, _, _ = anyone().processRound(context.Background()) // a later round finds lost ticks
			case 1:
				m.now = m.now.Add(draw(t, "stands still for", time.Second, time.Minute, maxLateness-time.Minute, maxLateness))
			case 2:
				m.begin(rapid.Bool().Draw(t, "enabled"))
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				m.put()
			case 1:
				m.begin(!m.active)
			case 2:
				m.now = m.now.Add(-draw(t, "back", time.Second, time.Minute, 20*time.Minute, 2*time.Hour))
			case 3:
				m.now = m.now.Add(draw(t, "outage", 7*time.Minute, time.Hour, 5*time.Hour, 26*time.Hour, 40*24*time.Hour))
			case 4:
				m.last = nil // deleted and re-created with its ID
				m.made++
				m.begin(true)
			default:
				m.now = m.now.Add(draw(t, "ahead", time.Second, time.Minute, 3*time.Minute, 31*time.Minute))
			}
			m.rest(anyone())
		}
	})
}

// draw returns a duration near one of the given ones.
func draw(t *rapid.T, label string, about ...time.Duration) time.Duration {
	return rapid.SampledFrom(about).Draw(t, label) + time.Duration(rapid.IntRange(0, 59_999).Draw(t, "and"))*time.Millisecond
}

// rest runs a replica until nothing is due, without other events.
func (m *model) rest(replica *Ticker) {
	quiet := 0
	for range 2000 {
		due, _, err := replica.processRound(context.Background())
		if err != nil && !errors.Is(err, errLost) {
			m.t.Fatal(err)
		}
		if err == nil && len(due.Ticks) == 0 && (!m.active || m.due.After(m.now)) {
			if quiet++; quiet > 1 {
				m.settled()
				return
			}
		}
	}
	m.t.Fatal("the due ticks never end")
}
