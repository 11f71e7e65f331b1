// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// resident is a project whose objects have given IDs. It records its observations without IDs and
// times, so two residents with the same life have the same records.
type resident struct {
	*world
	// choose returns the ID for the object of a kind and a name.
	choose     func(kind, name string) uuid.UUID
	connectors map[string]store.Connector // by name
	links      map[string]store.Link
	places     map[string]store.Environment
	versions   map[string]store.DeploymentSpec
	held       []store.Claimed
	due        []store.ClaimedDelivery
	replays    []store.Replay
	said       []string
}

// settles creates a resident with a sync, an outbound and a cron connector, one for failure
// notices, and a live deployment.
func (w *world) settles(choose func(kind, name string) uuid.UUID) *resident {
	t := *w
	r := &resident{
		world: &t, choose: choose, connectors: map[string]store.Connector{}, links: map[string]store.Link{},
		places: map[string]store.Environment{}, versions: map[string]store.DeploymentSpec{},
	}
	t.project.ID = uuid.New()
	r.NoError(r.s.PutProject(r.ctx, r.project))
	r.createEnvironment("production")
	r.environment = r.places["production"]
	r.version("one")
	r.connect("orders", "sync")
	r.connect("results", "outbound")
	r.connect("ops", "outbound")
	r.connect("nightly", store.TypeCron)
	for _, link := range []string{"orders first", "orders second", "results first", "nightly first", "ops nobody"} {
		r.createLink(link)
	}
	return r
}

