// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// textOf returns a text of this size. The engine may have to replace a part of it.
func textOf(bytes int) string { return strings.Repeat("x", bytes) }

// entryOfSize returns a journal entry of this size.
func entryOfSize(sequence int64, kind store.JournalKind, bytes int) store.JournalEntry {
	return store.JournalEntry{Sequence: sequence, Kind: kind, Data: json.RawMessage(`"` + textOf(bytes-2) + `"`)}
}

// agentNames returns n names of agents.
func agentNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("agent-%d", i)
	}
	return names
}

// badAgents returns invalid lists of agents, with the expected errors.
func badAgents() map[string]struct {
	agents []store.Agent
	want   error
} {
	heavy := make([]store.Agent, store.MaxAgentConfigs/store.MaxAgentConfig+1)
	for i := range heavy {
		heavy[i] = store.Agent{Name: fmt.Sprint(i), Config: json.RawMessage(`"` + textOf(store.MaxAgentConfig-2) + `"`)}
	}
	wordy := make([]store.Agent, len(heavy))
	for i := range wordy {
		wordy[i] = store.Agent{Name: fmt.Sprint(i), Description: textOf(store.MaxAgentDescription)}
	}
	modelled := make([]store.Agent, len(heavy))
	for i := range modelled {
		modelled[i] = store.Agent{Name: fmt.Sprint(i), Models: []string{textOf(store.MaxAgentConfig)}}
	}
	return map[string]struct {
		agents []store.Agent
		want   error
	}{
		"too many":         {make([]store.Agent, store.MaxAgents+1), store.ErrTooLarge},
		"configurations":   {heavy, store.ErrTooLarge},
		"descriptions":     {wordy, store.ErrTooLarge},
		"no name":          {[]store.Agent{{}}, store.ErrInvalid},
		"no such name":     {[]store.Agent{{Name: "A b"}}, store.ErrInvalid},
		"same name":        {[]store.Agent{{Name: "a"}, {Name: "a"}}, store.ErrInvalid},
		"long name":        {[]store.Agent{{Name: textOf(store.MaxAgentName + 1)}}, store.ErrTooLarge},
		"long description": {[]store.Agent{{Name: "a", Description: textOf(store.MaxAgentDescription + 1)}}, store.ErrTooLarge},
		"long type":        {[]store.Agent{{Name: "a", Type: textOf(store.MaxAgentName + 1)}}, store.ErrTooLarge},
		"long path":        {[]store.Agent{{Name: "a", SourcePath: textOf(store.MaxAgentPath + 1)}}, store.ErrTooLarge},
		"long expression":  {[]store.Agent{{Name: "a", ConcurrencyKey: textOf(store.MaxConcurrencyExpression + 1)}}, store.ErrTooLarge},
		"long test name":   {[]store.Agent{{Name: "a", TestName: textOf(store.MaxTestName + 1)}}, store.ErrTooLarge},
		"many models":      {[]store.Agent{{Name: "a", Models: make([]string, store.MaxAgentModels+1)}}, store.ErrTooLarge},
		"long models":      {modelled, store.ErrTooLarge},
		"long variant":     {[]store.Agent{{Name: "a", VariantOf: textOf(store.MaxAgentName + 1)}}, store.ErrTooLarge},
	}
}

