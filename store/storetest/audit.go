// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// auditEntry returns an entry with a value in every field that the caller sets.
func auditEntry(project uuid.UUID) store.AuditEntry {
	return store.AuditEntry{
		ProjectID: project,
		Actor: store.AuditActor{
			Kind: store.AuditAPIKey, Name: "ci", KeyID: "0abc1234", OwnerKind: "User", OwnerName: "anna",
		},
		Operation: "updateConnector", Method: "PATCH", Route: "/v1/projects/{project_id}/connectors/{connector_id}",
		Object:    store.AuditObject{Kind: "connector", ID: "7", Name: "orders"},
		RequestID: "request", RemoteAddr: "192.0.2.1", IdempotencyKey: "once",
	}
}

func (w *world) listAudit(q store.AuditQuery) []store.AuditEntry {
	entries, err := w.s.ListAudit(w.ctx, q)
	w.NoError(err)
	return entries
}

var auditPromises = []promise{
	{"an entry is recorded before its outcome and read with it", func(w *world) {
		want := auditEntry(w.project.ID)
		id, err := w.s.RecordAudit(w.ctx, want)
		w.NoError(err)
		got := w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(got, 1)
		w.False(got[0].At.IsZero())
		want.ID, want.At = id, got[0].At
		w.Equal(want, got[0], "no outcome yet")

		outcome := store.AuditOutcome{
			Status: 409, Code: "conflict", Object: store.AuditObject{Kind: "connector", ID: "8", Name: "other"},
			Before: json.RawMessage(`{"enabled":true}`), After: json.RawMessage(`{"enabled":false}`),
		}
		w.NoError(w.s.RecordAuditOutcome(w.ctx, w.project.ID, id, outcome))
		got = w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 10})
		w.Len(got, 1)
		w.NotNil(got[0].Outcome)
		w.False(got[0].Outcome.At.Before(got[0].At))
		outcome.At = got[0].Outcome.At
		w.Equal(outcome, *got[0].Outcome)
		w.Error(w.s.RecordAuditOutcome(w.ctx, w.project.ID, id, store.AuditOutcome{Status: 200}), "an outcome is not changed")
	}},
	{"a past operation is recorded with its outcome", func(w *world) {
		entry := auditEntry(uuid.Nil)
		entry.Outcome = &store.AuditOutcome{}
		w.NoError(errorOf(w.s.RecordAudit(w.ctx, entry)))
		got := w.listAudit(store.AuditQuery{Limit: 10})
		w.Len(got, 1, "the platform's entry")
		w.NotNil(got[0].Outcome)
		w.Nil(got[0].Outcome.Before)
		w.Nil(got[0].Outcome.After)
		w.Empty(w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 10}))
	}},
	{"entries of a project are listed newest first, by page", func(w *world) {
		var ids []uuid.UUID
		for range 5 {
			id, err := w.s.RecordAudit(w.ctx, auditEntry(w.project.ID))
			w.NoError(err)
			w.NoError(errorOf(w.s.RecordAudit(w.ctx, auditEntry(uuid.New()))))
			ids = append(ids, id)
		}
		var got []uuid.UUID
		query := store.AuditQuery{ProjectID: w.project.ID, Limit: 2}
		for page := w.listAudit(query); len(page) > 0; page = w.listAudit(query) {
			for i, e := range page {
				w.True(i == 0 || bytes.Compare(e.ID[:], page[i-1].ID[:]) < 0)
				got = append(got, e.ID)
			}
			query.Before = &got[len(got)-1]
		}
		w.ElementsMatch(ids, got)
	}},
	{"an ID has the database's time", func(w *world) {
		id, err := w.s.RecordAudit(w.ctx, auditEntry(w.project.ID))
		w.NoError(err)
		w.EqualValues(7, id.Version())
		w.Equal(uuid.RFC4122, id.Variant())
		sec, nsec := id.Time().UnixTime()
		at := w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 1})[0].At
		w.Equal(at.UnixMilli(), sec*1000+nsec/1e6)
	}},
	{"texts are cut and made storable, large documents rejected", func(w *world) {
		entry := auditEntry(w.project.ID)
		entry.Route, entry.Object.Name = "/"+strings.Repeat("é", 1000), "a\x00\xff"
		id, err := w.s.RecordAudit(w.ctx, entry)
		w.NoError(err)
		got := w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 1})[0]
		w.Equal("/"+strings.Repeat("é", 255), got.Route)
		w.Equal("a\uFFFD\uFFFD", got.Object.Name)
		large := store.AuditOutcome{After: json.RawMessage(`"` + strings.Repeat("x", store.MaxAuditDocument) + `"`)}
		w.Error(w.s.RecordAuditOutcome(w.ctx, w.project.ID, id, large))
		w.Nil(w.listAudit(store.AuditQuery{ProjectID: w.project.ID, Limit: 1})[0].Outcome)
	}},
}
