// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// toolPolicy returns the policy of a link that gives its agent a tool.
func toolPolicy(name string) store.OutboundPolicy {
	return store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: name}
}

// sending returns a run whose journal announces so many payloads.
func (w *world) sending(announced int) store.Claimed {
	_, run := w.running(lease)
	w.announce(run, 1, announced)
	return run
}

// announce appends the entries before payloads to the journal of a run.
func (w *world) announce(run store.Claimed, first, n int) {
	var entries []store.JournalEntry
	for i := range n {
		entries = append(entries, newEntry(int64(first+i), store.JournalToolStarted, false))
	}
	w.NoError(w.s.AppendJournal(w.ctx, leaseOf(run), entries))
}

// payloadOf returns a payload that a run sends with a tool.
func payloadOf(run store.Claimed, name string, position int64, payload string) store.Send {
	return store.Send{Lease: leaseOf(run), Mode: store.LinkAgentTool, Name: name, Position: position, Payload: json.RawMessage(payload)}
}

func (w *world) sendPayload(s store.Send) store.Sent {
	sent, err := w.s.Send(w.ctx, s)
	w.NoError(err)
	return sent
}

// requireRejected checks that a payload is rejected and leaves nothing.
func (w *world) requireRejected(s store.Send, want error) {
	before := w.countRowsOf("sends") + w.countRowsOf("deliveries") + w.countRowsOf("inputs") + w.countRowsOf("blobs")
	w.ErrorIs(errorOf(w.s.Send(w.ctx, s)), want)
	w.Equal(before, w.countRowsOf("sends")+w.countRowsOf("deliveries")+w.countRowsOf("inputs")+w.countRowsOf("blobs"))
}

// actions returns the names of the tools of agents.
func (w *world) actions(agents ...string) (names []string) {
	all, err := w.s.Actions(w.ctx, w.environment.Key(), agents)
	w.NoError(err)
	for _, a := range all {
		names = append(names, a.AgentName+" "+a.Name+" "+a.Connector)
	}
	return names
}

// manyOutbound creates links that give the first agent tools, each to a connector of its own.
func (w *world) manyOutbound(n int) []store.Link {
	links := make([]store.Link, n)
	for i := range links {
		c := w.newConnector(fmt.Sprintf("to-%d", i))
		c.Mode = "outbound"
		w.NoError(w.s.PutConnector(w.ctx, c))
		links[i] = w.newLink(fmt.Sprintf("by-%d", i), c.ID, "first", origin)
		links[i].Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: fmt.Sprintf("tell_%d", i)}
	}
	return links
}

