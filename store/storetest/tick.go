// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
)

// newCron returns a cron connector that is not stored yet.
func (w *world) newCron(name string, config connector.Config) store.Connector {
	c := w.newConnector(name)
	c.Type, c.Mode, c.SecretDigest = store.TypeCron, "inbound", nil
	text, err := json.Marshal(config)
	w.NoError(err)
	c.Config = text
	return c
}

var hourly = connector.Config{Schedule: "@hourly", Timezone: "UTC", MissedTicks: "skip", Prompt: "Go", Payload: json.RawMessage(`{"a":1}`)}

// putCron stores an hourly connector, linked to these agents.
func (w *world) putCron(name string, agents ...string) store.Connector {
	c := w.newCron(name, hourly)
	w.NoError(w.s.PutConnector(w.ctx, c))
	for i, agent := range agents {
		w.NoError(w.s.PutLink(w.ctx, w.newLink(name+"-"+agent, c.ID, agent, origin.Add(time.Duration(i)*time.Minute))))
	}
	return c
}

func (w *world) dueTicks(limit int) store.DueTicks {
	due, err := w.s.DueTicks(w.ctx, limit)
	w.NoError(err)
	return due
}

// onlyDueTick returns the only due tick.
func (w *world) onlyDueTick() store.DueTick {
	due := w.dueTicks(10)
	w.Len(due.Ticks, 1)
	return due.Ticks[0]
}

func (w *world) moveTicks(moves ...store.TickMove) int {
	n, err := w.s.MoveTicks(w.ctx, moves)
	w.NoError(err)
	return n
}

func (w *world) tickTimes(c store.Connector) store.TickTimes {
	times, err := w.s.TickTimes(w.ctx, c.ProjectID, []uuid.UUID{c.ID, uuid.New(), w.connector.ID})
	w.NoError(err)
	w.Len(times, 1, "of cron connectors only")
	return times[c.ID]
}

// planned moves a connector's next tick to a past time.
func (w *world) planned(c store.Connector, ago time.Duration) time.Time {
	times := w.tickTimes(c)
	to := w.dueTicks(1).Now.Add(-ago).Truncate(time.Second)
	w.Equal(1, w.moveTicks(store.TickMove{Connector: c.Key(), From: times.Next, To: to, Planned: true}))
	return to
}

