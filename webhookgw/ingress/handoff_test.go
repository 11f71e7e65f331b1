// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// syncEvent returns an event whose run can start with its acceptance.
func syncEvent(environment store.Key) store.Event {
	e := event(environment.ProjectID)
	e.EnvironmentID, e.Class = environment.ID, store.ClassSync
	return e
}

// beginAll accepts events and starts their runs at the named runners.
func beginAll(events []store.Event) ([]store.Admission, error) {
	out, err := acceptAll(events)
	for i, e := range events {
		if e.RunnerID != "" {
			out[i].Begun = &store.Claimed{Run: store.Run{ID: e.ConnectorRunID}}
		}
	}
	return out, err
}

// TestHandoff_StartsRunsAtWaitingRunners: of their environment, as many as they have slots.
func TestHandoff_StartsRunsAtWaitingRunners(t *testing.T) {
	t.Parallel()
	c, st, _ := waiting(beginAll)
	c.runners = handoff.NewRunners()
	environment, other := store.Key{ProjectID: uuid.New(), ID: uuid.New()}, store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	two := c.runners.Wait(store.RunnerKey{Environment: environment, ID: "two"}, 2)
	one := c.runners.Wait(store.RunnerKey{Environment: environment, ID: "one"}, 1)
	idle := c.runners.Wait(store.RunnerKey{Environment: environment, ID: "idle"}, 1)
	inbound := syncEvent(environment)
	inbound.Class = store.ClassInbound
	for _, e := range []store.Event{syncEvent(environment), inbound, syncEvent(other), syncEvent(environment), syncEvent(environment)} {
		c.put(t, t.Context(), e)
	}
	require.True(t, c.runOnce(t.Context()))
	begun := map[string][]uuid.UUID{}
	for _, e := range st.batches[0] {
		begun[e.RunnerID] = append(begun[e.RunnerID], e.ConnectorRunID)
	}
	require.Len(t, begun[""], 2, "only runners of the environment, and only for sync runs")
	for _, runner := range []*handoff.Runner{two, one} {
		var ids []uuid.UUID
		for _, run := range <-runner.Given() {
			ids = append(ids, run.Run.ID)
		}
		require.Len(t, ids, runner.Slots)
		require.Equal(t, begun[runner.ID], ids)
	}
	require.Same(t, idle, c.runners.Hold(environment), "the runner is free")
}

// TestHandoff_AlwaysReleasesRunner: if the store rejects the event, does not answer, or starts
// nothing.
func TestHandoff_AlwaysReleasesRunner(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, accept := range map[string]func(events []store.Event) ([]store.Admission, error){
		"queued": acceptAll,
		"outdated": func([]store.Event) ([]store.Admission, error) {
			return []store.Admission{{Verdict: store.Outdated}}, nil
		},
		"refused": func([]store.Event) ([]store.Admission, error) { return []store.Admission{{Err: broken}}, nil },
		"down":    func([]store.Event) ([]store.Admission, error) { return nil, broken },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, _ := waiting(accept)
			c.runners = handoff.NewRunners()
			environment := store.Key{ProjectID: uuid.New(), ID: uuid.New()}
			runner := c.runners.Wait(store.RunnerKey{Environment: environment, ID: "r"}, 1)
			c.put(t, t.Context(), syncEvent(environment))
			require.True(t, c.runOnce(t.Context()))
			require.Empty(t, <-runner.Given())
		})
	}
}