func (r *resident) recordLine(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// recordResult records the result of an operation: an error without the IDs in it.
func (r *resident) recordResult(what string, err error) {
	var (
		taken *store.IDTakenError
		stale *store.StaleError
	)
	switch {
	case err == nil:
		r.recordLine("%s", what)
		return
	case errors.As(err, &taken):
		r.recordLine("%s: the id is taken", what)
		return
	case errors.As(err, &stale):
		r.recordLine("%s: a later one is stored", what)
		return
	}
	for _, known := range []error{store.ErrNotFound, store.ErrConflict, store.ErrFenced, store.ErrReplayRunning, store.ErrTooManyReplays, store.ErrReplayMoved, store.ErrInvalid} {
		if errors.Is(err, known) {
			r.recordLine("%s: %s", what, known)
			return
		}
	}
	r.NoError(err, what)
}

func (r *resident) createEnvironment(name string) {
	e := r.newEnvironment(name, origin)
	e.ID = r.choose(store.KindEnvironment, name)
	r.recordResult("environment "+name, r.s.PutEnvironment(r.ctx, e))
	r.places[name] = e
}

func (r *resident) connect(name, mode string) {
	c := r.newConnector(name)
	if c.Mode = mode; mode == store.TypeCron {
		c = r.newCron(name, hourly)
	}
	c.ID, c.Enabled = r.choose(store.KindConnector, name), true
	r.recordResult("connector "+name, r.s.PutConnector(r.ctx, c))
	r.connectors[name] = c
}

// createLink links a connector to an agent, by names.
func (r *resident) createLink(name string) {
	connector, agent, _ := strings.Cut(name, " ")
	c := r.connectors[connector]
	l := r.newLink(strings.ReplaceAll(name, " ", "-"), c.ID, agent, origin.Add(time.Duration(len(r.links))*time.Minute))
	l.ID = r.choose(store.KindConnectorLink, name)
	switch {
	case agent == "nobody":
		l.Outbound = &telling
	case agent == "second" && c.Mode == "outbound":
		l.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
	case c.Mode == "outbound":
		l.Outbound = &automatic
	}
	r.recordResult("link "+name, r.s.PutLink(r.ctx, l))
	r.links[name] = l
}

// version makes a deployment live, or records why not.
func (r *resident) version(name string) {
	spec := r.newDeployment(name)
	spec.ID = r.choose(store.KindDeployment, name)
	spec.EnvironmentID = r.environment.ID
	r.versions[name] = spec
	if _, err := r.s.BeginDeployment(r.ctx, spec); err != nil {
		r.recordResult("deployment "+name, err)
		return
	}
	r.recordResult("build", r.s.StartBuild(r.ctx, spec.Key(), ""))
	r.recordResult("built", r.s.FinishBuild(r.ctx, spec.Key(), r.buildResult("bundle of "+name, "first", "second")))
	result, err := r.s.Activate(r.ctx, store.Activation{Deployment: spec.Key()})
	r.recordResult(fmt.Sprint("live: ", result.Live), err)
}

// happens makes a connector accept an event or a tick.
func (r *resident) happens(name, key string, tick *store.DueTick) {
	route, err := r.s.Route(r.ctx, r.connectors[name].Key())
	if err != nil {
		r.recordResult("event of "+name, err)
		return
	}
	e := store.Event{
		ConnectorRunID: newUUIDv7(), ProjectID: r.project.ID, EnvironmentID: r.environment.ID, ConnectorID: route.Connector.ID,
		ConnectorVersion: route.Connector.Version, Trigger: store.TriggerWebhook, Input: []byte(`{"order":1}`), ContentType: "application/json",
	}
	if tick != nil {
		e = r.tickEvent(*tick, r.dueTicks().Now.Add(1000*time.Hour))
		e.Runs, e.Idempotency = nil, nil
	} else if key != "" {
		e.Idempotency = &store.Idempotency{Key: "key:" + key, Fingerprint: []byte("body"), TTL: time.Hour}
	}
	for _, l := range route.Links {
		e.Runs = append(e.Runs, store.EventRun{ID: newUUIDv7(), LinkID: l.ID, AgentName: l.AgentName, Concurrency: store.ConcurrencyKey{Text: key}})
	}
	admissions := r.tryAccept(e)
	r.recordResult(fmt.Sprint("event of ", name, ": ", admissions[0].Verdict, " ", len(admissions[0].RunIDs)), admissions[0].Err)
}

func (r *resident) dueTicks() store.DueTicks { return r.world.dueTicks(1000) }

// makeTickDue makes a cron connector due now.
func (r *resident) makeTickDue(name string) {
	c := r.connectors[name]
	times, err := r.s.TickTimes(r.ctx, r.project.ID, []uuid.UUID{c.ID})
	r.NoError(err)
	if t, known := times[c.ID]; known {
		r.recordLine("moved %d", r.moveTicks(store.TickMove{Connector: c.Key(), From: t.Next, To: r.dueTicks().Now.Add(-time.Minute), Planned: true}))
	}
	ticks := r.dueTicks().Ticks
	i := slices.IndexFunc(ticks, func(t store.DueTick) bool { return t.Route.Connector.Key() == c.Key() })
	if r.recordLine("tick of %s: %t", name, i >= 0); i >= 0 {
		r.happens(name, "", &ticks[i])
	}
}

// replaysOne replays an ended connector run of a connector.
func (r *resident) replaysOne(name string) {
	runs, _ := r.listConnectorRuns(store.ConnectorRunQuery{Connector: r.connectors[name].Key(), Limit: 100})
	runs = slices.DeleteFunc(runs, func(run store.ConnectorRun) bool { return run.EndedAt == nil })
	slices.SortFunc(runs, func(a, b store.ConnectorRun) int { return strings.Compare(r.describeEvent(a), r.describeEvent(b)) })
	if len(runs) == 0 {
		return
	}
	a, err := replay.One(r.ctx, r.s, replayRules, runs[0], nil)
	var refused *replay.Refused
	if errors.As(err, &refused) {
		r.recordLine("replay of %s: %s", name, refused.Reason)
		return
	}
	r.recordResult(fmt.Sprint("replay of ", name, ": ", a.Verdict, " ", len(a.RunIDs)), err)
}

// replaysMany starts a bulk replay.
func (r *resident) replaysMany(name string) {
	n := r.newReplay(r.connectors[name], store.ConnectorRunCompleted, store.ConnectorRunFailed)
	n.ID = r.choose("replay", fmt.Sprint(len(r.replays)))
	started, verdict, err := r.s.StartReplay(r.ctx, n)
	r.recordResult(fmt.Sprint("replays of ", name, ": ", verdict, " ", started.Match.Matched), err)
	if err == nil {
		r.replays = append(r.replays, started)
	}
}

// advanceReplay advances a bulk replay by all that is left.
func (r *resident) advanceReplay(taken store.Replay) {
	page := r.originals(taken, store.MaxReplayPage)
	outcomes := map[string]int{}
	for _, original := range page.Originals {
		step := replayStep(taken, original.ID)
		_, err := r.replayStep(original, step)
		var refused *replay.Refused
		switch {
		case err == nil:
			outcomes["again"]++
			taken = step.To
		case errors.As(err, &refused):
			outcomes[string(refused.Reason)]++
		default:
			r.recordResult("step", err)
			return
		}
	}
	to := taken
	to.Status = store.ReplayCompleted
	r.recordResult(fmt.Sprint("replayed: ", outcomes, page.End), r.s.MoveReplay(r.ctx, store.ReplayStep{From: taken.Position, To: to}))
}

// removes deletes the object of a ref.
func (r *resident) removes(ref store.ObjectRef) {
	r.recordResult("removed "+ref.Name, r.s.Remove(r.ctx, r.project.ID, ref))
}

// deletePending deletes the resident's tables of pending work.
func (r *resident) deletePending() {
	for _, table := range []string{"cron_ticks", "deliveries", "destinations", "open_connector_runs", "open_runs", "outbox", "replays"} {
		_, err := r.db.ExecContext(r.ctx, `DELETE FROM `+table+` WHERE project_id = $1`, r.project.ID.String()) //nolint:gosec // a name of the list
		r.NoError(err)
	}
}

// sortedNames returns the keys of a map in order.
func sortedNames[T any](of map[string]T) []string { return slices.Sorted(maps.Keys(of)) }
