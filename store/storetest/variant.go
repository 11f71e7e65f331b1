// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// reportVariant sends a heartbeat for one claim that names its variant.
func (w *world) reportVariant(c store.Claimed, test string) {
	w.requireNone(w.s.Heartbeat(w.ctx, w.environment.Key(), []store.Held{{Lease: leaseOf(c), TestName: test}}, lease))
}

// variants returns an agent and its variants.
func (w *world) variants(agent string, names ...string) []store.Agent {
	all := []store.Agent{{Name: agent, Type: "llm", SourcePath: "agents/" + agent + ".yaml"}}
	for _, name := range names {
		all = append(all, store.Agent{
			Name: agent + "-" + name, Type: "llm", SourcePath: "agents/" + agent + "-test-" + name + ".yaml", VariantOf: agent, TestName: name,
		})
	}
	return all
}

// deployResult is deploy with a changed build result.
func (w *world) deployResult(spec store.DeploymentSpec, change func(*store.BuildResult)) {
	w.startBuild(spec)
	result := w.buildResult("bundle of " + spec.Ref.Name)
	change(&result)
	w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
	w.True(w.activate(spec.ID).Live)
}

// deployVariants makes an agent with variants live.
func (w *world) deployVariants(name, agent string, variants ...string) {
	w.deployResult(w.newDeployment(name), func(result *store.BuildResult) { result.Agents = w.variants(agent, variants...) })
}

// executedBy returns the runs of a list that is narrowed to a variant.
func (w *world) executedBy(test string) (ids []uuid.UUID) {
	runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, TestName: test, Limit: 100})
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	return ids
}

var variantPromises = []promise{
	{"the first heartbeat with a variant sets it", func(w *world) {
		w.deployVariants("one", "first", "short", "long")
		_, c := w.running(lease)
		w.Empty(c.Run.TestName)
		w.reportVariant(c, "")
		w.Empty(w.run(c.Run.ID).TestName)
		w.reportVariant(c, "short")
		w.Equal("short", w.run(c.Run.ID).TestName)
		w.reportVariant(c, "long")
		w.reportVariant(c, "")
		w.Equal("short", w.run(c.Run.ID).TestName)
	}},
	{"a resumed run has its variant and keeps it", func(w *world) {
		w.deployVariants("one", "first", "short", "long")
		_, c := w.running(lease)
		w.reportVariant(c, "short")
		w.NoError(w.s.Release(w.ctx, leaseOf(c), 0))
		w.Equal("short", w.run(c.Run.ID).TestName)
		again := w.claimAs("runner", 1, lease)
		w.Len(again, 1)
		w.Equal("short", again[0].Run.TestName)
		again = w.claimAs("runner", 1, lease)
		w.Len(again, 1, "the response was lost")
		w.Equal("short", again[0].Run.TestName)
		w.NoError(w.complete(completed(again[0])))
		w.Equal("short", w.run(c.Run.ID).TestName)
	}},
	{"a run without a heartbeat gets the variant of its completion", func(w *world) {
		w.deployVariants("one", "first", "short", "long")
		_, c := w.running(lease)
		done := completed(c)
		done.TestName = "short"
		w.NoError(w.complete(done))
		run := w.run(c.Run.ID)
		w.Equal("short", run.TestName)
		w.Equal("first", run.AgentName, "it is a run of the agent")
		_, base := w.running(lease)
		w.NoError(w.complete(completed(base)))
		w.Empty(w.run(base.Run.ID).TestName)
		_, open := w.running(lease)
		w.reportVariant(open, "short")
		w.Equal([]uuid.UUID{open.Run.ID, c.Run.ID}, w.executedBy("short"))
		w.Equal([]uuid.UUID{base.Run.ID}, w.executedBy(store.BaseRuns))
		w.Empty(w.executedBy("long"))
	}},
	{"a run that the platform ends keeps its variant", func(w *world) {
		w.deployVariants("one", "first", "short", "long")
		_, c := w.running(lease)
		w.reportVariant(c, "short")
		w.NoError(w.s.Cancel(w.ctx, c.Run.Key(), runerror.Cancelled, "enough"))
		run := w.run(c.Run.ID)
		w.Equal(store.RunCancelled, run.Status)
		w.Equal("short", run.TestName)
	}},
	{"an unknown variant is ignored", func(w *world) {
		spec := w.newDeployment("one")
		w.deployResult(spec, func(result *store.BuildResult) {
			result.Agents = append(w.variants("first", "short"), w.variants("second", "long")...)
		})
		of := func(agent string) store.Claimed {
			e := w.singleEvent()
			e.Runs[0].AgentName = agent
			w.accept(&e)
			claimed := w.claim(1, lease)
			w.Len(claimed, 1)
			return claimed[0]
		}
		for _, none := range []string{"none", "long", "first-short", "first", "Short", strings.Repeat("é\x00", store.MaxTestName), store.BaseRuns} {
			c := of("first")
			w.reportVariant(c, none)
			w.Empty(w.run(c.Run.ID).TestName, none)
			done := completed(c)
			done.TestName = none
			w.NoError(w.complete(done))
			w.Equal(store.RunCompleted, w.run(c.Run.ID).Status)
			w.Empty(w.run(c.Run.ID).TestName, none)
		}
		c := of("first")
		w.reportVariant(c, "none")
		w.reportVariant(c, "short")
		w.Equal("short", w.run(c.Run.ID).TestName, "a later report counts")

		w.deployVariants("two", "first", "brief")
		w.reportVariant(c, "brief")
		done := completed(c)
		done.TestName = "brief"
		w.NoError(w.complete(done))
		w.Equal("short", w.run(c.Run.ID).TestName)
		c = of("first")
		w.reportVariant(c, "short")
		w.Empty(w.run(c.Run.ID).TestName, "the variant of an earlier deployment")
		w.reportVariant(c, "brief")
		w.Equal("brief", w.run(c.Run.ID).TestName)
	}},
	{"a variant is not an agent for links", func(w *world) {
		spec := w.newDeployment("one")
		w.deployResult(spec, func(result *store.BuildResult) {
			*result = w.buildResult("bundle of one", "first", "second")
			result.Agents[0].VariantOf = "second"
		})
		names, err := w.s.AgentNames(w.ctx, spec.Key(), 10)
		w.NoError(err)
		w.Equal([]string{"second"}, names)
		w.requireNone(w.s.HasAgent(w.ctx, spec.Key(), "first"))
		agents := w.agentsOf(w.environment.Key())
		w.Len(agents, 2)
		w.Equal("second", agents[0].Agent.VariantOf, "it is returned nevertheless")

		e := w.acceptEvent(w.event())
		claimed := w.claim(10, lease)
		w.Len(claimed, 1)
		w.Equal("second", claimed[0].Run.AgentName)
		w.Equal(runerror.AgentNotFound, w.run(e.Runs[0].ID).ErrorCode)
		begin := w.singleEvent()
		begin.RunnerID = "runner"
		w.accept(&begin)
		w.Equal(store.RunQueued, w.run(begin.Runs[0].ID).Status, "nor can a run of it start")

		w.deploy("two", "second")
		agents = w.agentsOf(w.environment.Key())
		for _, a := range agents {
			w.True(a.Name != "first" || a.RunCount > 0, "only its past runs")
		}
	}},
}
