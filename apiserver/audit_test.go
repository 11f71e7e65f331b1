// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// sample is a call of a route that succeeds. {connector} stands for the id of one
// that exists.
type sample struct{ path, body string }

// samples are one call for each route that changes something.
var samples = map[string]sample{
	"createConnector": {"/connectors", `{"name":"CRM","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`},
	"createLink":      {"/connectors/{connector}/links", `{"agent_name":"hello"}`},
}

// newAuditWorld is a world on a real store, with a connector.
func newAuditWorld(t *testing.T) (w *world, data store.Store, connector string) {
	t.Helper()
	data, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = data.Close() })
	require.NoError(t, data.Migrate(t.Context()))
	w = newWorld(t, data)
	conn := &v1alpha1.Connector{ObjectMeta: w.meta("tickets"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	w.create(t, conn)
	return w, data, conn.Status.ID
}

// newest is the last entry of the audit log.
func (w *world) newest(t *testing.T, data store.Audit) store.AuditEntry {
	t.Helper()
	list, err := data.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.projectID, Limit: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// TestEveryChangeIsAudited goes through the route table: whatever is answered to
// a known key, a call that may change something has its entry.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	w, data, connector := newAuditWorld(t)
	key := w.key(t, nil)
	powerless := w.key(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	own, foreign := "/v1/projects/"+w.projectID.String(), "/v1/projects/"+uuid.NewString()
	environment := "?environment_id=" + w.environmentID("production")
	for _, r := range w.server.routes() {
		if !changes(r.method) {
			continue
		}
		s, ok := samples[r.id]
		require.True(t, ok, "give %s a sample of a call that succeeds", r.id)
		path := strings.ReplaceAll(s.path, "{connector}", connector)
		seen := map[uuid.UUID]bool{}
		for _, c := range []struct {
			name, key, path, body string
			status                int
		}{
			{"success", key, own + path + environment, s.body, 0},
			{"no permission", powerless, own + path + environment, s.body, http.StatusForbidden},
			{"environment out of reach", narrow, own + path + environment, s.body, http.StatusForbidden},
			{"another project", key, foreign + path + environment, s.body, http.StatusForbidden},
			{"unknown ids", key, own + concrete(r), s.body, http.StatusNotFound},
			{"invalid", key, own + path + environment, `{"nonsense":true}`, http.StatusUnprocessableEntity},
		} {
			answer := w.send(t, c.key, r.method, c.path, c.body)
			if c.status == 0 {
				require.Less(t, answer.Code, 300, "%s: %s", r.id, answer.Body)
			} else {
				require.Equal(t, c.status, answer.Code, "%s, %s: %s", r.id, c.name, answer.Body)
			}
			entry := w.newest(t, data)
			require.False(t, seen[entry.ID], "%s, %s has no entry", r.id, c.name)
			seen[entry.ID] = true
			requireEntry(t, entry, r, answer)
			require.Equal(t, c.status == 0, entry.Outcome.Before != nil || entry.Outcome.After != nil, "%s, %s", r.id, c.name)
			requireNoSecret(t, w, entry)
		}
	}
}

// requireEntry holds an entry against the route and the answer.
func requireEntry(t *testing.T, e store.AuditEntry, r route, answer *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, r.id, e.Operation)
	require.Equal(t, r.method, e.Method)
	require.Equal(t, projectPath+r.path, e.Route)
	require.Equal(t, store.AuditAPIKey, e.Actor.Kind)
	require.True(t, strings.HasPrefix(e.Actor.Name, "key-"), e.Actor.Name)
	require.Len(t, e.Actor.KeyID, 8)
	require.Equal(t, "User", e.Actor.OwnerKind)
	require.Equal(t, "anna", e.Actor.OwnerName)
	require.Equal(t, "192.0.2.1", e.RemoteAddr, "httptest's")
	require.Equal(t, answer.Header().Get("X-Request-Id"), e.RequestID)
	require.NotEmpty(t, e.Object.Kind)
	require.NotEmpty(t, e.Object.ID)
	require.NotNil(t, e.Outcome)
	require.Equal(t, answer.Code, e.Outcome.Status)
	if answer.Code < http.StatusBadRequest {
		require.Empty(t, e.Outcome.Code)
		require.NotEmpty(t, e.Outcome.Object.Kind)
		require.NotEmpty(t, e.Outcome.Object.ID)
		return
	}
	require.Equal(t, decode[Problem](t, answer.Body.Bytes()).Code, e.Outcome.Code)
}

// requireNoSecret looks for the secrets that the platform itself generates.
func requireNoSecret(t *testing.T, w *world, e store.AuditEntry) {
	t.Helper()
	id, err := uuid.Parse(e.Outcome.Object.ID)
	if err != nil {
		return
	}
	of := seal.Generated{ProjectID: w.projectID, ConnectorID: id, Version: 1}
	key, err := w.db.DerivationKey(t.Context(), store.Key{ProjectID: of.ProjectID, ID: of.ConnectorID}, of.Version)
	require.NoError(t, err)
	for _, derive := range []func(string, seal.Generated) (string, error){w.platform.Secret, w.platform.SigningSecret} {
		secret, err := derive(key, of)
		require.NoError(t, err)
		require.NotContains(t, string(e.Outcome.Before)+string(e.Outcome.After), secret)
	}
}

func TestSecretsThatAreAnsweredAreNotAudited(t *testing.T) {
	t.Parallel()
	w, data, _ := newAuditWorld(t)
	status, body := w.call(t, w.key(t, nil), http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"Tickets","type":"webhook","mode":"inbound"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	made := decode[Connector](t, body)
	after := string(w.newest(t, data).Outcome.After)
	require.NotContains(t, after, *made.Secret)
	require.NotContains(t, after, *made.WebhookURL)
	require.Contains(t, after, `"name":"Tickets"`)
	require.Contains(t, after, `"secret":"********"`)
}

func TestPathsThatAreNoEndpointAreAudited(t *testing.T) {
	t.Parallel()
	w, data, _ := newAuditWorld(t)
	status, _ := w.call(t, w.key(t, nil), http.MethodDelete, "/secrets/x", "")
	require.Equal(t, http.StatusForbidden, status)
	entry := w.newest(t, data)
	require.Equal(t, "/v1/projects/"+w.projectID.String()+"/secrets/x", entry.Route)
	require.Equal(t, http.StatusForbidden, entry.Outcome.Status)
	for _, r := range w.server.routes() {
		if changes(r.method) {
			continue
		}
		w.call(t, w.key(t, nil), r.method, concrete(r), "")
		require.Equal(t, entry.ID, w.newest(t, data).ID, "%s only reads", r.id)
	}
}

func TestTheAuditLogIsListedPageByPage(t *testing.T) {
	t.Parallel()
	w, _, connector := newAuditWorld(t)
	key := w.key(t, nil)
	links := "/connectors/" + connector + "/links"
	for _, body := range []string{`{"agent_name":"one"}`, `{"agent_name":"two"}`, `{"nonsense":true}`} {
		w.call(t, key, http.MethodPost, links, body)
	}
	status, body := w.call(t, key, http.MethodGet, "/audit-log?limit=2", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	page := decode[AuditLog](t, body)
	require.Len(t, page.Items, 2)
	refused, made := page.Items[0], page.Items[1]
	require.Equal(t, http.StatusUnprocessableEntity, *refused.Status)
	require.Equal(t, "unprocessable_entity", *refused.Code)
	require.Equal(t, AuditObject{Kind: opt("connector"), ID: &connector}, refused.Object)
	require.Nil(t, refused.After)
	require.Equal(t, http.StatusCreated, *made.Status)
	require.Equal(t, "link", *made.Object.Kind)
	require.Equal(t, "two", made.After.(map[string]any)["agent_name"])
	_, body = w.call(t, key, http.MethodGet, "/audit-log?limit=2&cursor="+*page.NextCursor, "")
	page = decode[AuditLog](t, body)
	require.Len(t, page.Items, 1)
	require.Equal(t, "one", *page.Items[0].Object.Name)
	require.Nil(t, page.NextCursor)

	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, _ = w.call(t, narrow, http.MethodGet, "/audit-log", "")
	require.Equal(t, http.StatusForbidden, status)
}

// brokenAudit is a store whose audit log cannot be written, or not to its end.
type brokenAudit struct {
	store.Store
	intents, outcomes error
}

func (b brokenAudit) RecordAudit(ctx context.Context, e store.AuditEntry) (uuid.UUID, error) {
	if b.intents != nil {
		return uuid.Nil, b.intents
	}
	return b.Store.RecordAudit(ctx, e)
}

func (b brokenAudit) RecordAuditOutcome(ctx context.Context, project, id uuid.UUID, o store.AuditOutcome) error {
	if b.outcomes != nil {
		return b.outcomes
	}
	return b.Store.RecordAuditOutcome(ctx, project, id, o)
}

func TestNothingIsDoneThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	w, data, _ := newAuditWorld(t)
	path := "/v1/projects/" + w.projectID.String() + "/connectors?environment_id=" + w.environmentID("production")
	body, key := `{"name":"New","type":"webhook","mode":"inbound"}`, w.key(t, nil)
	w.server.store = identified{brokenAudit{Store: data, intents: errors.New("away")}, w.db}
	answer := w.send(t, key, http.MethodPost, path, body)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, retryAfter, answer.Header().Get("Retry-After"))
	named := func() int {
		list := decode[[]Connector](t, w.send(t, key, http.MethodGet, path, "").Body.Bytes())
		return len(slices.DeleteFunc(list, func(c Connector) bool { return c.Name != "New" }))
	}
	require.Zero(t, named())

	w.server.store = identified{brokenAudit{Store: data, outcomes: errors.New("away")}, w.db}
	require.Equal(t, http.StatusCreated, w.send(t, key, http.MethodPost, path, body).Code, "what was done is said")
	require.Equal(t, 1, named())
	require.Nil(t, w.newest(t, data).Outcome, "and the entry shows that its outcome is not known")
}

func TestAnonymousRefusalsAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, emptyStore{})
	var out bytes.Buffer
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.server.refusals = httpserver.NewRefusals("refused", slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return clock })
	for range 3 {
		for _, r := range w.server.routes() {
			require.Equal(t, http.StatusUnauthorized, w.send(t, "", r.method, "/v1/projects/"+w.projectID.String()+concrete(r), "").Code)
		}
		require.Equal(t, http.StatusUnauthorized, w.send(t, "ap_nonsense", http.MethodGet, "/v1/projects/x/y", "").Code)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "address=192.0.2.1 count=1")
	clock = clock.Add(time.Minute)
	w.send(t, "", http.MethodGet, "/v1/projects/x/y", "")
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "ap_")
}
