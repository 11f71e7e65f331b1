// SPDX-License-Identifier: Apache-2.0

package storebench

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// deliver sends results in the most frequent way, and in all other ways.
func (t *tour) deliver() {
	out := store.Connector{
		Ref: t.ref(store.KindConnector, "results"), ID: uuid.New(), ProjectID: t.Project, EnvironmentID: t.Environment,
		Name: "results" + uuid.NewString(), Type: "webhook", Mode: "outbound", Enabled: true, Config: []byte(`{}`),
	}
	t.NoError(t.Store.PutConnector(t.ctx, out))
	link := store.Link{
		Ref: t.ref(store.KindConnectorLink, "results"), ID: uuid.New(), ProjectID: t.Project, ConnectorID: out.ID,
		AgentName: t.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.UnixMicro(0),
	}
	t.NoError(t.Store.PutLink(t.ctx, link))
	for range 64 { // enough for a statement to be cheaper without its index
		t.take(t.event(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	}
	for range 5 {
		t.finish(t.some(20, time.Hour)...)
	}
	t.post()
	t.settle(store.DeliveryDone, t.due(40))
	t.settle(store.DeliveryDone, t.ask(100))
	for range 5 {
		t.take(t.event(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	}
	t.finish(t.some(10, time.Hour)...) // of two agents alternately
	t.post()
	claimed := t.due(2)
	t.settle(store.DeliveryDone, claimed[:1])
	t.settle(store.DeliveryRetry, claimed[1:])
	t.settle(store.DeliveryGone, t.due(1))
	t.Empty(t.ask(10), "the rest is skipped")
	t.finish(t.next()...)
	t.post()
	runs, _, err := t.Store.ListConnectorRuns(t.ctx, store.ConnectorRunQuery{Connector: t.key(out.ID), Limit: 10})
	t.NoError(err)
	t.NotEmpty(runs)
	_, err = t.Store.ConnectorRun(t.ctx, t.key(claimed[1].Delivery.ID))
	t.NoError(err)
	t.replay(t.key(out.ID), claimed[0].Delivery.ID)
	_, _, err = t.Store.Attempts(t.ctx, t.key(claimed[0].Delivery.ID))
	t.NoError(err)
	_, err = t.Store.DestinationsOf(t.ctx, t.Project, []uuid.UUID{out.ID})
	t.NoError(err)
	troubled, err := t.Store.TroubledDestinations(t.ctx, store.Key{}, 10)
	t.NoError(err)
	t.NotEmpty(troubled)
	t.NoError(t.Store.ResumeDestination(t.ctx, t.key(out.ID)))
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
	t.send(out, link)
	t.NoError(t.Store.EraseRun(t.ctx, t.key(claimed[0].Delivery.RunID)), "which has a delivery that ended and one that is open")
	t.NoError(t.Store.Remove(t.ctx, t.Project, out.Ref))
}

// send sends a payload from a run in progress.
func (t *tour) send(out store.Connector, link store.Link) {
	out.Ref.Generation++ // no longer paused
	t.NoError(t.Store.PutConnector(t.ctx, out))
	run := t.next()
	link.Ref.ObjectUID, link.AgentName = "a tool", run[0].Run.AgentName
	link.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
	t.NoError(t.Store.PutLink(t.ctx, link))
	actions, err := t.Store.Actions(t.ctx, t.key(t.Environment), []string{link.AgentName})
	t.NoError(err)
	t.Len(actions, 1)
	t.NoError(t.Store.AppendJournal(t.ctx, held(run[0]), []store.JournalEntry{
		{Sequence: 1, Kind: store.JournalToolStarted}, {Sequence: 2, Kind: store.JournalToolStarted},
	}))
	s := store.Send{Lease: held(run[0]), Mode: store.LinkAgentTool, Name: "tell", Position: 1, Payload: []byte(`{}`)}
	for range 2 {
		_, err = t.Store.Send(t.ctx, s)
		t.NoError(err)
	}
	s.Position, s.Payload = 2, []byte(`"`+strings.Repeat("x", store.MaxInlineInput)+`"`)
	_, err = t.Store.Send(t.ctx, s)
	t.NoError(err)
	t.fail(out)
	t.finish(run...)
	t.post()
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
}

// fail makes deliveries fail that a link reports.
func (t *tour) fail(out store.Connector) {
	tells := out
	tells.Ref, tells.ID, tells.Name = t.ref(store.KindConnector, "ops"), uuid.New(), "ops"+uuid.NewString()
	t.NoError(t.Store.PutConnector(t.ctx, tells))
	link := store.Link{
		Ref: t.ref(store.KindConnectorLink, "ops"), ID: uuid.New(), ProjectID: t.Project, ConnectorID: tells.ID, AgentName: "nobody",
		Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic, Statuses: []store.RunStatus{store.StatusDeliveryFailed}}, ObjectCreatedAt: time.UnixMicro(0),
	}
	t.NoError(t.Store.PutLink(t.ctx, link))
	t.settle(store.DeliveryFailed, t.due(1))
	t.post()
	t.NotEmpty(t.ask(10))
	t.NoError(t.Store.Remove(t.ctx, t.Project, link.Ref))
	t.NoError(t.Store.Remove(t.ctx, t.Project, tells.Ref))
}

// next accepts and claims one run.
func (t *tour) next() []store.Claimed {
	t.take(t.event(func(e *store.Event) { e.Runs = e.Runs[:1] }))
	return t.some(1, time.Hour)
}

func (t *tour) finish(runs ...store.Claimed) {
	for _, run := range runs {
		_, err := t.Store.Complete(t.ctx, []store.Completion{{Lease: held(run), Status: store.RunCompleted, Output: "hello"}})
		t.NoError(err)
	}
}

// post creates all waiting deliveries.
func (t *tour) post() {
	for n := 1; n > 0; {
		var err error
		n, err = t.Store.PostDeliveries(t.ctx, 100)
		t.NoError(err)
	}
}

func (t *tour) ask(limit int) []store.ClaimedDelivery {
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

// due claims existing deliveries.
func (t *tour) due(n int) []store.ClaimedDelivery {
	claimed := t.ask(n)
	t.Len(claimed, n)
	return claimed
}

func (t *tour) settle(outcome store.DeliveryOutcome, claimed []store.ClaimedDelivery) {
	var attempts []store.Attempt
	for _, d := range claimed {
		attempts = append(attempts, store.Attempt{
			Delivery: d.Delivery, Generation: d.Connector.Ref.Generation, Outcome: outcome, Wait: time.Hour, At: time.UnixMicro(1), StatusCode: 200, Response: "thanks",
		})
	}
	t.NoError(t.Store.RecordAttempts(t.ctx, attempts))
}

// replay replays an ended delivery and an ended event, and tests a connector, with keys.
func (t *tour) replay(to store.Key, delivery uuid.UUID) {
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
		a, err = replay.One(t.ctx, t.Store, func([]byte) func(string) (string, error) { return nil }, original, once)
		t.NoError(err)
		t.Equal(verdict, a.Verdict)
	}
}
