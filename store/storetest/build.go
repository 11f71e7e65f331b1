// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/agentplatform/agentplatform/store"
)

var buildPromises = []promise{
	{"a report changes the fields that it names", func(w *world) {
		spec := w.beginNew("one")
		w.ErrorIs(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Phase: store.PhaseFetching}), store.ErrConflict)
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""))
		w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Commit: strings.Repeat("0123", 10), CommitMessage: "fix", Author: "a"}))
		w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Phase: store.PhaseTesting}))
		d := w.deployment(spec.ID)
		w.Equal(store.PhaseTesting, d.Phase)
		w.Equal([]string{strings.Repeat("0123", 10), "fix", "a"}, []string{d.ResolvedCommit, d.CommitMessage, d.Author})
	}},
	{"a build names its branch if the deployment names none", func(w *world) {
		for i, row := range []struct {
			asked    string
			reported []string
			want     string
		}{
			{"", []string{"main"}, "main"},
			{"", []string{"", "main"}, "main"},
			{"", []string{"main", "other", ""}, "main"},
			{"release/1", []string{"main"}, "release/1"},
			{"", []string{"-x", ".x", "/x", "a..b", "a b", "a\x01b", "a\u2028b", "a~b", "a[b", `a\b`, strings.Repeat("a", 256)}, ""},
			{"", []string{strings.Repeat("a", 255)}, strings.Repeat("a", 255)},
		} {
			spec := w.newDeployment(fmt.Sprintf("branch %d", i))
			spec.Branch = row.asked
			w.startBuild(spec)
			for _, branch := range row.reported {
				w.NoError(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Branch: branch}))
			}
			w.Equal(row.want, w.deployment(spec.ID).Branch)
			again, err := w.s.BeginDeployment(w.ctx, spec)
			w.NoError(err, "the deployment stays the same, whatever its branch")
			w.Equal(row.want, again.Branch)
		}
		spec := w.newUploaded("uploaded", w.storeUpload("content"))
		w.startBuild(spec)
		w.ErrorIs(w.s.ReportBuild(w.ctx, spec.Key(), store.BuildReport{Branch: "main"}), store.ErrInvalid)
	}},
	{"a build reports its own commit only", func(w *world) {
		pinned, other := strings.Repeat("0123", 10), strings.Repeat("4567", 10)
		begun := func(spec store.DeploymentSpec) store.Key {
			w.startBuild(spec)
			return spec.Key()
		}
		told := func(key store.Key, commit string) error {
			return w.s.ReportBuild(w.ctx, key, store.BuildReport{Commit: commit, Author: "a"})
		}
		of := func(key store.Key, commit, author string) {
			d := w.deployment(key.ID)
			w.Equal([]string{commit, author}, []string{d.ResolvedCommit, d.Author})
		}
		key := begun(w.newDeployment("pinned"))
		w.ErrorIs(told(key, other), store.ErrInvalid)
		of(key, "", "")
		w.NoError(told(key, pinned))
		w.ErrorIs(told(key, other), store.ErrInvalid)
		of(key, pinned, "a")

		spec := w.newDeployment("head")
		spec.Commit = ""
		key = begun(spec)
		w.NoError(told(key, other))
		w.NoError(told(key, other), "again")
		w.ErrorIs(told(key, pinned), store.ErrInvalid, "the first stays")
		of(key, other, "a")

		key = begun(w.newUploaded("uploaded", w.storeUpload("content")))
		w.ErrorIs(told(key, pinned), store.ErrInvalid)
		w.ErrorIs(told(key, ""), store.ErrInvalid, "without a commit there is no author")
		w.NoError(w.s.ReportBuild(w.ctx, key, store.BuildReport{Phase: store.PhasePacking}))
		of(key, "", "")
	}},
	{"a log has its chunks in order, each once", func(w *world) {
		spec := w.beginNew("one")
		for _, c := range []struct {
			number int64
			chunk  string
		}{{1, "b\n"}, {0, "a\n"}, {1, "other\n"}, {2, "c\n"}} {
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), c.number, c.chunk))
		}
		w.Equal("a\nb\nc\n", w.buildLog(spec.Key()))
		w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), 3, "\xff\x00bytes that are no text"))
		for _, number := range []int64{-1, store.MaxLogNumber + 1, math.MaxInt64} {
			w.ErrorIs(w.s.AppendBuildLog(w.ctx, spec.Key(), number, "x"), store.ErrInvalid, "no number could follow it")
		}
	}},
	{"a log is read from a position, while it is written and after", func(w *world) {
		spec := w.newDeployment("one")
		w.ErrorIs(errorOf(w.s.BuildLogFrom(w.ctx, spec.Key(), 0)), store.ErrNotFound)
		w.beginDeployment(spec)
		part := func(from int64) store.BuildLogPart {
			part, err := w.s.BuildLogFrom(w.ctx, spec.Key(), from)
			w.NoError(err)
			return part
		}
		w.Equal(store.BuildLogPart{Status: store.DeploymentPending}, part(0))
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""))
		for i, chunk := range []string{"a\n", "b", "c\n"} {
			w.awaitHint(store.TopicDeployment, spec.ID, func() { w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), int64(i), chunk)) })
		}
		w.Equal(store.BuildLogPart{Text: "a\nbc\n", Next: 3, Status: store.DeploymentBuilding}, part(0))
		w.Equal(store.BuildLogPart{Text: "c\n", Next: 3, Status: store.DeploymentBuilding}, part(2))
		w.Equal(store.BuildLogPart{Next: 3, Status: store.DeploymentBuilding}, part(3))
		w.awaitHint(store.TopicDeployment, spec.ID, func() {
			w.NoError(w.s.EndDeployment(w.ctx, spec.Key(), store.DeploymentCancelled, "", "enough"))
		})
		ended := part(1)
		w.Regexp(`^bc\n.* the deployment was cancelled: enough\n$`, ended.Text)
		w.Equal(store.BuildLogPart{Text: ended.Text, Next: 4, Status: store.DeploymentCancelled}, ended)
		w.Equal(store.BuildLogPart{Next: 9, Status: store.DeploymentCancelled}, part(9), "beyond the end")
	}},
	{"a build ends with a stored bundle", func(w *world) {
		spec := w.beginNew("one")
		result := w.buildResult("content", "first")
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), result), store.ErrConflict, "it is not building yet")
		w.NoError(w.s.StartBuild(w.ctx, spec.Key(), ""))
		w.ErrorIs(w.s.FinishBuild(w.ctx, spec.Key(), store.BuildResult{BundleDigest: "sha256:none"}), store.ErrNotFound)
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result), "again")
		d := w.deployment(spec.ID)
		w.True(d.Built)
		w.Equal(store.DeploymentBuilding, d.Status)
		w.Equal(store.PhaseConnecting, d.Phase)
		w.Equal(result.BundleDigest, d.BundleDigest)
		w.EqualValues(len("content"), d.BundleSize)
		for i := range result.Agents {
			result.Agents[i].Config = nil
		}
		w.Equal(result.Agents, d.Agents)
		w.JSONEq(string(result.TestResults), string(d.TestResults))
	}},
	{"a build ends with a reason", func(w *world) {
		spec := w.startBuild(w.newDeployment("one"))
		result := store.BuildResult{
			FailureReason: store.FailureTests, Message: "2 tests failed", TestResults: json.RawMessage(`{"failed":2}`),
		}
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result))
		w.NoError(w.s.FinishBuild(w.ctx, spec.Key(), result), "again")
		d := w.deployment(spec.ID)
		w.Equal(store.DeploymentFailed, d.Status)
		w.Equal(store.FailureTests, d.FailureReason)
		w.Equal("2 tests failed", d.Message)
		w.JSONEq(`{"failed":2}`, string(d.TestResults))
		w.False(d.Built)
	}},
	{"the build log ends with the outcome of its deployment", func(w *world) {
		for _, row := range []struct {
			status  store.DeploymentStatus
			reason  store.FailureReason
			message string
			want    string
		}{
			{store.DeploymentFailed, store.FailureConnectors, "a is bad\nb is bad", "the deployment failed: connectors_failed: a is bad\n  b is bad\n"},
			{store.DeploymentFailed, store.FailureDeadline, "too slow", "the deployment failed: deadline_exceeded: too slow\n"},
			{store.DeploymentCancelled, "", "cancelled by a request", "the deployment was cancelled: cancelled by a request\n"},
		} {
			spec := w.startBuild(w.newDeployment("with " + string(row.status) + string(row.reason)))
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), 0, "all test cases passed\n"))
			w.NoError(w.s.AppendBuildLog(w.ctx, spec.Key(), 1, "packed\n"))
			w.awaitHint(store.TopicDeployment, spec.ID, func() {
				w.NoError(w.s.EndDeployment(w.ctx, spec.Key(), row.status, row.reason, row.message))
			})
			log := w.buildLog(spec.Key())
			w.Regexp(`^all test cases passed\npacked\n\d\d:\d\d:\d\d `+regexp.QuoteMeta(row.want)+`$`, log)
			part, err := w.s.BuildLogFrom(w.ctx, spec.Key(), 2)
			w.NoError(err)
			w.Contains(part.Text, row.want, "a reader gets it too")

			silent := w.beginNew("without a log " + string(row.status) + string(row.reason))
			w.NoError(w.s.EndDeployment(w.ctx, silent.Key(), row.status, row.reason, row.message))
			w.Empty(w.buildLog(silent.Key()))
		}
	}},
	{"a failed or cancelled deployment keeps its phase", func(w *world) {
		begin := func(name string) store.Key {
			return w.beginNew(name).Key()
		}
		pending, superseded := begin("pending"), begin("superseded")
		w.NoError(w.s.StartBuild(w.ctx, superseded, ""))
		cancelled := begin("cancelled") // supersedes
		w.NoError(w.s.StartBuild(w.ctx, cancelled, ""))
		w.NoError(w.s.ReportBuild(w.ctx, cancelled, store.BuildReport{Phase: store.PhaseTesting}))
		w.NoError(w.s.EndDeployment(w.ctx, cancelled, store.DeploymentCancelled, "", "cancelled by a request"))
		failed := begin("failed")
		w.NoError(w.s.StartBuild(w.ctx, failed, ""))
		w.NoError(w.s.ReportBuild(w.ctx, failed, store.BuildReport{Phase: store.PhasePacking}))
		w.NoError(w.s.FinishBuild(w.ctx, failed, store.BuildResult{FailureReason: store.FailureBuild, Message: "unknown key"}))
		for key, want := range map[store.Key]store.DeploymentPhase{
			pending: "", superseded: store.PhaseFetching, cancelled: store.PhaseTesting, failed: store.PhasePacking,
			w.deploy("deployed", "first").Key(): "",
		} {
			d := w.deployment(key.ID)
			w.Empty(d.Phase)
			w.Equal(want, d.EndPhase, d.Ref.Name)
		}
	}},
}
