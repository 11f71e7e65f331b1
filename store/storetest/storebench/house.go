// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// removeEnvironment deletes an environment with waiting runs.
func (t *tour) removeEnvironment() {
	name := "e-" + uuid.NewString()
	environment := store.Environment{Ref: t.objectRef(store.KindEnvironment, name), ID: uuid.New(), ProjectID: t.Project, Slug: name, Kind: "standard"}
	t.NoError(t.Store.PutEnvironment(t.ctx, environment))
	t.acceptAll(t.newEvent(func(e *store.Event) { e.EnvironmentID = environment.ID }))
	t.NoError(t.Store.Remove(t.ctx, t.Project, environment.Ref))
}

func (t *tour) keepHouse() {
	t.failTests()
	if t.Age != nil {
		t.Age()
	}
	t.NoError(t.Store.EraseRun(t.ctx, t.runs[0]))
	t.trimHistory()
	t.requireSuccess(t.Store.SweepExpired(t.ctx, 100))
	t.requireSuccess(t.Store.CountStored(t.ctx, 100))
	t.requireSuccess(t.Store.RollUp(t.ctx, 100))
	t.indexRuns()
	t.NoError(t.Store.RebuildRollups(t.ctx, func(store.RollupHour) {}))
	t.requireSuccess(t.Store.SweepLeases(t.ctx, 100))
}

// trimHistory deletes rows beyond the project's retention.
func (t *tour) trimHistory() {
	if t.Old != nil {
		t.Old()
	}
	for more := true; more; {
		trimmed, err := t.Store.TrimHistory(t.ctx, 1000)
		t.NoError(err)
		more = trimmed.Count > 0
	}
}

// failTests builds a deployment that never becomes live, so that nothing needs its bundle.
func (t *tour) failTests() {
	name := "d-" + uuid.NewString()
	sum := sha256.Sum256([]byte(name))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	spec := store.DeploymentSpec{
		Ref: t.objectRef(store.KindDeployment, name), ID: uuid.New(), ProjectID: t.Project, EnvironmentID: t.Environment,
		Fingerprint: name, SourceType: "git",
	}
	t.requireSuccess(t.Store.BeginDeployment(t.ctx, spec))
	t.NoError(t.Store.StartBuild(t.ctx, spec.Key(), ""))
	t.requireSuccess(t.Store.PutBundle(t.ctx, spec.Key(), digest, strings.NewReader(name), 1<<10))
	t.NoError(t.Store.FinishBuild(t.ctx, spec.Key(), store.BuildResult{BundleDigest: digest, FailureReason: store.FailureTests, Message: "a test failed"}))
}
