// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// TestWhatWasDeletedIsKeptInTheAuditLog: as it was before, without its secrets.
func TestWhatWasDeletedIsKeptInTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, ids := w.key(t, nil), w.fresh(t)
	_, body := w.call(t, key, http.MethodGet, "/connectors/"+ids["connector"], "")
	before := decode[Connector](t, body)
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, "/connectors/"+ids["connector"]+"/links/"+ids["link"], "").Code)
	entry := w.newest(t)
	require.Equal(t, store.AuditObject{Kind: "link", ID: ids["link"], Name: "hello"}, entry.Outcome.Object)
	require.Equal(t, "hello", decode[Link](t, entry.Outcome.Before).AgentName)
	require.Nil(t, entry.Outcome.After)

	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, "/connectors/"+ids["connector"], "").Code)
	entry = w.newest(t)
	require.Equal(t, store.AuditObject{Kind: "connector", ID: ids["connector"], Name: before.Name}, entry.Outcome.Object)
	require.Equal(t, masked, *decode[Connector](t, entry.Outcome.Before).Secret)
	require.NotContains(t, string(entry.Outcome.Before), *before.Secret)
}

// TestARepetitionHasAnEntryOfItsOwn: each call is recorded, whatever it did.
func TestARepetitionHasAnEntryOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	before := w.auditEntries(t)
	for range 3 {
		answer := w.ask(t, key, http.MethodPost, "/connectors/"+w.ids["connector"]+"/links", `{"agent_name":"other"}`, "Idempotency-Key", "k")
		require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	}
	require.Equal(t, before+3, w.auditEntries(t))
}

// TestEachAnswerHasAnIDOfItsOwn: which callers cannot choose.
func TestEachAnswerHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, seen := w.key(t, nil), map[string]bool{}
	for range 3 {
		answer := w.ask(t, key, http.MethodGet, "/environments", "", "X-Request-Id", "chosen")
		id := answer.Header().Get("X-Request-Id")
		require.NoError(t, uuid.Validate(id))
		require.False(t, seen[id])
		seen[id] = true
	}
}

// TestEntriesAreShownAsTheyAre: also those that no call of this API made, and those
// whose end is not known.
func TestEntriesAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	bare := showAuditEntry(store.AuditEntry{ID: uuid.New(), At: at, Operation: "keys rotate", Actor: store.AuditActor{Kind: store.AuditCommand, Name: "root"}})
	require.Equal(t, AuditActorKind("command"), bare.Actor.Kind)
	require.Nil(t, bare.Method)
	require.Nil(t, bare.Status)
	require.Nil(t, bare.EndedAt)
	require.Nil(t, bare.Actor.KeyID)
	require.Equal(t, time.UTC, bare.At.Location())

	whole := showAuditEntry(store.AuditEntry{
		Object: store.AuditObject{Kind: "connector", ID: "1"},
		Outcome: &store.AuditOutcome{
			At: at, Status: 201, Object: store.AuditObject{Kind: "link", ID: "2", Name: "hello"},
			Before: json.RawMessage(`{"a":1}`), After: nil,
		},
	})
	require.Equal(t, AuditObject{Kind: opt("link"), ID: opt("2"), Name: opt("hello")}, whole.Object, "the outcome knows more")
	require.Equal(t, 201, *whole.Status)
	require.JSONEq(t, `{"a":1}`, string(whole.Before))
	require.Nil(t, whole.After)
	refused := showAuditEntry(store.AuditEntry{Object: store.AuditObject{Kind: "connector", ID: "1"}, Outcome: &store.AuditOutcome{Status: 404, Code: "not_found"}})
	require.Equal(t, AuditObject{Kind: opt("connector"), ID: opt("1")}, refused.Object)
	require.Equal(t, "not_found", *refused.Code)
}

// TestTheAuditLogIsReadToItsEnd: each entry once, by pages of any size.
func TestTheAuditLogIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for range 7 {
		w.call(t, key, http.MethodPost, "/connectors/"+w.ids["connector"]+"/links", `{"nonsense":true}`)
	}
	for limit, pages := range map[string]int{"1": 7, "2": 4, "3": 3, "7": 1, "100": 1} {
		t.Run(limit, func(t *testing.T) {
			seen, cursor := map[string]bool{}, ""
			for n := 1; ; n++ {
				_, body := w.call(t, key, http.MethodGet, "/audit-log?limit="+limit+cursor, "")
				page := decode[AuditLog](t, body)
				for _, e := range page.Items {
					require.False(t, seen[e.ID])
					seen[e.ID] = true
				}
				if page.NextCursor == nil {
					require.Equal(t, pages, n)
					break
				}
				cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
			}
			require.Len(t, seen, 7)
		})
	}
}

// TestTheAuditLogIsOneProjects: another one's entries are in none of its pages.
func TestTheAuditLogIsOneProjects(t *testing.T) {
	t.Parallel()
	w, other := newPast(t), newPast(t)
	w.call(t, w.key(t, nil), http.MethodPost, "/connectors/"+w.ids["connector"]+"/links", `{"agent_name":"secretive"}`)
	_, body := other.call(t, other.key(t, nil), http.MethodGet, "/audit-log", "")
	require.Empty(t, decode[AuditLog](t, body).Items)
	lacking := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.view"}
	})
	status, _ := w.call(t, lacking, http.MethodGet, "/audit-log", "")
	require.Equal(t, http.StatusForbidden, status)
}