var sendPromises = []promise{
	{"a payload is delivered unchanged while the run continues", withAgents(func(w *world) {
		c := w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(2)
		var sent store.Sent
		w.awaitHint(store.TopicDelivery, w.environment.ID, func() { sent = w.sendPayload(payloadOf(run, "tell", 2, `{"n": 1}`)) })
		w.Empty(sent.Skipped)
		w.Equal(store.ConnectorRunPending, w.connectorRun(sent.DeliveryID).Status)
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 1)
		d := claimed[0]
		w.Equal(sent.DeliveryID, d.Delivery.ID)
		w.Equal(store.DeliverPayload, d.Kind)
		w.Equal(`{"n": 1}`, string(d.Payload))
		w.Nil(d.PayloadBlob)
		w.Equal(run.Run.ID, d.RunID)
		w.Zero(d.Run.ID)
		w.recordAttempts(attempted(d, store.DeliveryDone))
		ended := w.connectorRun(sent.DeliveryID)
		w.Equal(store.ConnectorRunCompleted, ended.Status)
		w.Equal(store.TriggerOutbound, ended.Trigger)
		w.Equal([]uuid.UUID{run.Run.ID}, ended.RunIDs)
		w.Equal([]store.ConnectorRun{ended}, w.deliveriesOf(c))
		w.NoError(w.complete(completed(run)))
		w.Equal(1, w.postDeliveries())
		w.Len(w.deliveriesOf(c), 1, "its result is not sent")
		w.Zero(w.countRowsOf("sends"), "they are not due at once again")
	})},
	{"a large payload is delivered completely", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(2)
		most := `"` + strings.Repeat("x", store.MaxPayload-2) + `"`
		w.countAllStored()
		before, blobs := w.storedBytes(), w.countRowsOf("blobs")
		w.Equal(w.sendPayload(payloadOf(run, "tell", 1, most)), w.sendPayload(payloadOf(run, "tell", 1, most)), "again")
		w.Equal(blobs+1, w.countRowsOf("blobs"), "unneeded blobs are deleted")
		d := w.takeDue(10, 10)[0]
		w.Empty(d.Payload)
		body, err := w.s.OpenBlob(w.ctx, w.key(*d.PayloadBlob))
		w.NoError(err)
		defer body.Close()
		whole, err := io.ReadAll(body)
		w.NoError(err)
		w.Equal(most, string(whole))
		w.countAllStored()
		w.GreaterOrEqual(w.storedBytes(), before+store.MaxPayload)
		w.requireRejected(payloadOf(run, "tell", 2, most+" "), store.ErrTooLarge)
	})},
	{"a run sends once per position", withAgents(func(w *world) {
		c := w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(3)
		sent := w.sendPayload(payloadOf(run, "tell", 3, `1`))
		w.Equal(sent, w.sendPayload(payloadOf(run, "tell", 3, `1`)))
		w.NoError(w.s.Release(w.ctx, leaseOf(run), 0))
		w.requireRejected(payloadOf(run, "tell", 3, `1`), store.ErrFenced)
		again := w.claim(1, lease)[0]
		w.Equal(sent, w.sendPayload(payloadOf(again, "tell", 3, `1`)), "resumed elsewhere")
		w.requireRejected(payloadOf(run, "tell", 2, `1`), store.ErrFenced)
		w.recordAttempts(attempted(w.takeDue(10, 10)[0], store.DeliveryDone))
		w.Equal(sent, w.sendPayload(payloadOf(again, "tell", 3, `1`)), "although it arrived")
		w.Len(w.deliveriesOf(c), 1)
		w.NotEqual(sent, w.sendPayload(payloadOf(again, "tell", 2, `1`)))
		w.NoError(w.complete(completed(again)))
		w.requireRejected(payloadOf(again, "tell", 1, `1`), store.ErrFenced)
	})},
	{"a send needs a link of that mode, agent, environment and name", withAgents(func(w *world) {
		w.outboundTo("by itself", automatic)
		w.outboundTo("results", toolPolicy("tell"))
		w.outboundTo("billing", store.OutboundPolicy{Mode: store.LinkMiddleware})
		run := w.sending(3)
		w.requireRejected(payloadOf(run, "other", 1, `1`), store.ErrNotFound)
		w.requireRejected(payloadOf(run, "results", 1, `1`), store.ErrNotFound)
		w.requireRejected(payloadOf(run, "billing", 1, `1`), store.ErrNotFound)
		w.requireRejected(payloadOf(run, "", 1, `1`), store.ErrNotFound)
		w.requireRejected(payloadOf(run, "tell", 4, `1`), store.ErrInvalid)
		w.requireRejected(payloadOf(run, "tell", 0, `1`), store.ErrInvalid)
		w.requireRejected(payloadOf(run, "tell", 1, `{`), store.ErrInvalid)
		middleware := payloadOf(run, "billing", 1, `1`)
		middleware.Mode = store.LinkMiddleware
		w.sendPayload(middleware)
		middleware.Name, middleware.Position = "results", 2
		w.requireRejected(middleware, store.ErrNotFound)
		middleware.Mode = store.LinkAutomatic
		w.requireRejected(middleware, store.ErrInvalid)

		elsewhere := w.newEnvironment("elsewhere", origin)
		w.NoError(w.s.PutEnvironment(w.ctx, elsewhere))
		c := w.newConnector("there")
		c.Mode, c.EnvironmentID = "outbound", elsewhere.ID
		w.NoError(w.s.PutConnector(w.ctx, c))
		for _, agent := range []string{"first", "second"} {
			link := w.newLink("there-"+agent, c.ID, agent, origin)
			link.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "there"}
			w.NoError(w.s.PutLink(w.ctx, link))
		}
		w.requireRejected(payloadOf(run, "there", 2, `1`), store.ErrNotFound)
		w.Equal([]string{"first tell results"}, w.actions("first", "second", "third"))
	})},
	{"a send to a disabled connector is skipped each time", withAgents(func(w *world) {
		c := w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(2)
		c.Enabled = false
		w.NoError(w.s.PutConnector(w.ctx, c))
		sent := w.sendPayload(payloadOf(run, "tell", 1, `1`))
		w.NotEmpty(sent.Skipped)
		w.Equal(sent, w.sendPayload(payloadOf(run, "tell", 1, `1`)))
		skipped := w.connectorRun(sent.DeliveryID)
		w.Equal(store.ConnectorRunSkipped, skipped.Status)
		w.Equal(sent.Skipped, skipped.Error)
		w.Empty(w.takeDue(10, 10))
		c.Enabled = true
		w.NoError(w.s.PutConnector(w.ctx, c))
		w.Equal(sent, w.sendPayload(payloadOf(run, "tell", 1, `1`)), "the first result stays")
		w.Empty(w.sendPayload(payloadOf(run, "tell", 2, `1`)).Skipped)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, c.Ref))
		w.announce(run, 3, 1)
		w.requireRejected(payloadOf(run, "tell", 3, `1`), store.ErrNotFound)
		w.Empty(w.actions("first"))
	})},
	{"the number of sends per run is limited", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(2)
		w.sendPayload(payloadOf(run, "tell", 1, `1`))
		w.updateRows(`INSERT INTO sends (project_id, run_id, position, delivery_id, skipped, bytes)
			WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < ` + fmt.Sprint(store.MaxSends+8) + `)
			SELECT s.project_id, s.run_id, n.i, s.delivery_id, '', 1 FROM sends s CROSS JOIN n`)
		_, err := w.s.Send(w.ctx, payloadOf(run, "tell", 2, `1`))
		var many *store.TooManySendsError
		w.ErrorAs(err, &many)
		w.sendPayload(payloadOf(run, "tell", 1, `1`))
	})},
	{"the total size of sends per run is limited", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(3)
		large := `"` + strings.Repeat("x", 98) + `"`
		first := w.sendPayload(payloadOf(run, "tell", 1, large))
		w.updateRows(`UPDATE sends SET bytes = bytes + ` + fmt.Sprint(store.MaxSent-2*len(large)))
		var much *store.TooMuchSentError
		w.ErrorAs(errorOf(w.s.Send(w.ctx, payloadOf(run, "tell", 2, large+" "))), &much)
		w.sendPayload(payloadOf(run, "tell", 2, large))
		w.ErrorAs(errorOf(w.s.Send(w.ctx, payloadOf(run, "tell", 3, `1`))), &much)
		w.Equal(first, w.sendPayload(payloadOf(run, "tell", 1, large)))
	})},
	{"a run of a project with full storage sends nothing more", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(3)
		first := w.sendPayload(payloadOf(run, "tell", 1, `1`))
		w.countAllStored()
		w.project.Limits.Storage = w.projectLoad().Stored
		w.NoError(w.s.PutProject(w.ctx, w.project))
		before := w.countRowsOf("sends") + w.countRowsOf("deliveries") + w.countRowsOf("inputs") + w.countRowsOf("blobs")
		var full *store.StorageFullError
		for _, payload := range []string{`1`, `"` + strings.Repeat("x", store.MaxInlineInput) + `"`} {
			w.ErrorAs(errorOf(w.s.Send(w.ctx, payloadOf(run, "tell", 2, payload))), &full)
			w.Equal(w.project.Limits.Storage, full.Limit)
		}
		w.Equal(before, w.countRowsOf("sends")+w.countRowsOf("deliveries")+w.countRowsOf("inputs")+w.countRowsOf("blobs"))
		w.Equal(first, w.sendPayload(payloadOf(run, "tell", 1, `1`)))
		w.NoError(w.s.Release(w.ctx, leaseOf(run), 0))
		w.requireRejected(payloadOf(run, "tell", 2, `1`), store.ErrFenced)
		w.project.Limits.Storage++
		w.NoError(w.s.PutProject(w.ctx, w.project))
		w.sendPayload(payloadOf(w.claim(1, lease)[0], "tell", 2, `1`))
	})},
	{"a large payload that is rejected is not written", withAgents(func(w *world) {
		w.outboundTo("results", toolPolicy("tell"))
		run := w.sending(3)
		large := `"` + strings.Repeat("x", store.MaxInlineInput) + `"`
		sent := w.sendPayload(payloadOf(run, "tell", 1, large))
		w.execStatement(`ALTER TABLE blob_chunks RENAME TO away`)
		w.Equal(sent, w.sendPayload(payloadOf(run, "tell", 1, large)), "again")
		w.requireRejected(payloadOf(run, "other", 2, large), store.ErrNotFound)
		w.requireRejected(payloadOf(run, "tell", 4, large), store.ErrInvalid)
		w.updateRows(`UPDATE sends SET bytes = ` + fmt.Sprint(store.MaxSent))
		var much *store.TooMuchSentError
		w.ErrorAs(errorOf(w.s.Send(w.ctx, payloadOf(run, "tell", 2, large))), &much)
		w.NoError(w.s.Release(w.ctx, leaseOf(run), 0))
		w.claim(1, lease)
		w.requireRejected(payloadOf(run, "tell", 2, large), store.ErrFenced)
		w.execStatement(`ALTER TABLE away RENAME TO blob_chunks`)
	})},
	{"sends and notices have one hop more than their event, and its traceparent", withAgents(func(w *world) {
		w.outboundTo("results", automatic)
		w.outboundTo("told", toolPolicy("tell"))
		w.outboundFrom("nobody", "ops", telling)
		e := w.singleEvent()
		e.Hops, e.Traceparent = 3, traceparent
		w.accept(&e)
		run := w.claim(1, lease)[0]
		w.announce(run, 1, 1)
		w.sendPayload(payloadOf(run, "tell", 1, `1`))
		w.NoError(w.complete(completed(run)))
		w.postDeliveries()
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 2)
		for _, d := range claimed {
			w.Equal(4, d.Hops, d.Kind)
			w.Equal(traceparent, d.Traceparent, d.Kind)
			w.Equal(4, w.connectorRun(d.Delivery.ID).Hops, "while it is open")
			w.recordAttempts(attempted(d, store.DeliveryFailed))
			w.Equal(4, w.connectorRun(d.Delivery.ID).Hops, "once it has failed")
		}
		w.postDeliveries()
		for _, word := range w.takeDue(10, 10) {
			w.Equal(store.DeliverFailure, word.Kind)
			w.Equal(4, word.Hops)
			w.Equal(traceparent, word.Traceparent)
			w.recordAttempts(attempted(word, store.DeliveryDone))
			w.Equal(4, w.connectorRun(word.Delivery.ID).Hops, "once it was taken")
			w.Zero(w.connectorRun(e.ConnectorRunID).Hops, "it is not a delivery")
			for _, listed := range w.deliveriesOf(word.Connector) {
				w.Equal(4, listed.Hops)
			}
		}
		for _, d := range claimed {
			w.replayRun(d.Delivery.ID)
		}
		claimed = w.takeDue(10, 10)
		w.Len(claimed, 2)
		for _, d := range claimed {
			w.Equal(4, d.Hops, "again")
			w.Equal(traceparent, d.Traceparent, "again")
		}
		in, err := w.s.EventInput(w.ctx, w.key(w.replayRun(e.ConnectorRunID).ID))
		w.NoError(err)
		w.Equal(3, in.Hops)
	})},
	{"a tool name belongs to the first link of an agent and environment", func(w *world) {
		c := w.outboundTo("results", toolPolicy("tell"))
		other := w.newConnector("other")
		other.Mode = "outbound"
		w.NoError(w.s.PutConnector(w.ctx, other))
		late := w.newLink("late", other.ID, "first", origin.AddDate(-1, 0, 0))
		late.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
		var taken *store.ActionTakenError
		w.ErrorAs(w.s.PutLink(w.ctx, late), &taken)
		w.Equal("results-first", taken.Holder.Name)
		w.Equal([]string{"first tell results"}, w.actions("first"))
		same := late
		same.AgentName = "second"
		w.NoError(w.s.PutLink(w.ctx, same), "another agent's")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, same.Ref))
		w.NoError(w.s.Remove(w.ctx, w.project.ID, c.Ref))
		w.NoError(w.s.PutLink(w.ctx, late))
		w.NoError(w.s.PutLink(w.ctx, late), "its own")
	}},
	{"a connector that has lost its name sends nothing", func(w *world) {
		w.outboundTo("held", automatic)
		shadowed := w.outboundTo("b", toolPolicy("tell"))
		rename := func(to string) error {
			shadowed.Name, shadowed.Ref.Generation = to, shadowed.Ref.Generation+1
			return w.s.PutConnector(w.ctx, shadowed)
		}
		var duplicate *store.DuplicateError
		w.ErrorAs(rename("held"), &duplicate)
		w.Empty(w.actions("first"))
		d := w.newConnector("d")
		d.Mode = "outbound"
		w.NoError(w.s.PutConnector(w.ctx, d))
		l := w.newLink("d-first", d.ID, "first", origin)
		l.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
		var taken *store.ActionTakenError
		w.ErrorAs(w.s.PutLink(w.ctx, l), &taken, "otherwise two would have the name once the other one is back")
		w.NoError(rename("b"))
		w.Equal([]string{"first tell b"}, w.actions("first"))
	}},
	{"of two connectors with a name the current one is used", withAgent(func(w *world) {
		w.outboundTo("held", automatic)
		named := store.OutboundPolicy{Mode: store.LinkMiddleware}
		shadowed := w.outboundTo("x", named)
		shadowed.Name, shadowed.Ref.Generation = "held", shadowed.Ref.Generation+1
		var duplicate *store.DuplicateError
		w.ErrorAs(w.s.PutConnector(w.ctx, shadowed), &duplicate)
		other := w.outboundTo("y", named)
		other.Name, other.Ref.Generation = "x", other.Ref.Generation+1
		w.NoError(w.s.PutConnector(w.ctx, other))
		w.updateRows(`UPDATE links SET object_created_at = CASE WHEN connector_id = $2 THEN 1 ELSE 2 END`, shadowed.ID.String())
		sent := payloadOf(w.sending(1), "x", 1, `{}`)
		sent.Mode = store.LinkMiddleware
		w.sendPayload(sent)
		claimed := w.takeDue(10, 10)
		w.Len(claimed, 1)
		w.Equal(other.ID, claimed[0].Connector.ID)
	})},
	{"links are checked by number and name when their connector comes", func(w *world) {
		w.outboundTo("there", toolPolicy("tell"))
		late := w.newConnector("late")
		late.Mode = "outbound"
		l := w.newLink("late-first", late.ID, "first", origin.AddDate(-1, 0, 0))
		l.Outbound = &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "tell"}
		w.NoError(w.s.PutLink(w.ctx, l))
		w.NoError(w.s.PutConnector(w.ctx, late))
		w.Equal([]string{"first tell there"}, w.actions("first"))
		var taken *store.ActionTakenError
		w.ErrorAs(w.s.PutLink(w.ctx, l), &taken)
	}},
	{"the number of outbound links per agent is limited in any mode", func(w *world) {
		links := w.manyOutbound(store.MaxOutboundLinks + 1)
		last := links[store.MaxOutboundLinks]
		for _, l := range links[:store.MaxOutboundLinks] {
			w.NoError(w.s.PutLink(w.ctx, l))
		}
		var many *store.TooManyOutboundLinksError
		w.ErrorAs(w.s.PutLink(w.ctx, last), &many)
		w.Len(w.actions("first"), store.MaxOutboundLinks)
		w.updateRows(`UPDATE connectors SET retired = TRUE`)
		w.Empty(w.actions("first"))
		w.updateRows(`UPDATE connectors SET retired = FALSE`)
		last.Outbound = &automatic
		w.ErrorAs(w.s.PutLink(w.ctx, last), &many)
		last.AgentName = "second"
		w.NoError(w.s.PutLink(w.ctx, last), "another agent's")
		last.AgentName = "first"
		w.ErrorAs(w.s.PutLink(w.ctx, last), &many, "also for a change")
		links[0].Outbound = &automatic
		w.NoError(w.s.PutLink(w.ctx, links[0]), "one of the existing ones")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, links[0].Ref))
		w.NoError(w.s.PutLink(w.ctx, last))
	}},
	{"concurrent links respect the limit", func(w *world) {
		links := w.manyOutbound(store.MaxOutboundLinks + 4)
		refused := make([]error, len(links))
		var all sync.WaitGroup
		for i, l := range links {
			all.Go(func() { refused[i] = w.s.PutLink(w.ctx, l) })
		}
		all.Wait()
		var many *store.TooManyOutboundLinksError
		refused = slices.DeleteFunc(refused, func(err error) bool { return err == nil })
		w.Len(refused, 4)
		for _, err := range refused {
			w.ErrorAs(err, &many)
		}
		w.Len(w.actions("first"), store.MaxOutboundLinks)
	}},
	{"links before their connectors respect the limit", func(w *world) {
		links := w.manyOutbound(store.MaxOutboundLinks)
		for _, l := range links {
			w.NoError(w.s.PutLink(w.ctx, l))
		}
		c := w.newConnector("late")
		c.Mode = "outbound"
		late, other := w.newLink("late", c.ID, "first", origin), w.newLink("other", c.ID, "second", origin)
		late.Outbound, other.Outbound = &automatic, &automatic
		w.NoError(w.s.PutLink(w.ctx, late), "its connector is unknown")
		w.NoError(w.s.PutLink(w.ctx, other))
		w.NoError(w.s.PutConnector(w.ctx, c))
		route := w.readRoute(c.Key())
		w.Len(route.Links, 1)
		w.Equal(other.ID, route.Links[0].ID)
		var many *store.TooManyOutboundLinksError
		w.ErrorAs(w.s.PutLink(w.ctx, late), &many)
	}},
	{"links from before the limit stay", func(w *world) {
		links := w.manyOutbound(store.MaxOutboundLinks + 1)
		last := &links[store.MaxOutboundLinks]
		for _, l := range links[:store.MaxOutboundLinks] {
			w.NoError(w.s.PutLink(w.ctx, l))
		}
		last.AgentName = "second"
		w.NoError(w.s.PutLink(w.ctx, *last))
		w.updateRows(`UPDATE links SET agent_name = CASE WHEN id = $2 THEN 'first' ELSE agent_name END`, last.ID.String())
		last.AgentName = "first"
		is := func(what string) {
			w.Len(w.readRoute(store.Key{ProjectID: w.project.ID, ID: last.ConnectorID}).Links, 1, what)
		}
		w.NoError(w.s.PutLink(w.ctx, *last))
		last.Outbound = &automatic
		w.NoError(w.s.PutLink(w.ctx, *last))
		is("a change of the link")
		route := w.readRoute(store.Key{ProjectID: w.project.ID, ID: last.ConnectorID})
		c := route.Connector
		c.Config = timeoutSettings(77)
		w.NoError(w.s.PutConnector(w.ctx, c))
		is("a change of its connector, which does not change the link")
	}},
}
