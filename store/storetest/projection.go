// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

var projectionPromises = []promise{
	{"an ID is claimed by the first object", func(w *world) {
		other := w.newConnector("intruder")
		other.ID = w.connector.ID
		var taken *store.IDTakenError
		w.ErrorAs(w.s.PutConnector(w.ctx, other), &taken)
		w.True(taken.Holder.SameObject(w.connector.Ref))

		project := w.project
		project.Ref.Namespace = "elsewhere"
		w.ErrorAs(w.s.PutProject(w.ctx, project), &taken)
		link := w.links[0]
		link.Ref.Name = "intruder"
		w.ErrorAs(w.s.PutLink(w.ctx, link), &taken)
		environment := w.environment
		environment.Ref.Name = "intruder"
		w.ErrorAs(w.s.PutEnvironment(w.ctx, environment), &taken)
	}},
	{"an older generation never overwrites", func(w *world) {
		newer := w.connector
		newer.Ref.Generation, newer.Config = 2, timeoutSettings(60)
		w.NoError(w.s.PutConnector(w.ctx, newer))
		var stale *store.StaleError
		w.ErrorAs(w.s.PutConnector(w.ctx, w.connector), &stale)
		got := w.readConnector(w.connector.Key())
		w.Equal(timeoutSettings(60), got.Config)
		w.NoError(w.s.PutConnector(w.ctx, newer), "the same generation again is no error")
	}},
	{"a new object UID means deleted and re-created", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		again := w.environment
		again.Ref.ObjectUID, again.Ref.Generation = "second incarnation", 1
		w.NoError(w.s.PutEnvironment(w.ctx, again))
		got := w.readEnvironment(again.Key())
		w.Nil(got.LiveDeploymentID, "the live deployment ended with the first incarnation")
		w.Equal(store.RunCancelled, w.run(e.Runs[0].ID).Status)
		w.Equal("second incarnation", got.Ref.ObjectUID)
	})},
	{"an object with a new ID frees the first", func(w *world) {
		again := w.connector
		again.ID, again.Ref.ObjectUID = uuid.New(), "second incarnation"
		w.NoError(w.s.PutConnector(w.ctx, again))
		w.ErrorIs(errorOf(w.s.Connector(w.ctx, w.connector.Key())), store.ErrNotFound)
		other := w.newConnector("other")
		other.ID = w.connector.ID
		w.NoError(w.s.PutConnector(w.ctx, other))
	}},
	{"an environment is read as it was written", func(w *world) {
		got := w.readEnvironment(w.environment.Key())
		w.False(got.CreatedAt.IsZero())
		want := w.environment
		want.CreatedAt = got.CreatedAt
		w.Equal(want, got)
		w.ErrorIs(errorOf(w.s.Environment(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"a slug belongs to the oldest environment", func(w *world) {
		younger := w.newEnvironment("younger", origin.Add(time.Hour))
		younger.Slug = w.environment.Slug
		var taken *store.SlugTakenError
		w.ErrorAs(w.s.PutEnvironment(w.ctx, younger), &taken)
		w.True(taken.Holder.SameObject(w.environment.Ref))
		w.Equal(younger.Slug, taken.Slug)
		got, err := w.s.Environment(w.ctx, younger.Key())
		w.NoError(err, "it is stored nevertheless")
		w.Empty(got.Slug)

		older := w.newEnvironment("older", origin.Add(-time.Hour))
		older.Slug = w.environment.Slug
		w.NoError(w.s.PutEnvironment(w.ctx, older))
		w.Empty(w.readEnvironment(w.environment.Key()).Slug)
	}},
	{"the first environment is the default until it is removed", func(w *world) {
		second := w.newEnvironment("staging", origin.Add(time.Hour))
		w.NoError(w.s.PutEnvironment(w.ctx, second))
		w.Equal(w.environment.ID, w.defaultEnvironment(w.project.ID))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.Equal(second.ID, w.defaultEnvironment(w.project.ID))
		w.ErrorIs(errorOf(w.s.DefaultEnvironment(w.ctx, uuid.New())), store.ErrNotFound)
	}},
	{"a test environment can be the default", func(w *world) {
		test, last := w.newEnvironment("test", origin.Add(-time.Hour)), w.newEnvironment("last", origin.Add(time.Hour))
		test.Kind = "test"
		for _, e := range []store.Environment{test, last} {
			w.NoError(w.s.PutEnvironment(w.ctx, e))
		}
		isDefault := func(e store.Environment) {
			w.Equal(e.ID, w.defaultEnvironment(w.project.ID))
		}
		isDefault(test)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, test.Ref))
		isDefault(w.environment)
		last.Kind = "test"
		last.Ref.Generation++
		w.NoError(w.s.PutEnvironment(w.ctx, last))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		isDefault(last)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, last.Ref))
		w.ErrorIs(errorOf(w.s.DefaultEnvironment(w.ctx, w.project.ID)), store.ErrNotFound)
	}},
	{"an older environment that comes late is no default", func(w *world) {
		w.execStatement(`UPDATE environments SET created_at = created_at - 7200000000`)
		late := w.newEnvironment("late", origin.Add(-time.Hour))
		w.NoError(w.s.PutEnvironment(w.ctx, late))
		other := w.newEnvironment("other", origin.Add(time.Hour))
		w.NoError(w.s.PutEnvironment(w.ctx, other))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, other.Ref))
		w.Equal(w.environment.ID, w.defaultEnvironment(w.project.ID))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.Equal(late.ID, w.defaultEnvironment(w.project.ID))
	}},
	{"the oldest environment is the default of a rebuilt projection", func(w *world) {
		older, younger := w.newEnvironment("older", origin.Add(-time.Hour)), w.newEnvironment("younger", origin.Add(time.Hour))
		for _, e := range []store.Environment{younger, older} {
			w.NoError(w.s.PutEnvironment(w.ctx, e))
		}
		w.Equal(older.ID, w.defaultEnvironment(w.project.ID))
	}},
	{"claims are listed, except unmirrored ones", func(w *world) {
		rows := w.listProjected()
		w.ElementsMatch([]store.ProjectedObject{
			{Key: w.project.Key(), Ref: w.project.Ref},
			{Key: w.environment.Key(), Ref: w.environment.Ref},
			{Key: w.connector.Key(), Ref: w.connector.Ref},
			{Key: w.links[0].Key(), Ref: w.links[0].Ref},
			{Key: w.links[1].Key(), Ref: w.links[1].Ref},
		}, rows)
	}},
}

