// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// runStrangers are the calls about events and runs.
var runStrangers = map[string]func(s *stranger){
	"Accept": func(s *stranger) {
		e := s.event
		e.ProjectID, e.ConnectorRunID = s.project, newUUIDv7()
		admissions, err := s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.Equal(store.Outdated, admissions[0].Verdict, "it has no such connector")
		c := s.connector
		c.ProjectID = s.project
		s.NoError(s.s.PutConnector(s.ctx, c))
		route, err := s.s.Route(s.ctx, c.Key())
		s.NoError(err)
		e.ConnectorVersion = route.Connector.Version
		admissions, err = s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.requireNotFound(admissions[0].Err) // it has no such blob
		e.InputBlob = nil
		admissions, err = s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.requireNotFound(admissions[0].Err) // it has no such file
		e.Files = nil
		admissions, err = s.s.Accept(s.ctx, []store.Event{e})
		s.NoError(err)
		s.Equal(store.Accepted, admissions[0].Verdict, "another project's key is another key")
	},
	"Claim": func(s *stranger) {
		held := s.someLease()
		got, err := s.s.Claim(s.ctx, store.Claim{
			Environment: s.key(s.environment.ID), RunnerID: s.runner, Slots: 10, Limit: 10, Holding: []store.Lease{held}, Lease: lease,
		})
		s.NoError(err)
		s.Empty(got.Runs)
		s.Equal([]store.Lease{held}, got.Lost)
	},
	"Heartbeat": func(s *stranger) {
		lost, err := s.s.Heartbeat(s.ctx, s.key(s.environment.ID), heldClaims(s.someLease()), lease)
		s.NoError(err)
		s.Equal([]store.Lease{s.someLease()}, lost)
	},
	"CheckClaim": func(s *stranger) { s.requireNotFound(s.s.CheckClaim(s.ctx, s.someLease())) },
	"AppendJournals": func(s *stranger) {
		s.requireNotFound(s.s.AppendJournals(s.ctx, []store.JournalAppend{
			{Lease: s.someLease(), Entries: []store.JournalEntry{newEntry(2, store.JournalModelAnswer, false)}},
		})[0])
	},
	"AppendJournal": func(s *stranger) {
		s.requireNotFound(s.s.AppendJournal(s.ctx, s.someLease(), []store.JournalEntry{newEntry(2, store.JournalModelAnswer, false)}))
	},
	"Complete": func(s *stranger) {
		s.requireNotFound(s.complete(store.Completion{Lease: s.someLease(), Status: store.RunCompleted}))
	},
	"RecordAttempts": func(s *stranger) {
		theirs := attempted(s.delivery, store.DeliveryDone)
		theirs.Delivery.ProjectID = s.project
		s.NoError(s.s.RecordAttempts(s.ctx, []store.Attempt{theirs}))
	},
	"Send": func(s *stranger) {
		theirs := payloadOf(s.running, "tell", 1, `"ours"`)
		theirs.Lease = s.someLease()
		_, err := s.s.Send(s.ctx, theirs)
		s.requireNotFound(err)
	},
	"Actions": func(s *stranger) {
		actions, err := s.s.Actions(s.ctx, s.key(s.environment.ID), []string{"first"})
		s.NoError(err)
		s.Empty(actions)
	},
	"Attempts": func(s *stranger) {
		attempts, next, err := s.s.Attempts(s.ctx, s.key(s.delivery.Delivery.ID))
		s.NoError(err)
		s.Empty(attempts)
		s.Nil(next)
	},
	"AttemptsOf": func(s *stranger) {
		of, err := s.s.AttemptsOf(s.ctx, []store.Key{s.key(s.delivery.Delivery.ID)})
		s.NoError(err)
		s.Empty(of)
	},
	"DestinationsOf": func(s *stranger) {
		of, err := s.s.DestinationsOf(s.ctx, s.project, []uuid.UUID{s.delivery.ConnectorID})
		s.NoError(err)
		s.Empty(of)
	},
	"ResumeDestination": func(s *stranger) {
		s.NoError(s.s.ResumeDestination(s.ctx, s.key(s.delivery.ConnectorID)))
	},
	"Release": func(s *stranger) { s.requireNotFound(s.s.Release(s.ctx, s.someLease(), 0)) },
	"Outcome": func(s *stranger) {
		_, err := s.s.Outcome(s.ctx, s.key(s.event.ConnectorRunID))
		s.requireNotFound(err)
	},
	"Run": func(s *stranger) {
		_, err := s.s.Run(s.ctx, s.key(s.running.Run.ID))
		s.requireNotFound(err)
	},
	"RunEnvironments": func(s *stranger) {
		found, err := s.s.RunEnvironments(s.ctx, s.project, []uuid.UUID{s.running.Run.ID, s.spent})
		s.NoError(err)
		s.Empty(found)
	},
	"RunInput": func(s *stranger) {
		_, _, err := s.s.RunInput(s.ctx, s.key(s.running.Run.ID))
		s.requireNotFound(err)
	},
	"DelayTraces": func(s *stranger) {
		s.NoError(s.s.DelayTraces(s.ctx, s.project, []uuid.UUID{s.spent}, time.Hour))
	},
	"EndTraces": func(s *stranger) { s.NoError(s.s.EndTraces(s.ctx, s.project, []uuid.UUID{s.spent})) },
	"TracedRuns": func(s *stranger) {
		found, err := s.s.TracedRuns(s.ctx, s.project, []uuid.UUID{s.spent})
		s.NoError(err)
		s.Empty(found)
	},
	"RunJournals": func(s *stranger) {
		s.NoError(s.s.RunJournals(s.ctx, s.project, []uuid.UUID{s.spent, s.running.Run.ID}, func(run uuid.UUID, _ store.JournalEntry) error {
			return fmt.Errorf("an entry of run %s", run)
		}))
	},
	"RunHeaders": func(s *stranger) {
		_, err := s.s.RunHeaders(s.ctx, s.key(s.running.Run.ID))
		s.requireNotFound(err)
	},
	"EventFiles": func(s *stranger) {
		files, err := s.s.EventFiles(s.ctx, s.victim.key(s.event.ConnectorRunID))
		s.NoError(err)
		s.NotEmpty(files)
		files, err = s.s.EventFiles(s.ctx, s.key(s.event.ConnectorRunID))
		s.NoError(err)
		s.Empty(files)
	},
	"SaveFile": func(s *stranger) { s.requireNotFound(s.saveText(s.someLease(), 2, "s1", "text")) },
	"RunSavedFiles": func(s *stranger) {
		files, err := s.s.RunSavedFiles(s.ctx, s.key(s.running.Run.ID))
		s.NoError(err)
		s.Empty(files)
	},
	"OpenSavedFile": func(s *stranger) {
		_, _, err := s.s.OpenSavedFile(s.ctx, s.key(s.running.Run.ID), "s1", 0)
		s.requireNotFound(err)
	},
	"RunFiles": func(s *stranger) {
		_, err := s.s.RunFiles(s.ctx, s.key(s.running.Run.ID))
		s.requireNotFound(err)
	},
	"OpenRunFile": func(s *stranger) {
		_, _, err := s.s.OpenRunFile(s.ctx, s.key(s.running.Run.ID), 0)
		s.requireNotFound(err)
	},
	"Journal": func(s *stranger) {
		entries, err := s.s.Journal(s.ctx, s.key(s.running.Run.ID))
		s.NoError(err)
		s.Empty(entries)
	},
	"ListRuns": func(s *stranger) {
		for _, search := range []*store.Search{nil, searchUnindexed(), searchFor("done")} {
			runs, _, err := s.s.ListRuns(s.ctx, store.RunQuery{
				ProjectID: s.project, EnvironmentIDs: []uuid.UUID{s.environment.ID}, Search: search, Limit: 10,
			})
			s.NoError(err)
			s.Empty(runs)
		}
	},
	"ConnectorRun": func(s *stranger) {
		_, err := s.s.ConnectorRun(s.ctx, s.key(s.event.ConnectorRunID))
		s.requireNotFound(err)
	},
	"ListConnectorRuns": func(s *stranger) {
		runs, total, err := s.s.ListConnectorRuns(s.ctx, store.ConnectorRunQuery{Connector: s.key(s.connector.ID), Limit: 10})
		s.NoError(err)
		s.Empty(runs)
		s.Zero(total)
	},
	"KnownKey": func(s *stranger) {
		known, err := s.s.KnownKey(s.ctx, s.victim.connector.Key(), "key:1")
		s.NoError(err)
		s.True(known)
		known, err = s.s.KnownKey(s.ctx, s.key(s.connector.ID), "key:1")
		s.NoError(err)
		s.False(known)
	},
	"EventInput": func(s *stranger) {
		_, err := s.s.EventInput(s.ctx, s.key(s.event.ConnectorRunID))
		s.requireNotFound(err)
	},
	"KnownRequest": func(s *stranger) {
		key := store.Idempotency{Key: "key:1"}
		_, err := s.s.KnownRequest(s.ctx, s.victim.connector.Key(), key)
		s.NoError(err)
		_, err = s.s.KnownRequest(s.ctx, s.key(s.connector.ID), key)
		s.requireNotFound(err)
	},
	"Redeliver": func(s *stranger) {
		_, err := s.s.Redeliver(s.ctx, store.Redelivery{Of: s.key(s.delivery.Delivery.ID), Idempotency: requestKey("1", "theirs")})
		s.requireNotFound(err)
	},
	"SendTest": func(s *stranger) {
		_, err := s.s.SendTest(s.ctx, store.TestDelivery{Connector: s.key(s.delivery.Connector.ID), Payload: []byte(example), Idempotency: requestKey("3", "theirs")})
		s.requireNotFound(err)
	},
	"RetryDeliveryNow": func(s *stranger) {
		_, err := s.s.RetryDeliveryNow(s.ctx, s.key(s.delivery.Delivery.ID), requestKey("2", "theirs"))
		s.requireNotFound(err)
	},
	"MatchReplay": func(s *stranger) {
		match, err := s.s.MatchReplay(s.ctx, s.key(s.connector.ID), s.replay.Filter)
		s.NoError(err)
		s.Zero(match)
	},
	"StartReplay": func(s *stranger) {
		n := s.newReplay(s.connector, store.ConnectorRunCompleted)
		n.Connector.ProjectID, n.ID = s.project, s.replay.ID
		_, _, err := s.s.StartReplay(s.ctx, n)
		s.requireNotFound(err)
	},
	"Replay": func(s *stranger) {
		_, err := s.s.Replay(s.ctx, s.key(s.replay.ID))
		s.requireNotFound(err)
	},
	"ListReplays": func(s *stranger) {
		list, err := s.s.ListReplays(s.ctx, s.key(s.connector.ID))
		s.NoError(err)
		s.Empty(list)
	},
	"CancelReplay": func(s *stranger) { s.requireNotFound(s.s.CancelReplay(s.ctx, s.key(s.replay.ID))) },
	"ReplayOriginals": func(s *stranger) {
		theirs := s.replay
		theirs.ProjectID = s.project
		page, err := s.s.ReplayOriginals(s.ctx, theirs, 10)
		s.NoError(err)
		s.Empty(page.Originals)
	},
	"MoveReplay": func(s *stranger) {
		theirs := s.replay
		theirs.ProjectID = s.project
		s.ErrorIs(s.s.MoveReplay(s.ctx, store.ReplayStep{From: theirs.Position, To: theirs}), store.ErrReplayMoved)
	},
	"Reclaim": func(s *stranger) {
		n, err := s.s.Reclaim(s.ctx, s.key(s.environment.ID), s.runner, nil)
		s.NoError(err)
		s.Zero(n)
	},
	"Attend": func(s *stranger) {
		queued, err := s.s.Attend(s.ctx, []store.RunnerKey{{Environment: s.key(s.environment.ID), ID: s.runner}})
		s.NoError(err)
		s.Empty(queued)
	},
	"RunCalls": func(s *stranger) {
		calls, err := s.s.RunCalls(s.ctx, s.key(s.running.Run.ID))
		s.NoError(err)
		s.Empty(calls)
		ended, err := s.s.RunCalls(s.ctx, s.key(s.spent))
		s.NoError(err)
		s.Empty(ended)
		own, err := s.s.RunCalls(s.ctx, store.Key{ProjectID: s.victim.project.ID, ID: s.spent})
		s.NoError(err)
		s.Len(own, 1, "its own project sees them")
	},
	"JournalAfter": func(s *stranger) {
		entries, err := s.s.JournalAfter(s.ctx, s.key(s.running.Run.ID), 0, 10)
		s.NoError(err)
		s.Empty(entries)
	},
	"Suspend": func(s *stranger) {
		s.requireNotFound(s.s.Suspend(s.ctx, store.Suspension{Lease: s.someLease(), For: time.Hour}))
	},
	"Resume": func(s *stranger) {
		s.requireNotFound(s.s.Resume(s.ctx, s.key(s.running.Run.ID), json.RawMessage(`{}`)))
	},
	"Cancel": func(s *stranger) {
		s.requireNotFound(s.s.Cancel(s.ctx, s.key(s.running.Run.ID), runerror.Cancelled, "theirs"))
	},
	"EraseRun": func(s *stranger) { s.requireNotFound(s.s.EraseRun(s.ctx, s.key(s.event.Runs[0].ID))) },
	"Ended": func(s *stranger) {
		ended, err := s.s.Ended(s.ctx, []store.Key{s.key(s.event.ConnectorRunID), s.victim.world.key(s.event.ConnectorRunID)})
		s.NoError(err)
		s.Equal([]store.Key{s.key(s.event.ConnectorRunID)}, ended, "unknown there")
	},
	"Demand": func(s *stranger) {
		demand, err := s.s.Demand(s.ctx, s.key(s.environment.ID), 10)
		s.NoError(err)
		s.Empty(demand)
		demand, err = s.s.Demand(s.ctx, s.environment.Key(), 10)
		s.NoError(err)
		s.NotEmpty(demand)
	},
	"ProjectLoad": func(s *stranger) {
		_, err := s.s.ProjectLoad(s.ctx, s.project)
		s.requireNotFound(err)
	},
}
