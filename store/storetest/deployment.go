// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

var deploymentPromises = []promise{
	{"a repeated beginning returns the first deployment", func(w *world) {
		spec := w.newDeployment("one")
		first := w.beginDeployment(spec)
		w.Equal(store.DeploymentPending, first.Status)
		w.Equal(spec, first.DeploymentSpec)
		w.Equal(first, w.beginDeployment(spec))
		w.Equal(first, w.deployment(spec.ID))
		w.ErrorIs(errorOf(w.s.Deployment(w.ctx, w.key(uuid.New()))), store.ErrNotFound)
	}},
	{"a repeated beginning returns a terminal deployment", func(w *world) {
		spec := w.deploy("one", "first")
		w.Equal(store.DeploymentDeployed, w.beginDeployment(spec).Status)
	}},
	{"another source under the same ID is rejected", func(w *world) {
		spec := w.beginNew("one")
		spec.Fingerprint = "another"
		w.ErrorIs(errorOf(w.s.BeginDeployment(w.ctx, spec)), store.ErrNameReused)
		spec.Ref.Name = "intruder"
		_, err := w.s.BeginDeployment(w.ctx, spec)
		var taken *store.IDTakenError
		w.ErrorAs(err, &taken)
		w.Equal("one", taken.Holder.Name)
	}},
	{"a deployment deleted before its end begins again for a new object", func(w *world) {
		first := w.startBuild(w.newDeployment("one"))
		w.NoError(w.s.AppendBuildLog(w.ctx, first.Key(), 0, "of the first"))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, first.Ref))
		w.Equal(store.DeploymentCancelled, w.deployment(first.ID).Status)

		again := first
		again.Ref.ObjectUID = "another"
		begun := w.beginDeployment(again)
		w.Equal(store.DeploymentPending, begun.Status)
		w.Empty(begun.Message)
		w.requireNone(w.s.BuildLog(w.ctx, first.Key()))

		w.NoError(w.s.EndDeployment(w.ctx, first.Key(), store.DeploymentCancelled, "", "cancelled by a request"))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, again.Ref))
		again.Ref.ObjectUID = "a third"
		w.Equal(store.DeploymentCancelled, w.beginDeployment(again).Status, "a deployment with an end of its own keeps it")
	}},
	{"a later beginning supersedes", func(w *world) {
		built, building := w.deploy("zero", "first"), w.newDeployment("one")
		w.startBuild(building)
		last := w.newDeployment("two")
		begun := w.beginDeployment(last)
		superseded := w.deployment(building.ID)
		w.Equal(store.DeploymentCancelled, superseded.Status)
		w.Contains(superseded.Message, "superseded")
		w.NotNil(superseded.EndedAt)
		w.Greater(begun.Sequence, superseded.Sequence)
		w.Equal(store.DeploymentDeployed, w.deployment(built.ID).Status)
		w.beginDeployment(building)
		w.Equal(store.DeploymentPending, w.deployment(last.ID).Status, "beginning the old one again supersedes nothing")

		list := w.listDeployments(w.environment.Key())
		w.Len(list, 3)
		w.Equal([]uuid.UUID{last.ID, building.ID, built.ID}, []uuid.UUID{list[0].ID, list[1].ID, list[2].ID})
	}},
	{"a deployment with a lost end is recorded as failed", func(w *world) {
		open, lost := w.newDeployment("open"), w.newDeployment("lost")
		w.beginDeployment(open)
		lost.Lost = true
		d := w.beginDeployment(lost)
		w.Equal(store.DeploymentFailed, d.Status)
		w.Equal(store.FailureStoreRestored, d.FailureReason)
		w.NotEmpty(d.Message)
		w.NotNil(d.EndedAt)
		w.Equal(d, w.deployment(lost.ID))
		w.Equal(store.DeploymentPending, w.deployment(open.ID).Status)
		w.Equal(d, w.beginDeployment(lost))
		w.ErrorIs(errorOf(w.s.Activate(w.ctx, store.Activation{Deployment: lost.Key()})), store.ErrConflict)
	}},
	{"a deployment that the store knows is not lost", func(w *world) {
		spec := w.deploy("one", "first")
		spec.Lost = true
		w.Equal(store.DeploymentDeployed, w.beginDeployment(spec).Status)
		pending := w.beginNew("two")
		pending.Lost = true
		w.Equal(store.DeploymentPending, w.beginDeployment(pending).Status)
	}},
	{"an ended deployment never changes", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""), "a building deployment stays")
		w.NoError(w.s.EndDeployment(w.ctx, spec.Key(), store.DeploymentFailed, store.FailureDeadline, "too slow"))
		d := w.deployment(spec.ID)
		w.Equal(store.DeploymentFailed, d.Status)
		w.Equal(store.FailureDeadline, d.FailureReason)
		w.Equal("too slow", d.Message)
		w.Empty(d.Phase)
		w.Equal(store.PhaseFetching, d.EndPhase)
		w.NotNil(d.StartedAt)
		w.NotNil(d.EndedAt)
		w.ErrorIs(w.s.StartBuild(w.ctx, spec.Key(), ""), store.ErrConflict)
		w.ErrorIs(w.s.EndDeployment(w.ctx, spec.Key(), store.DeploymentCancelled, "", ""), store.ErrConflict)
		w.ErrorIs(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{}), store.ErrConflict)
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), w.buildResult("late", "first")), store.ErrConflict)
		w.ErrorIs(errorOf(w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key()})), store.ErrConflict)
		w.Equal(d, w.deployment(spec.ID))
	}},
}

