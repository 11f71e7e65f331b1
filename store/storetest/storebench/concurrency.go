// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// takeTurns ends runs with concurrency keys, in an environment of their own, also with keys that
// only a claim evaluates.
func (t *tour) takeTurns() {
	name := "turns-" + uuid.NewString()
	environment := store.Environment{
		Ref: t.objectRef(store.KindEnvironment, name), ID: uuid.New(), ProjectID: t.Project, Slug: name, Kind: "standard",
		ObjectCreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	t.NoError(t.Store.PutEnvironment(t.ctx, environment))
	agent := t.Links[0].AgentName
	t.buildAndDeploy(environment.ID, store.Agent{Name: agent, Type: "llm", SourcePath: "agents/hello.yaml", ConcurrencyKey: "input.k"})
	take := func(key store.ConcurrencyKey, input string) store.Key {
		a := t.acceptAll(t.newEvent(func(e *store.Event) {
			e.EnvironmentID, e.Input = environment.ID, []byte(input)
			e.Runs = e.Runs[:1]
			e.Runs[0].Concurrency = key
		}))
		return t.key(a[0].RunIDs[0])
	}
	claim := func(want int) []store.Claimed {
		result, err := t.Store.Claim(t.ctx, store.Claim{
			Environment: environment.Key(), RunnerID: uuid.NewString(), Slots: 50, Limit: 10, Lease: time.Hour,
		})
		t.NoError(err)
		t.Len(result.Runs, want)
		return result.Runs
	}
	complete := func(c store.Claimed) {
		each, err := t.Store.Complete(t.ctx, []store.Completion{{Lease: leaseOf(c), Status: store.RunCompleted}})
		t.NoError(err)
		t.Equal([]error{nil}, each)
	}
	take(store.ConcurrencyKey{Text: "a"}, `{}`)
	second := take(store.ConcurrencyKey{Text: "a"}, `{}`)
	take(store.ConcurrencyKey{Text: "a"}, `{}`)
	take(store.ConcurrencyKey{Text: "a", Drop: true}, `{}`)
	take(store.ConcurrencyKey{Unknown: true}, `{"k":"a"}`)
	take(store.ConcurrencyKey{Unknown: true}, `{}`)
	t.NoError(t.Store.Cancel(t.ctx, second, runerror.Cancelled, "enough"))
	for range 3 {
		complete(claim(1)[0])
	}
	claim(0)
	t.requireSuccess(t.Store.Route(t.ctx, t.key(t.Connector)))
	for range 3 {
		take(store.ConcurrencyKey{Text: "a"}, `{}`)
	}
	t.NoError(t.Store.Remove(t.ctx, t.Project, environment.Ref))
}