var boundPromises = []promise{
	{"an output is stored up to its limit", withAgent(func(w *world) {
		_, claimed := w.running(lease)
		w.NoError(w.complete(store.Completion{
			Lease: leaseOf(claimed), Status: store.RunCompleted, Output: textOf(store.MaxOutput),
		}))
		run := w.run(claimed.Run.ID)
		w.Equal(store.RunCompleted, run.Status)
		w.Len(run.Output, store.MaxOutput)
	})},
	{"a run with a larger output fails with its own code", func(w *world) {
		for name, c := range map[string]struct {
			completion store.Completion
			code       runerror.Code
		}{
			"output":       {store.Completion{Output: textOf(store.MaxOutput + 1)}, runerror.OutputTooLarge},
			"grows":        {store.Completion{Output: strings.Repeat("\x00", store.MaxOutput/2)}, runerror.OutputTooLarge},
			"model answer": {store.Completion{Journal: []store.JournalEntry{entryOfSize(1, store.JournalModelAnswer, store.MaxModelAnswer+1)}}, runerror.JournalTooLarge},
			"tool result":  {store.Completion{Journal: []store.JournalEntry{entryOfSize(1, store.JournalToolResult, store.MaxToolResult+1)}}, runerror.JournalTooLarge},
		} {
			w.deploy("of "+name, "first")
			e, claimed := w.running(lease)
			c.completion.Lease, c.completion.Status = leaseOf(claimed), store.RunCompleted
			c.completion.Usage, c.completion.FinishReason = store.TokenUsage{TotalTokens: 7}, "stop"
			w.NoError(w.complete(c.completion), name)
			w.NoError(w.complete(c.completion), "again")
			run := w.run(claimed.Run.ID)
			w.Equal(store.RunFailed, run.Status, name)
			w.Equal(c.code, run.ErrorCode, name)
			w.NotEmpty(run.Error)
			w.Empty(run.Output)
			w.EqualValues(7, run.Usage.TotalTokens, "usage is kept")
			w.Equal("stop", run.FinishReason, "the reason for the end of the last answer is kept")
			w.Equal(store.ConnectorRunFailed, w.outcome(e.ConnectorRunID).Status)
			w.requireNone(w.s.Journal(w.ctx, claimed.Run.Key()))
		}
	}},
	{"an error is cut", withAgent(func(w *world) {
		_, claimed := w.running(lease)
		w.NoError(w.complete(store.Completion{
			Lease: leaseOf(claimed), Status: store.RunFailed, ErrorCode: "x", Error: strings.Repeat("é", store.MaxError),
		}))
		run := w.run(claimed.Run.ID)
		w.LessOrEqual(len(run.Error), store.MaxError)
		w.Greater(len(run.Error), store.MaxError-16)
		w.True(strings.HasSuffix(run.Error, "(cut)"))
	})},
	{"a journal entry is stored up to the limit of its kind", withAgent(func(w *world) {
		_, claimed := w.running(lease)
		sequence := int64(1)
		for kind, limit := range map[store.JournalKind]int{
			store.JournalModelAnswer: store.MaxModelAnswer, store.JournalToolStarted: store.MaxModelAnswer, store.JournalToolResult: store.MaxToolResult,
		} {
			w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(claimed), []store.JournalEntry{entryOfSize(sequence, kind, limit+1)}), store.ErrTooLarge, kind)
			w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed), []store.JournalEntry{entryOfSize(sequence, kind, limit)}), kind)
			sequence++
		}
	})},
	{"a build log is cut with one mark", func(w *world) {
		spec := w.beginNew("one")
		for i := range int64(40) {
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), i, textOf(100<<10)))
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), i, textOf(100<<10)), "again")
		}
		log := w.buildLog(spec.Key())
		w.LessOrEqual(len(log), store.MaxBuildLog)
		w.Greater(len(log), store.MaxBuildLog-8<<10)
		w.True(strings.HasSuffix(log, "the log is cut off here\n"))
	}},
	{"small chunks of a log are limited too", func(w *world) {
		spec := w.beginNew("one")
		w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), 0, textOf(store.MaxBuildLog-1000)))
		for i := range int64(100) {
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), i+1, "x"))
		}
		log := w.buildLog(spec.Key())
		w.Less(len(log), store.MaxBuildLog-900)
		w.True(strings.HasSuffix(log, "the log is cut off here\n"))
	}},
	{"the report of a build is limited", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		long := textOf(1 << 20)
		w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Commit: long, CommitMessage: long, Author: long}))
		result := w.buildResult("content", "first")
		result.Agents[0].Config = json.RawMessage(`{"a":"` + textOf(store.MaxAgentConfig) + `"}`)
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), store.ErrTooLarge)
		result = w.buildResult("content", "first")
		result.TestResults = json.RawMessage(`["` + textOf(store.MaxTestResults) + `"]`)
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), store.ErrTooLarge)
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), store.BuildResult{FailureReason: store.FailureBuild, Message: long}))
		d := w.deployment(spec.ID)
		for _, shown := range []string{d.ResolvedCommit, d.CommitMessage, d.Author} {
			w.LessOrEqual(len(shown), store.MaxCommitText)
		}
		w.LessOrEqual(len(d.Message), store.MaxError)
	}},
	{"the agents of a build are limited in number and form", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		for name, c := range badAgents() {
			result := w.buildResult("content")
			result.Agents = c.agents
			w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), c.want, name)
		}
		result := w.buildResult("content", "first")
		result.FailureReason = store.FailureReason(textOf(1 << 20))
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), store.ErrInvalid)
		result = w.buildResult("content", agentNames(store.MaxAgents)...)
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		w.Len(w.deployment(spec.ID).Agents, store.MaxAgents)
		w.activateWith(store.Activation{Deployment: spec.Key()})
		for _, a := range result.Agents {
			_, config, err := w.s.AgentConfig(w.ctx, w.environment.Key(), a.Name)
			w.NoError(err, a.Name)
			w.JSONEq(string(a.Config), string(config))
		}
	}},
	{"a build reports its own phases and a valid commit", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		for _, phase := range []store.DeploymentPhase{store.PhaseConnecting, "other", store.DeploymentPhase(textOf(1 << 20))} {
			w.ErrorIs(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Phase: phase}), store.ErrInvalid)
		}
		for _, commit := range []string{"main", "0123", strings.Repeat("g", 40), strings.Repeat("A", 40), textOf(4 << 10)} {
			w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Commit: commit, Author: "Ada"}))
			w.Empty(w.deployment(spec.ID).ResolvedCommit, "%.70s", commit)
		}
		for _, commit := range []string{strings.Repeat("a1", 20), strings.Repeat("a1", 32)} {
			spec := w.newDeployment(fmt.Sprintf("of %d digits", len(commit)))
			spec.Commit = ""
			w.startBuild(spec)
			w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Commit: commit, Phase: store.PhaseTesting}))
			w.Equal(commit, w.deployment(spec.ID).ResolvedCommit)
		}
	}},
	{"the number of journal entries is limited", withAgent(func(w *world) {
		_, claimed := w.running(lease)
		entries := make([]store.JournalEntry, store.MaxEntries+1)
		for i := range entries {
			entries[i] = newEntry(int64(i+1), store.JournalModelAnswer, false)
		}
		w.ErrorIs(w.s.AppendJournal(w.ctx, leaseOf(claimed), entries), store.ErrTooLarge)
		w.NoError(w.s.AppendJournal(w.ctx, leaseOf(claimed), entries[:store.MaxEntries]))
	})},
	{"the record of a runner is limited", func(w *world) {
		digests := make([]string, store.MaxDigests+1)
		for i := range digests {
			digests[i] = fmt.Sprintf("sha256:%064x", i)
		}
		digests[0] = textOf(1 << 20)
		_, err := w.s.Claim(w.ctx, store.Claim{Environment: w.environment.Key(), RunnerID: textOf(1 << 20), Digests: digests, Lease: lease})
		w.NoError(err)
		runners := w.listRunners(w.environment.Key(), lease)
		w.Len(runners, 1)
		w.LessOrEqual(len(runners[0].ID), store.MaxRunnerID)
		w.Equal(digests[1:store.MaxDigests], runners[0].Digests)
	}},
	{"lists carry no outputs", withAgent(func(w *world) {
		_, claimed := w.running(lease)
		w.NoError(w.complete(store.Completion{Lease: leaseOf(claimed), Status: store.RunCompleted, Output: "an answer"}))
		runs := w.listRuns(store.RunQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(runs, 1)
		w.Empty(runs[0].Output)
		whole := w.run(claimed.Run.ID)
		w.Equal("an answer", whole.Output)
		whole.Output = ""
		w.Equal(whole, runs[0], "all other fields are listed")
	})},
	{"deployments are listed without test results and configurations", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		result := w.buildResult("content", "first")
		result.TestResults = json.RawMessage(`[{"passed":true},{"passed":false},{"passed":false}]`)
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		list := w.listDeployments(w.environment.Key())
		w.Len(list, 1)
		whole := w.deployment(spec.ID)
		w.JSONEq(string(result.TestResults), string(whole.TestResults))
		w.Equal(2, list[0].FailedTestCount)
		w.Nil(list[0].Agents[0].Config)
		whole.TestResults = nil
		w.Equal(whole, list[0], "all other fields are listed")
	}},
	{"the list of deployments is limited in number", func(w *world) {
		var specs []store.DeploymentSpec
		for i := range store.MaxDeployments + 1 {
			spec := w.beginNew(fmt.Sprintf("number-%d", i))
			specs = append(specs, spec)
		}
		list := w.listDeployments(w.environment.Key())
		w.Len(list, store.MaxDeployments)
		w.Equal(specs[store.MaxDeployments].ID, list[0].ID)
		w.Equal(specs[1].ID, list[store.MaxDeployments-1].ID)
	}},
	{"the list of deployments is limited in size", func(w *world) {
		most := make([]store.Agent, store.MaxAgentConfigs/store.MaxAgentDescription)
		for i := range most {
			most[i] = store.Agent{Name: fmt.Sprint(i), Description: textOf(store.MaxAgentDescription)}
		}
		var newest uuid.UUID
		for i := range 4 {
			spec := w.startBuild(w.newDeployment(fmt.Sprintf("big-%d", i)))
			result := w.buildResult("content")
			result.Agents = most[:2*len(most)/5]
			if i == 3 {
				result.Agents = most
			}
			w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
			newest = spec.ID
			list := w.listDeployments(w.environment.Key())
			w.Equal(newest, list[0].ID)
			w.Len(list, []int{1, 2, 2, 1}[i], "after %d", i+1)
		}
	}},
}