var activationPromises = []promise{
	{"the live deployment has the highest rank, and keeps it after its environment", func(w *world) {
		ranks := func() (live, first, second int64) {
			environment := w.readEnvironment(w.environment.Key())
			list, err := w.s.ListDeployments(w.ctx, w.environment.Key()) // newest first
			w.NoError(err)
			return environment.LiveRank, list[1].ActivationRank, list[0].ActivationRank
		}
		first := w.deploy("one", "first")
		w.deploy("two", "first")
		live, one, two := ranks()
		w.Equal(two, live)
		w.Greater(two, one)
		decided := time.Now()
		w.activateWith(store.Activation{Deployment: first.Key(), RequestedAt: &decided})
		live, one, two = ranks()
		w.Equal(one, live)
		w.Greater(one, two)

		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.environment.Ref))
		w.NoError(w.s.PutEnvironment(w.ctx, w.environment))
		live, kept, _ := ranks()
		w.Zero(live)
		w.Equal(one, kept)
	}},
	{"an activation changes the live deployment", func(w *world) {
		spec := w.build("one", "first")
		digest := w.deployment(spec.ID).BundleDigest
		result := w.activateWith(store.Activation{Deployment: spec.Key(), ConnectorResults: json.RawMessage(`[1]`)})
		w.True(result.Live)
		w.False(result.ActivatedAt.IsZero())
		d := w.deployment(spec.ID)
		w.Equal(store.DeploymentDeployed, d.Status)
		w.Empty(d.Phase)
		w.JSONEq(`[1]`, string(d.ConnectorResults))
		w.NotNil(d.EndedAt)
		w.True(result.ActivatedAt.Equal(*d.ActivatedAt))
		e := w.readEnvironment(w.environment.Key())
		w.Equal(spec.ID, *e.LiveDeploymentID)
		w.Equal(digest, e.LiveBundleDigest)
		w.True(result.ActivatedAt.Equal(*e.LiveActivatedAt))
		again := w.activate(spec.ID)
		w.True(again.Live, "again")
		w.True(result.ActivatedAt.Equal(again.ActivatedAt))
	}},
	{"only a built deployment is activated", func(w *world) {
		spec := w.beginNew("one")
		w.ErrorIs(errorOf(w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key()})), store.ErrConflict)
		w.ErrorIs(errorOf(w.s.Activate(w.ctx, store.Activation{Deployment: w.key(uuid.New())})), store.ErrNotFound)
	}},
	{"a build does not activate over a later decision", func(w *world) {
		old := w.deploy("one", "first")
		late := w.build("two", "first")
		result := w.activateWith(store.Activation{Deployment: old.Key(), RequestedAt: &origin})
		w.True(result.Live)
		w.False(w.activate(late.ID).Live)
		w.Equal(store.DeploymentDeployed, w.deployment(late.ID).Status, "deployed it is")
		w.Equal(old.ID, *w.readEnvironment(w.environment.Key()).LiveDeploymentID)
		next := w.deploy("three", "first")
		w.Equal(next.ID, *w.readEnvironment(w.environment.Key()).LiveDeploymentID, "a deployment begun after the decision activates itself")
	}},
	{"a rollback stays until the next deployment", func(w *world) {
		one, two := w.deploy("one", "first"), w.deploy("two", "first")
		w.activateWith(store.Activation{Deployment: one.Key(), RequestedAt: &origin})
		w.False(w.activate(two.ID).Live, "repeating its own activation undoes no rollback")
		w.Equal(one.ID, *w.readEnvironment(w.environment.Key()).LiveDeploymentID)
	}},
	{"a decision is executed once", func(w *world) {
		one, two := w.deploy("one", "first"), w.deploy("two", "first")
		ask := func(id uuid.UUID, at time.Time) bool {
			result := w.activateWith(store.Activation{Deployment: w.key(id), RequestedAt: &at})
			return result.Live
		}
		w.True(ask(one.ID, origin))
		w.True(ask(one.ID, origin), "again, while it is live")
		w.True(ask(two.ID, origin.Add(-time.Hour)), "the order of decisions counts, whatever the clocks say")
		w.False(ask(one.ID, origin), "repeated after a lost response")
		w.True(ask(one.ID, origin.Add(-time.Minute)), "a new decision")
	}},
	{"code-defined connectors change with the deployment", func(w *world) {
		connector := w.newConnector("from-code")
		connector.DefinedInCode, connector.Ref.ObjectUID, connector.Ref.Generation = true, "", 0
		link := w.newLink("from-code-first", connector.ID, "first", origin)
		link.Ref.ObjectUID, link.Ref.Generation = "", 0
		one := w.build("one", "first")
		w.activateWith(store.Activation{
			Deployment: one.Key(), Connectors: []store.Connector{connector}, Links: []store.Link{link},
		})
		route := w.readRoute(connector.Key())
		w.True(route.Connector.Enabled)
		w.False(route.Connector.Retired)
		w.Len(route.Links, 1)

		w.deploy("two", "first")
		retired := w.readRoute(connector.Key())
		w.True(retired.Connector.Retired, "the code no longer names it")
		w.Greater(retired.Connector.Version, route.Connector.Version)
		w.deploy("three", "first")
		w.Equal(retired.Connector.Version, w.readRoute(connector.Key()).Connector.Version, "a retired connector is not retired again")
		w.False(w.readConnector(w.connector.Key()).Retired, "connectors of users are not changed")
	}},
	{"links in code are from the last activation", func(w *world) {
		connector := w.newConnector("from-code")
		connector.DefinedInCode, connector.Ref.ObjectUID = true, ""
		link := func(agent string) store.Link {
			l := w.newLink("from-code-"+agent, connector.ID, agent, origin)
			l.Ref.ObjectUID = ""
			return l
		}
		own := w.newLink("of-a-person", connector.ID, "third", origin.Add(time.Hour))
		w.NoError(w.s.PutLink(w.ctx, own))
		for _, agent := range []string{"first", "second"} {
			w.NoError(errorOf(w.s.Activate(w.ctx, store.Activation{
				Deployment: w.build("with-"+agent, agent).Key(),
				Connectors: []store.Connector{connector}, Links: []store.Link{link(agent)},
			})))
		}
		route := w.readRoute(connector.Key())
		w.Len(route.Links, 2)
		w.Equal("second", route.Links[0].AgentName)
		w.Equal(own.ID, route.Links[1].ID, "a link of a user stays")
	}},
	{"an activation whose connector's ID is taken changes nothing", func(w *world) {
		spec, connector := w.build("one", "first"), w.newConnector("intruder")
		connector.ID, connector.DefinedInCode, connector.Ref.ObjectUID = w.connector.ID, true, ""
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key(), Connectors: []store.Connector{connector}})
		var taken *store.IDTakenError
		w.ErrorAs(err, &taken)
		w.Equal(store.DeploymentBuilding, w.deployment(spec.ID).Status)
		w.Nil(w.readEnvironment(w.environment.Key()).LiveDeploymentID)
	}},
	{"runners are listed and asked to prefetch", func(w *world) {
		w.NoError(w.s.RequestPrefetch(w.ctx, w.environment.Key(), "sha256:wanted"))
		w.Equal("sha256:wanted", w.readEnvironment(w.environment.Key()).WantedBundleDigest)
		w.requireNone(w.s.Runners(w.ctx, w.environment.Key(), time.Hour))
		w.Empty(w.claimAs("runner", 0, lease))
		runners := w.listRunners(w.environment.Key(), time.Hour)
		w.Len(runners, 1)
		w.Equal("runner", runners[0].ID)
		w.Equal([]string{"sha256:held"}, runners[0].Digests)
		w.Empty(w.listRunners(w.environment.Key(), expired))
	}},
}