var connectorPromises = []promise{
	{"a route has the connector with its links, oldest first", func(w *world) {
		oldest := w.newLink("oldest", w.connector.ID, "third", origin.Add(-time.Hour))
		w.NoError(w.s.PutLink(w.ctx, oldest))
		route := w.readRoute(w.connector.Key())
		want := w.connector
		want.Secrets = []store.AcceptedSecret{{SHA256: want.SecretDigest}}
		want.Version, want.CreatedAt, want.UpdatedAt = route.Connector.Version, route.Connector.CreatedAt, route.Connector.UpdatedAt
		w.Equal(want, route.Connector)
		w.Len(route.Links, 3)
		for i, link := range []store.Link{oldest, w.links[0], w.links[1]} {
			link.CreatedAt, link.UpdatedAt = route.Links[i].CreatedAt, route.Links[i].UpdatedAt
			w.Equal(link, route.Links[i])
		}
		w.ErrorIs(errorOf(w.s.Route(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"every change increases the version", func(w *world) {
		last := w.version()
		raised := func(what string) {
			now := w.version()
			w.Greater(now, last, what)
			last = now
		}
		changed := w.connector
		changed.Config = json.RawMessage(`{"mode":"inbound"}`)
		w.NoError(w.s.PutConnector(w.ctx, changed))
		raised("a change of the connector")
		link := w.newLink("more", w.connector.ID, "third", origin)
		w.NoError(w.s.PutLink(w.ctx, link))
		raised("a new link")
		link.FilesRequired = true
		w.NoError(w.s.PutLink(w.ctx, link))
		raised("a change of a link")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, link.Ref))
		raised("a deleted link")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		raised("after a re-creation, the version is a new one")
	}},
	{"a moved link changes both connectors", func(w *world) {
		other := w.newConnector("other")
		w.NoError(w.s.PutConnector(w.ctx, other))
		before, version := w.version(), func() int64 {
			return w.readConnector(other.Key()).Version
		}
		otherBefore := version()
		moved := w.links[0]
		moved.ConnectorID = other.ID
		w.NoError(w.s.PutLink(w.ctx, moved))
		w.Greater(w.version(), before)
		w.Greater(version(), otherBefore)
	}},
	{"a changed secret keeps the previous one for its grace period", func(w *world) {
		rotated := w.connector
		rotated.SecretDigest = []byte("secret two")
		w.NoError(w.s.PutConnector(w.ctx, rotated))
		got := w.readConnector(w.connector.Key())
		w.Len(got.Secrets, 2)
		w.Equal(store.AcceptedSecret{SHA256: []byte("secret two")}, got.Secrets[0])
		w.Equal([]byte("secret one"), got.Secrets[1].SHA256)
		w.NotNil(got.Secrets[1].NotAfter)

		rotated.SecretDigest, rotated.SecretGracePeriod = []byte("secret three"), 0
		w.NoError(w.s.PutConnector(w.ctx, rotated))
		got = w.readConnector(w.connector.Key())
		for _, s := range got.Secrets {
			w.NotEqual("secret two", string(s.SHA256), "without grace it expires at once")
		}
		rotated.SecretDigest = nil
		w.NoError(w.s.PutConnector(w.ctx, rotated))
		w.Empty(w.readConnector(w.connector.Key()).Secrets)
	}},
	{"agents of the live deployment and of runs are listed", withAgents(func(w *world) {
		w.acceptEvent(w.event())
		two := w.deploy("two", "second", "unused")
		agents := w.agentsOf(w.environment.Key())
		w.Len(agents, 3)
		w.Equal("first", agents[0].Name)
		w.Nil(agents[0].Agent, "the live deployment does not have it")
		w.EqualValues(1, agents[0].RunCount)
		w.Equal("second", agents[1].Agent.Name)
		w.Nil(agents[1].Agent.Config, "a list carries no configurations")
		live, config, err := w.s.AgentConfig(w.ctx, w.environment.Key(), "second")
		w.NoError(err)
		w.Equal(two.ID, live)
		w.JSONEq(`{"model":"m"}`, string(config))
		_, _, err = w.s.AgentConfig(w.ctx, w.environment.Key(), "first")
		w.ErrorIs(err, store.ErrNotFound)
		w.EqualValues(1, agents[1].QueueCount)
		w.NotNil(agents[1].LastActivityAt)
		w.True(agents[1].HasInboundConnector)
		w.Equal("unused", agents[2].Name)
		w.Zero(agents[2].RunCount)
		w.Nil(agents[2].LastActivityAt)
		w.False(agents[2].HasInboundConnector)
	})},
	{"agents of earlier deployments are known, also without a run", func(w *world) {
		w.deploy("one", "never-ran")
		w.deploy("two", "live")
		agents := w.agentsOf(w.environment.Key())
		w.Len(agents, 2)
		w.Equal("never-ran", agents[1].Name)
		w.Nil(agents[1].Agent)
	}},
	{"agents with past runs only are listed up to a limit", withAgents(func(w *world) {
		w.execStatement(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
			INSERT INTO agent_totals (project_id, environment_id, agent_name, test_name, runs, last_ended_at)
			SELECT e.project_id, e.id, CASE n.i WHEN 2 THEN 'second' ELSE 'past-' || n.i END, '', n.i, n.i FROM environments e, n WHERE e.project_id = $1`, w.project.ID.String(), store.MaxPastAgents+3)
		e := w.event()
		e.Runs = e.Runs[:1]
		e.Runs[0].AgentName = "past-1" // has an open run
		w.accept(&e)
		listed := map[string]bool{}
		for _, a := range w.agentsOf(w.environment.Key()) {
			listed[a.Name] = true
		}
		w.Len(listed, store.MaxPastAgents+3)
		for name, want := range map[string]bool{"first": true, "second": true, "past-1": true, "past-3": false, "past-4": true} {
			w.Equal(want, listed[name], name)
		}
		left, err := w.s.Agent(w.ctx, w.environment.Key(), "past-3")
		w.NoError(err)
		w.EqualValues(3, left.RunCount)
	})},
	{"an environment has runs from the first on, open or ended", func(w *world) {
		has := func() bool {
			has, err := w.s.HasRuns(w.ctx, w.environment.Key())
			w.NoError(err)
			return has
		}
		w.deploy("one", "first", "second")
		w.False(has(), "without agents there are none")
		w.singles(1)
		w.True(has(), "it waits")
		run := w.claim(1, lease)[0]
		w.True(has(), "it runs")
		w.NoError(w.complete(completed(run)))
		w.True(has(), "it has ended")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.True(has(), "the environment is deleted")
		w.rollUpRows(100)
		w.True(has(), "it is counted")
	}},
	{"the agents of a deployment are found by name", func(w *world) {
		d := w.deploy("one", "b", "a", "c").Key()
		names, err := w.s.AgentNames(w.ctx, d, 2)
		w.NoError(err)
		w.Equal([]string{"a", "b"}, names)
		for name, want := range map[string]bool{"c": true, "d": false} {
			has, err := w.s.HasAgent(w.ctx, d, name)
			w.NoError(err)
			w.Equal(want, has, name)
		}
	}},
	{"the middleware of a deployment's agents that sends is recorded", func(w *world) {
		spec := w.newDeployment("one")
		w.deployResult(spec, func(result *store.BuildResult) {
			*result = w.buildResult("bundle of one", "a", "b")
			result.Agents[1].SendsByMiddleware = true
		})
		for name, want := range map[string]bool{"a": false, "b": true, "c": false} {
			sends, err := w.s.SendsByMiddleware(w.ctx, spec.Key(), name)
			w.NoError(err)
			w.Equal(want, sends, name)
		}
	}},
	{"an unchanged link costs no write", func(w *world) {
		link := w.links[0]
		for range 3 {
			w.NoError(w.s.PutLink(w.ctx, link))
		}
		link.Ref.Generation--
		w.EqualValues(1, w.requireStale(w.s.ClaimID(w.ctx, link.Key(), link.Ref)).Writes)
	}},
}

// agentsOf lists the agents of an environment, and checks that Agent returns each of them.
func (w *world) agentsOf(environment store.Key) []store.AgentSummary {
	all, err := w.s.Agents(w.ctx, environment)
	w.NoError(err)
	for _, listed := range all {
		alone, err := w.s.Agent(w.ctx, environment, listed.Name)
		w.NoError(err)
		w.Equal(listed, alone)
	}
	w.ErrorIs(errorOf(w.s.Agent(w.ctx, environment, "nobody")), store.ErrNotFound)
	return all
}

var removalPromises = []promise{
	{"a connector is deleted with its links", func(w *world) {
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.ErrorIs(errorOf(w.s.Route(w.ctx, w.connector.Key())), store.ErrNotFound)
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		w.Empty(w.readRoute(w.connector.Key()).Links)
	}},
	{"a connector is disabled by ID and reference only", func(w *world) {
		before := w.readRoute(w.connector.Key())
		w.True(before.Connector.Enabled)
		stranger := w.connector.Ref
		stranger.Name = "another"
		w.ErrorAs(w.s.DisableConnector(w.ctx, w.connector.Key(), stranger), new(*store.IDTakenError))
		w.NoError(w.s.DisableConnector(w.ctx, w.connector.Key(), w.connector.Ref))
		after := w.readRoute(w.connector.Key())
		w.False(after.Connector.Enabled)
		w.Greater(after.Connector.Version, before.Connector.Version, "gateways get a hint")
		w.Equal(before.Connector.Secrets, after.Connector.Secrets)
		w.NoError(w.s.DisableConnector(w.ctx, w.connector.Key(), w.connector.Ref))
		w.Equal(after.Connector.Version, w.version(), "again: nothing is written")
		w.NoError(w.s.DisableConnector(w.ctx, w.key(uuid.New()), w.connector.Ref), "nothing exists")
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		w.True(w.readRoute(w.connector.Key()).Connector.Enabled)
	}},
	{"a deleted project's connectors are disabled, accepted events stay", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		enabled := func() (bool, int64) {
			route := w.readRoute(w.connector.Key())
			connector := w.readConnector(w.connector.Key())
			w.Equal(route.Connector.Enabled, connector.Enabled)
			return connector.Enabled, connector.Version
		}
		_, before := enabled()
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.project.Ref))
		there, without := enabled()
		w.False(there)
		w.Greater(without, before, "gateways read again")
		w.Equal(store.RunQueued, w.run(e.Runs[0].ID).Status)

		again := w.project
		again.Ref.ObjectUID = "second incarnation"
		w.NoError(w.s.PutProject(w.ctx, again))
		there, after := enabled()
		w.True(there)
		w.Greater(after, without)
		w.NoError(w.s.PutProject(w.ctx, again))
		_, same := enabled()
		w.Equal(after, same, "the same again changes nothing")
	})},
	{"an environment's runs are cancelled and its connectors disabled", func(w *world) {
		d, pending := w.deploy("one", "first", "second"), w.newDeployment("two")
		w.beginDeployment(pending)
		e := w.acceptEvent(w.event())
		claimed := w.claim(1, lease)
		w.Len(claimed, 1)
		version := w.version()

		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.ErrorIs(errorOf(w.s.Environment(w.ctx, w.environment.Key())), store.ErrNotFound)
		for _, r := range e.Runs {
			w.Equal(store.RunCancelled, w.run(r.ID).Status)
			w.NotNil(w.run(r.ID).EndedAt)
		}
		w.True(w.outcome(e.ConnectorRunID).Terminal())
		w.ErrorIs(w.complete(completed(claimed[0])), store.ErrFenced)
		route := w.readRoute(w.connector.Key())
		w.False(route.Connector.Enabled)
		w.True(route.Connector.EnvironmentGone)
		w.Greater(route.Connector.Version, version)
		w.Equal(store.DeploymentDeployed, w.deployment(d.ID).Status, "history stays")
		w.Equal(store.DeploymentCancelled, w.deployment(pending.ID).Status)
	}},
	{"a deleted environment keeps its name", func(w *world) {
		named := func() string {
			name, err := w.s.EnvironmentName(w.ctx, w.environment.Key())
			w.NoError(err)
			return name
		}
		w.Equal(w.environment.DisplayName, named())
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.Equal(w.environment.DisplayName, named())
		again := w.environment
		again.DisplayName = "renamed"
		w.NoError(w.s.PutEnvironment(w.ctx, again))
		w.Equal("renamed", named())
		w.ErrorIs(errorOf(w.s.EnvironmentName(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"another object's row is not removed", func(w *world) {
		other := w.connector.Ref
		other.Name = "other"
		w.NoError(w.s.Remove(w.ctx, w.project.ID, other))
		later := w.connector.Ref
		later.ObjectUID = "another incarnation"
		w.NoError(w.s.Remove(w.ctx, w.project.ID, later))
		later.ObjectUID = ""
		w.NoError(w.s.Remove(w.ctx, w.project.ID, later), "an object has taken it over")
		w.NoError(errorOf(w.s.Connector(w.ctx, w.connector.Key())))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, other), "a missing row is no error")
	}},
	{"a removed ID is free for another object", func(w *world) {
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		moved := w.connector
		moved.Ref.Name, moved.Ref.ObjectUID = "another", "another uid"
		w.NoError(w.s.PutConnector(w.ctx, moved))
	}},
}