// tickEvent returns the event of a tick.
func (w *world) tickEvent(t store.DueTick, next time.Time) store.Event {
	c := t.Route.Connector
	e := store.Event{
		ConnectorRunID: newID(), ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID, ConnectorID: c.ID, ConnectorVersion: c.Version,
		Trigger: store.TriggerCron, Class: store.ClassDeferred, ContentType: "application/json", Input: []byte(`{}`),
		Idempotency: &store.Idempotency{Key: "tick:" + t.At.Format(time.RFC3339), TTL: time.Minute},
		Tick:        &store.TickMove{Connector: c.Key(), From: t.At, To: next, Planned: true, Done: t.At},
	}
	for _, link := range t.Route.Links {
		e.Runs = append(e.Runs, store.EventRun{ID: newID(), LinkID: link.ID, AgentName: link.AgentName})
	}
	return e
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

var tickPromises = []promise{
	{"a cron connector is due at once, with nothing planned", func(w *world) {
		w.Empty(w.dueTicks(10).Ticks)
		w.Nil(w.dueTicks(10).Next, "a webhook has no ticks")
		c := w.putCron("nightly", "first", "second")
		due := w.dueTicks(10)
		w.Len(due.Ticks, 1)
		t := due.Ticks[0]
		w.False(t.Planned)
		w.Nil(t.LastAt)
		w.False(t.At.After(due.Now))
		w.Equal(t.At, *due.Next)
		w.Equal(c.Key(), t.Route.Connector.Key())
		w.Equal(c.EnvironmentID, t.Route.Connector.EnvironmentID)
		w.JSONEq(string(c.Config), string(t.Route.Connector.Config))
		route := w.readRoute(c.Key())
		w.Equal(route.Connector.Version, t.Route.Connector.Version)
		w.Equal(route.Live, t.Route.Live)
		w.Len(t.Route.Links, 2)
		for i, link := range route.Links {
			w.Equal(link.ID, t.Route.Links[i].ID)
			w.Equal(link.AgentName, t.Route.Links[i].AgentName)
		}
		w.Equal(store.TickTimes{Active: true, Next: t.At}, w.tickTimes(c))
	}},
	{"the next tick is due when it was moved to", func(w *world) {
		c := w.putCron("nightly")
		t := w.onlyDueTick()
		next := w.dueTicks(1).Now.Add(time.Hour).Truncate(time.Second)
		w.Equal(1, w.moveTicks(store.TickMove{Connector: c.Key(), From: t.At, To: next, Planned: true}))
		due := w.dueTicks(10)
		w.Empty(due.Ticks)
		w.Equal(next, *due.Next)
		w.Equal(store.TickTimes{Active: true, Next: next, Planned: true}, w.tickTimes(c))
		w.Zero(w.moveTicks(store.TickMove{Connector: c.Key(), From: t.At, To: t.At, Planned: true}), "another process has moved it")
		w.Zero(w.moveTicks(store.TickMove{Connector: store.Key{ProjectID: uuid.New(), ID: c.ID}, From: next, To: t.At}), "another project's")
		w.Zero(w.moveTicks(), "nothing to move")
		at := w.planned(c, time.Hour)
		t = w.onlyDueTick()
		w.True(t.Planned)
		w.Equal(at, t.At)
	}},
	{"an event of a tick moves it and is a connector run", withAgents(func(w *world) {
		c := w.putCron("nightly", "first", "second")
		at := w.planned(c, time.Minute)
		next := at.Add(time.Hour)
		e := w.tickEvent(w.onlyDueTick(), next)
		w.accept(&e)
		w.Equal(store.TickTimes{Active: true, Next: next, Planned: true, Last: &at}, w.tickTimes(c))
		w.Empty(w.dueTicks(10).Ticks)
		run := w.connectorRun(e.ConnectorRunID)
		w.Equal(store.TriggerCron, run.Trigger)
		w.Len(run.RunIDs, 2)
		w.Equal(store.ClassDeferred, w.run(e.Runs[0].ID).Class)
		w.Len(w.claim(10, lease), 2)
	})},
	{"a tick is recorded once, by any number of callers", func(w *world) {
		c := w.putCron("nightly", "first")
		at := w.planned(c, time.Minute)
		t := w.onlyDueTick()
		first, second, late := w.tickEvent(t, at.Add(time.Hour)), w.tickEvent(t, at.Add(time.Hour)), w.tickEvent(t, at.Add(time.Hour))
		w.accept(&first)
		w.Equal(store.Repeated, w.tryAccept(second)[0].Verdict)

		webhook := w.event()
		late.Idempotency = nil // as after the expiry of the key
		w.ErrorIs(errorOf(w.s.Accept(w.ctx, []store.Event{webhook, late})), store.ErrTickTaken)
		w.ErrorIs(errorOf(w.s.ConnectorRun(w.ctx, w.key(late.ConnectorRunID))), store.ErrNotFound, "the call writes nothing")
		w.Equal(at.Add(time.Hour), w.tickTimes(c).Next)
		w.EqualValues(1, w.projectLoad().Backlog[w.environment.ID].Runs)
	}},
	{"a tick of a changed connector is outdated and stays due", func(w *world) {
		c := w.putCron("nightly", "first")
		w.planned(c, time.Minute)
		e := w.tickEvent(w.onlyDueTick(), time.Now().Add(time.Hour))
		c.Config = []byte(strings.Replace(string(c.Config), "Go", "Run", 1))
		c.Ref.Generation++
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.Equal(store.Outdated, w.tryAccept(e)[0].Verdict)
		t := w.onlyDueTick()
		w.True(t.Planned, "the schedule is the same")
		w.JSONEq(string(c.Config), string(t.Route.Connector.Config))
	}},
	{"another schedule or time zone is planned again", func(w *world) {
		c := w.putCron("nightly")
		for i, config := range []connector.Config{{Schedule: "@daily", Timezone: "UTC"}, {Schedule: "@daily", Timezone: "Europe/Paris"}} {
			at := w.planned(c, time.Hour)
			next := w.newCron("nightly", config)
			c.Config, c.Ref.Generation = next.Config, int64(i)+2
			w.NoError(w.s.PutConnector(w.ctx, c))
			times := w.tickTimes(c)
			w.True(times.Active)
			w.False(times.Planned)
			w.True(times.Next.After(at))
		}
	}},
	{"an inactive connector does not tick, and continues later", func(w *world) {
		c := w.putCron("nightly")
		put := func(enabled, retired bool) {
			c.Enabled, c.Retired = enabled, retired
			c.Ref.Generation++
			w.NoError(w.s.PutConnector(w.ctx, c))
		}
		for name, step := range map[string]struct{ stop, start func() }{
			"disabled": {func() { put(false, false) }, func() { put(true, false) }},
			"disabled at once": {func() {
				c.Ref.Generation++
				w.NoError(w.s.DisableConnector(w.ctx, c.Key(), c.Ref))
			}, func() { put(true, false) }},
			"retired": {func() { put(true, true) }, func() { put(true, false) }},
			"without its environment": {
				func() { w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref)) },
				func() { w.NoError(w.s.PutEnvironment(w.ctx, w.environment)) },
			},
			"without its project": {
				func() { w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref)) },
				func() { w.NoError(w.s.PutProject(w.ctx, w.project)) },
			},
		} {
			at := w.planned(c, 2*time.Hour)
			step.stop()
			w.False(w.tickTimes(c).Active, name)
			due := w.dueTicks(10)
			w.Empty(due.Ticks, name)
			w.Nil(due.Next, name)
			w.Zero(w.moveTicks(store.TickMove{Connector: c.Key(), From: w.tickTimes(c).Next, To: at, Planned: true}), name)
			step.start()
			t := w.onlyDueTick()
			w.False(t.Planned, name)
			w.True(t.At.After(at.Add(time.Hour)), "%s: missed ticks are not made up", name)
		}
		w.NoError(w.s.Remove(w.ctx, w.project.ID, c.Ref))
		w.Empty(w.dueTicks(10).Ticks)
		w.requireNone(w.s.TickTimes(w.ctx, w.project.ID, []uuid.UUID{c.ID}))
	}},
	{"a connector that loses its name does not tick", func(w *world) {
		c := w.putCron("nightly")
		other := w.putCron("other")
		w.planned(other, -time.Hour)
		other.Name = c.Name
		other.Ref.Generation++
		var duplicate *store.DuplicateError
		w.ErrorAs(w.s.PutConnector(w.ctx, other), &duplicate)
		w.False(w.tickTimes(other).Active)
		w.Equal(c.ID, w.onlyDueTick().Route.Connector.ID)
	}},
	{"the oldest ticks come first, up to the limit", func(w *world) {
		var crons []store.Connector
		for i := range 5 {
			crons = append(crons, w.putCron(fmt.Sprint("c", i)))
		}
		for i, c := range crons {
			w.planned(c, time.Duration(i+1)*time.Hour)
		}
		due := w.dueTicks(3)
		w.Len(due.Ticks, 3)
		for i, t := range due.Ticks {
			w.Equal(crons[4-i].ID, t.Route.Connector.ID)
		}
		w.Equal(due.Ticks[0].At, *due.Next)
		w.GreaterOrEqual(w.readFigures().TickAge, 5*time.Hour)
	}},
	{"the age of ticks is that of the oldest due one", func(w *world) {
		late := func() time.Duration { return w.readFigures().TickAge }
		w.Zero(late())
		c := w.putCron("nightly")
		w.planned(c, -time.Hour)
		w.Zero(late(), "the next one is not due")
		w.planned(c, time.Hour)
		w.GreaterOrEqual(late(), time.Hour)
	}},
	{"an event without runs is skipped for its reason", func(w *world) {
		c := w.putCron("nightly")
		at := w.planned(c, time.Minute)
		e := w.tickEvent(w.onlyDueTick(), at.Add(time.Hour))
		e.Skipped = "no agent is linked\x00"
		plain, other := w.event(), w.event()
		plain.Runs, other.Runs, other.Skipped = nil, nil, strings.Repeat("é", store.MaxError)
		w.accept(&e, &plain, &other)
		for id, want := range map[uuid.UUID]store.ConnectorRunStatus{
			e.ConnectorRunID: store.ConnectorRunSkipped, plain.ConnectorRunID: store.ConnectorRunCompleted, other.ConnectorRunID: store.ConnectorRunSkipped,
		} {
			run := w.connectorRun(id)
			w.Equal(want, run.Status)
			w.NotNil(run.EndedAt)
			w.LessOrEqual(len(run.Error), store.MaxError)
			w.Equal(want == store.ConnectorRunSkipped, run.Error != "")
		}
		run := w.connectorRun(e.ConnectorRunID)
		w.Equal("no agent is linked\uFFFD", run.Error)
		w.Equal(store.TriggerCron, run.Trigger)
		w.Equal(at, *w.tickTimes(c).Last)
	}},
	{"runs of ticks respect concurrency keys", func(w *world) {
		w.deployKeyed("one", keyedBy{"first": {Expression: "input.key", Drop: true}}, "first", "second")
		w.putCron("nightly", "first", "second")
		t := w.onlyDueTick()
		route := w.readRoute(t.Route.Connector.Key())
		w.NotEmpty(route.Concurrency)
		w.Equal(route.Concurrency, t.Route.Concurrency)
		w.True(t.Route.Live)
	}},
}
