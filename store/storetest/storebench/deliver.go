// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// deliver sends results in the most frequent way, and in all other ways.
func (t *tour) deliver() {
	out := store.Connector{
		Ref: t.objectRef(store.KindConnector, "results"), ID: uuid.New(), ProjectID: t.Project, EnvironmentID: t.Environment,
		Name: "results" + uuid.NewString(), Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte(`{}`),
	}
	t.NoError(t.Store.PutConnector(t.ctx, out))
	link := store.Link{
		Ref: t.objectRef(store.KindConnectorLink, "results"), ID: uuid.New(), ProjectID: t.Project, ConnectorID: out.ID,
		AgentName: t.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.UnixMicro(0),
	}
	t.NoError(t.Store.PutLink(t.ctx, link))
	for range 64 { // enough for a statement to be cheaper without its index
		t.acceptAll(t.newEvent(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	}
	for range 5 {
		t.completeRuns(t.claimAsNew(20, time.Hour)...)
	}
	t.postDeliveries()
	t.recordAttempts(store.DeliveryDone, t.claimDue(40))
	t.recordAttempts(store.DeliveryDone, t.claimDeliveries(100))
	for range 5 {
		t.acceptAll(t.newEvent(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	}
	t.completeRuns(t.claimAsNew(10, time.Hour)...) // of two agents alternately
	t.postDeliveries()
	claimed := t.claimDue(2)
	t.recordAttempts(store.DeliveryDone, claimed[:1])
	t.recordAttempts(store.DeliveryRetry, claimed[1:])
	t.recordAttempts(store.DeliveryGone, t.claimDue(1))
	t.Empty(t.claimDeliveries(10), "the rest is skipped")
	t.completeRuns(t.claimNext()...)
	t.postDeliveries()
	runs, _, err := t.Store.ListConnectorRuns(t.ctx, store.ConnectorRunQuery{Connector: t.key(out.ID), Limit: 10})
	t.NoError(err)
	t.NotEmpty(runs)
	t.requireSuccess(t.Store.ConnectorRun(t.ctx, t.key(claimed[1].Delivery.ID)))
	t.replayAll(t.key(out.ID), claimed[0].Delivery.ID)
	_, _, err = t.Store.Attempts(t.ctx, t.key(claimed[0].Delivery.ID))
	t.NoError(err)
	t.requireSuccess(t.Store.DestinationsOf(t.ctx, t.Project, []uuid.UUID{out.ID}))
	troubled, err := t.Store.TroubledDestinations(t.ctx, store.Key{}, 10)
	t.NoError(err)
	t.NotEmpty(troubled)
	t.NoError(t.Store.ResumeDestination(t.ctx, t.key(out.ID)))
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
	t.sendPayload(out, link)
	t.NoError(t.Store.EraseRun(t.ctx, t.key(claimed[0].Delivery.RunID)), "which has a delivery that ended and one that is open")
	t.NoError(t.Store.Remove(t.ctx, t.Project, out.Ref))
}

// sendPayload sends a payload from a run in progress.
func (t *tour) sendPayload(out store.Connector, link store.Link) {
	out.Ref.Generation++ // no longer paused
	t.NoError(t.Store.PutConnector(t.ctx, out))
	run := t.claimNext()
	link.Ref.ObjectUID, link.AgentName = "a tool", run[0].Run.AgentName
	link.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
	t.NoError(t.Store.PutLink(t.ctx, link))
	actions, err := t.Store.Actions(t.ctx, t.key(t.Environment), []string{link.AgentName})
	t.NoError(err)
	t.Len(actions, 1)
	t.NoError(t.Store.AppendJournal(t.ctx, leaseOf(run[0]), []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalToolStarted}, {Sequence: 2, Kind: store.JournalToolStarted},
	}))
	s := store.Send{Lease: leaseOf(run[0]), Mode: store.LinkAgentTool, Name: "tell", Position: 1, Payload: []byte(`{}`)}
	for range 2 {
		t.requireSuccess(t.Store.Send(t.ctx, s))
	}
	s.Position, s.Payload = 2, []byte(`"`+strings.Repeat("x", store.MaxInlineInput)+`"`)
	t.requireSuccess(t.Store.Send(t.ctx, s))
	t.failDeliveries(out)
	t.completeRuns(run...)
	t.postDeliveries()
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
}

// failDeliveries makes deliveries of a connector fail. A link reports these failures.
func (t *tour) failDeliveries(out store.Connector) {
	tells := out
	tells.Ref, tells.ID, tells.Name = t.objectRef(store.KindConnector, "ops"), uuid.New(), "ops"+uuid.NewString()
	t.NoError(t.Store.PutConnector(t.ctx, tells))
	link := store.Link{
		Ref: t.objectRef(store.KindConnectorLink, "ops"), ID: uuid.New(), ProjectID: t.Project, ConnectorID: tells.ID, AgentName: "nobody",
		Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic, Statuses: []store.RunStatus{store.StatusDeliveryFailed}}, ObjectCreatedAt: time.UnixMicro(0),
	}
	t.NoError(t.Store.PutLink(t.ctx, link))
	t.recordAttempts(store.DeliveryFailed, t.claimDue(1))
	t.postDeliveries()
	t.NotEmpty(t.claimDeliveries(10))
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
	t.NoError(t.Store.Remove(t.ctx, t.Project, tells.Ref))
}

// claimNext accepts and claims one run.
func (t *tour) claimNext() []store.Claimed {
	t.acceptAll(t.newEvent(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	return t.claimAsNew(1, time.Hour)
}

func (t *tour) completeRuns(runs ...store.Claimed) {
	for _, run := range runs {
		t.requireSuccess(t.Store.Complete(t.ctx, []store.Completion{{Lease: leaseOf(run), Status: store.RunCompleted, Output: "hello"}}))
	}
}

// postDeliveries creates all waiting deliveries.
func (t *tour) postDeliveries() {
	for n := 1; n > 0; {
		var err error
		n, err = t.Store.PostDeliveries(t.ctx, 100)
		t.NoError(err)
	}
}

func (t *tour) claimDeliveries(limit int) []store.ClaimedDelivery {
	other := store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	claim := store.DeliveryClaim{
		Limit: limit, PerConnector: 100, Lease: time.Hour, PerProject: 100, UnderWay: map[uuid.UUID]int{uuid.New(): 100, other.ProjectID: 99},
		OfConnector: map[store.Key]int{other: 99},
	}
	_, _, err := t.Store.NextDelivery(t.ctx, claim)
	t.NoError(err)
	claimed, err := t.Store.ClaimDeliveries(t.ctx, claim)
	t.NoError(err)
	return claimed
}

// claimDue claims existing deliveries.
func (t *tour) claimDue(n int) []store.ClaimedDelivery {
	claimed := t.claimDeliveries(n)
	t.Len(claimed, n)
	return claimed
}

func (t *tour) recordAttempts(outcome store.DeliveryOutcome, claimed []store.ClaimedDelivery) {
	var attempts []store.Attempt
	for _, d := range claimed {
		attempts = append(attempts, store.Attempt{
			Delivery: d.Delivery, Generation: d.Connector.Ref.Generation, Outcome: outcome, Wait: time.Hour, At: time.UnixMicro(1), StatusCode: 200, Response: "thanks",
		})
	}
	t.NoError(t.Store.RecordAttempts(t.ctx, attempts))
}

// replayAll replays an ended delivery and an ended event, and tests a connector, with keys.
func (t *tour) replayAll(to store.Key, delivery uuid.UUID) {
	key := func() *store.Idempotency {
		return &store.Idempotency{Key: "replay:" + uuid.NewString(), TTL: time.Hour}
	}
	again, once, original := key(), key(), store.ConnectorRun{}
	for _, run := range slices.Backward(t.connectorRuns) {
		var err error
		original, err = t.Store.ConnectorRun(t.ctx, run)
		t.NoError(err)
		if original.EndedAt != nil {
			break
		}
	}
	waiting, err := t.Store.Redeliver(t.ctx, store.Redelivery{Of: t.key(delivery)})
	t.NoError(err)
	hurried, tested := key(), key()
	for _, verdict := range []store.Verdict{store.Accepted, store.Repeated} {
		a, err := t.Store.RetryDeliveryNow(t.ctx, t.key(waiting.ConnectorRunID), hurried)
		t.NoError(err)
		t.Equal(verdict, a.Verdict)
		a, err = t.Store.Redeliver(t.ctx, store.Redelivery{Of: t.key(delivery), Idempotency: again})
		t.NoError(err)
		t.Equal(verdict, a.Verdict)
		a, err = t.Store.SendTest(t.ctx, store.TestDelivery{Connector: to, Payload: []byte(`{}`), Idempotency: tested})
		t.NoError(err)
		t.Equal(verdict, a.Verdict)
		rules := replay.Rules{Evaluate: func([]byte) func(string) (string, error) { return nil }, RequiresFiles: connector.RequiresFiles}
		a, err = replay.One(t.ctx, t.Store, rules, original, once)
		t.NoError(err)
		t.Equal(verdict, a.Verdict)
	}
}
