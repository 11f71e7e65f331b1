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
		s.Equal(store.Outdated, s.tryAccept(e)[0].Verdict, "it has no such connector")
		c := s.connector
		c.ProjectID = s.project
		s.NoError(s.s.PutConnector(s.ctx, c))
		route := s.readRoute(c.Key())
		e.ConnectorVersion = route.Connector.Version
		admissions := s.tryAccept(e)
		s.requireNotFound(admissions[0].Err) // it has no such blob
		e.InputBlob = nil
		admissions = s.tryAccept(e)
		s.requireNotFound(admissions[0].Err) // it has no such file
		e.Files = nil
		s.Equal(store.Accepted, s.tryAccept(e)[0].Verdict, "another project's key is another key")
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
		lost := s.renewLeases(s.key(s.environment.ID), heldClaims(s.someLease()), lease)
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
		s.requireNotFound(errorOf(s.s.Send(s.ctx, theirs)))
	},
	"Actions": func(s *stranger) { s.requireNone(s.s.Actions(s.ctx, s.key(s.environment.ID), []string{"first"})) },
	"Attempts": func(s *stranger) {
		attempts, next := s.listAttempts(s.key(s.delivery.Delivery.ID))
		s.Empty(attempts)
		s.Nil(next)
	},
	"AttemptsOf": func(s *stranger) { s.requireNone(s.s.AttemptsOf(s.ctx, []store.Key{s.key(s.delivery.Delivery.ID)})) },
	"DestinationsOf": func(s *stranger) {
		s.requireNone(s.s.DestinationsOf(s.ctx, s.project, []uuid.UUID{s.delivery.ConnectorID}))
	},
	"ResumeDestination": func(s *stranger) { s.NoError(s.s.ResumeDestination(s.ctx, s.key(s.delivery.ConnectorID))) },
	"Release":           func(s *stranger) { s.requireNotFound(s.s.Release(s.ctx, s.someLease(), 0)) },
	"Outcome":           func(s *stranger) { s.requireNotFound(errorOf(s.s.Outcome(s.ctx, s.key(s.event.ConnectorRunID)))) },
	"Run":               func(s *stranger) { s.requireNotFound(errorOf(s.s.Run(s.ctx, s.key(s.running.Run.ID)))) },
	"RunEnvironments": func(s *stranger) {
		s.requireNone(s.s.RunEnvironments(s.ctx, s.project, []uuid.UUID{s.running.Run.ID, s.spent}))
	},
	"RunInput": func(s *stranger) {
		_, _, err := s.s.RunInput(s.ctx, s.key(s.running.Run.ID))
		s.requireNotFound(err)
	},
	"DelayTraces": func(s *stranger) { s.NoError(s.s.DelayTraces(s.ctx, s.project, []uuid.UUID{s.spent}, time.Hour)) },
	"EndTraces":   func(s *stranger) { s.NoError(s.s.EndTraces(s.ctx, s.project, []uuid.UUID{s.spent})) },
	"TracedRuns":  func(s *stranger) { s.requireNone(s.s.TracedRuns(s.ctx, s.project, []uuid.UUID{s.spent})) },
	"RunJournals": func(s *stranger) {
		s.NoError(s.s.RunJournals(s.ctx, s.project, []uuid.UUID{s.spent, s.running.Run.ID}, func(run uuid.UUID, _ store.JournalEntry) error {
			return fmt.Errorf("an entry of run %s", run)
		}))
	},
	"RunHeaders": func(s *stranger) { s.requireNotFound(errorOf(s.s.RunHeaders(s.ctx, s.key(s.running.Run.ID)))) },
	"EventFiles": func(s *stranger) {
		s.NotEmpty(s.eventFiles(s.victim.key(s.event.ConnectorRunID)))
		s.Empty(s.eventFiles(s.key(s.event.ConnectorRunID)))
	},
	"SaveFile":      func(s *stranger) { s.requireNotFound(s.saveText(s.someLease(), 2, "s1", "text")) },
	"RunSavedFiles": func(s *stranger) { s.requireNone(s.s.RunSavedFiles(s.ctx, s.key(s.running.Run.ID))) },
	"OpenSavedFile": func(s *stranger) {
		_, _, err := s.s.OpenSavedFile(s.ctx, s.key(s.running.Run.ID), "s1", 0)
		s.requireNotFound(err)
	},
	"RunFiles": func(s *stranger) { s.requireNotFound(errorOf(s.s.RunFiles(s.ctx, s.key(s.running.Run.ID)))) },
	"OpenRunFile": func(s *stranger) {
		_, _, err := s.s.OpenRunFile(s.ctx, s.key(s.running.Run.ID), 0)
		s.requireNotFound(err)
	},
	"Journal": func(s *stranger) { s.requireNone(s.s.Journal(s.ctx, s.key(s.running.Run.ID))) },
	"ListRuns": func(s *stranger) {
		for _, search := range []*store.Search{nil, searchUnindexed(), searchFor("done")} {
			runs := s.listRuns(store.RunQuery{
				ProjectID: s.project, EnvironmentIDs: []uuid.UUID{s.environment.ID}, Search: search, Limit: 10,
			})
			s.Empty(runs)
		}
	},
	"ConnectorRun": func(s *stranger) { s.requireNotFound(errorOf(s.s.ConnectorRun(s.ctx, s.key(s.event.ConnectorRunID)))) },
	"ListConnectorRuns": func(s *stranger) {
		runs, total := s.listConnectorRuns(store.ConnectorRunQuery{Connector: s.key(s.connector.ID), Limit: 10})
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
	"EventInput": func(s *stranger) { s.requireNotFound(errorOf(s.s.EventInput(s.ctx, s.key(s.event.ConnectorRunID)))) },
	"KnownRequest": func(s *stranger) {
		key := store.Idempotency{Key: "key:1"}
		s.NoError(errorOf(s.s.KnownRequest(s.ctx, s.victim.connector.Key(), key)))
		s.requireNotFound(errorOf(s.s.KnownRequest(s.ctx, s.key(s.connector.ID), key)))
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
		s.requireNotFound(errorOf(s.s.RetryDeliveryNow(s.ctx, s.key(s.delivery.Delivery.ID), requestKey("2", "theirs"))))
	},
	"MatchReplay": func(s *stranger) { s.requireNone(s.s.MatchReplay(s.ctx, s.key(s.connector.ID), s.replay.Filter)) },
	"StartReplay": func(s *stranger) {
		n := s.newReplay(s.connector, store.ConnectorRunCompleted)
		n.Connector.ProjectID, n.ID = s.project, s.replay.ID
		_, _, err := s.s.StartReplay(s.ctx, n)
		s.requireNotFound(err)
	},
	"Replay":       func(s *stranger) { s.requireNotFound(errorOf(s.s.Replay(s.ctx, s.key(s.replay.ID)))) },
	"ListReplays":  func(s *stranger) { s.requireNone(s.s.ListReplays(s.ctx, s.key(s.connector.ID))) },
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
	"Reclaim": func(s *stranger) { s.requireNone(s.s.Reclaim(s.ctx, s.key(s.environment.ID), s.runner, nil)) },
	"Attend": func(s *stranger) {
		s.requireNone(s.s.Attend(s.ctx, []store.RunnerKey{{Environment: s.key(s.environment.ID), ID: s.runner}}))
	},
	"RunCalls": func(s *stranger) {
		s.requireNone(s.s.RunCalls(s.ctx, s.key(s.running.Run.ID)))
		s.requireNone(s.s.RunCalls(s.ctx, s.key(s.spent)))
		s.Len(s.runCalls(store.Key{ProjectID: s.victim.project.ID, ID: s.spent}), 1, "its own project sees them")
	},
	"JournalAfter": func(s *stranger) { s.requireNone(s.s.JournalAfter(s.ctx, s.key(s.running.Run.ID), 0, 10)) },
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
		s.requireNone(s.s.Demand(s.ctx, s.key(s.environment.ID), 10))
		demand, err := s.s.Demand(s.ctx, s.environment.Key(), 10)
		s.NoError(err)
		s.NotEmpty(demand)
	},
	"ProjectLoad": func(s *stranger) { s.requireNotFound(errorOf(s.s.ProjectLoad(s.ctx, s.project))) },
}
