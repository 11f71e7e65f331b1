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
)

// newest is the last entry of the audit log.
func (w *world) newest(t *testing.T) store.AuditEntry {
	t.Helper()
	list, err := w.db.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.projectID, Limit: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// TestEveryChangeIsAudited goes through the route table: whatever is answered to
// a known key, a call that may change something has its entry.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	powerless := w.key(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	own, foreign := "/v1/projects/"+w.projectID.String(), "/v1/projects/"+uuid.NewString()
	for _, r := range routes {
		if !changes(r.method) {
			continue
		}
		seen := map[uuid.UUID]bool{}
		for name, c := range map[string]struct {
			key, project string
			unknown      bool
			more         string
			status       int
		}{
			"success":                  {key: key, project: own},
			"no permission":            {key: powerless, project: own, status: http.StatusForbidden},
			"environment out of reach": {key: narrow, project: own, status: http.StatusForbidden},
			"another project":          {key: key, project: foreign, status: http.StatusForbidden},
			"unknown ids":              {key: key, project: own, unknown: true, status: http.StatusNotFound},
			"invalid":                  {key: key, project: own, more: "nonsense=1", status: http.StatusUnprocessableEntity},
		} {
			t.Run(name, func(t *testing.T) {
				if c.unknown && r.mount != nil && !placeholder.MatchString(samples[r.id].path) {
					return // it names nothing
				}
				path, content := concrete(r), body(r)
				if r.mount != nil && !c.unknown {
					path, content = samples[r.id].fill(t, w.idsFor(t, r)), bodyFor(r)
				}
				if c.more != "" && strings.Contains(path, "?") {
					path += "&" + c.more
				} else if c.more != "" {
					path += "?" + c.more
				}
				if r.mount == nil && c.status != http.StatusForbidden || r.mount == nil && c.key == narrow {
					c.status = http.StatusNotImplemented
				}
				answer := w.send(t, c.key, r.method, c.project+path, content)
				if c.status == 0 {
					require.Less(t, answer.Code, 300, "%s: %s", r.id, answer.Body)
				} else {
					require.Equal(t, c.status, answer.Code, "%s, %s: %s", r.id, name, answer.Body)
				}
				entry := w.newest(t)
				require.False(t, seen[entry.ID], "%s, %s has no entry", r.id, name)
				seen[entry.ID] = true
				requireEntry(t, entry, r, answer)
				require.Equal(t, c.status == 0, entry.Outcome.Before != nil || entry.Outcome.After != nil, "%s, %s", r.id, name)
				requireNoSecret(t, w.world, entry)
			})
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
	require.NotNil(t, e.Outcome)
	require.Equal(t, answer.Code, e.Outcome.Status)
	if answer.Code < http.StatusBadRequest {
		require.Empty(t, e.Outcome.Code)
		require.NotEmpty(t, e.Outcome.Object.Kind)
		require.NotEmpty(t, e.Outcome.Object.ID)
		return
	}
	require.EqualValues(t, decode[Problem](t, answer.Body.Bytes()).Code, e.Outcome.Code)
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
	w := newPast(t)
	status, body := w.call(t, w.key(t, nil), http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"Answered","type":"webhook","mode":"inbound"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	made := decode[Connector](t, body)
	after := string(w.newest(t).Outcome.After)
	require.NotContains(t, after, *made.Secret)
	require.NotContains(t, after, *made.WebhookURL)
	require.Contains(t, after, `"name":"Answered"`)
	require.Contains(t, after, `"secret":"********"`)
}

func TestPathsThatAreNoEndpointAreAudited(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	status, _ := w.call(t, w.key(t, nil), http.MethodDelete, "/secrets/x", "")
	require.Equal(t, http.StatusForbidden, status)
	entry := w.newest(t)
	require.Equal(t, "/v1/projects/"+w.projectID.String()+"/secrets/x", entry.Route)
	require.Equal(t, http.StatusForbidden, entry.Outcome.Status)
	for _, r := range routes {
		if changes(r.method) {
			continue
		}
		w.call(t, w.key(t, nil), r.method, concrete(r), "")
		require.Equal(t, entry.ID, w.newest(t).ID, "%s only reads", r.id)
	}
}

func TestTheAuditLogIsListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	connector := w.ids["connector"]
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
	require.Equal(t, "invalid_request", *refused.Code)
	require.Equal(t, AuditObject{Kind: opt("connector"), ID: &connector}, refused.Object)
	require.Nil(t, refused.After)
	require.Equal(t, http.StatusCreated, *made.Status)
	require.Equal(t, "link", *made.Object.Kind)
	require.Equal(t, "two", decode[Link](t, made.After).AgentName)
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
	w := newPast(t)
	path := "/v1/projects/" + w.projectID.String() + "/connectors?environment_id=" + w.environmentID("production")
	body, key := `{"name":"New","type":"webhook","mode":"inbound"}`, w.key(t, nil)
	w.server.store = brokenAudit{Store: w.db, intents: errors.New("away")}
	answer := w.send(t, key, http.MethodPost, path, body)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "2", answer.Header().Get("Retry-After"))
	named := func() int {
		list := decode[[]Connector](t, w.send(t, key, http.MethodGet, path, "").Body.Bytes())
		return len(slices.DeleteFunc(list, func(c Connector) bool { return c.Name != "New" }))
	}
	require.Zero(t, named())

	w.server.store = brokenAudit{Store: w.db, outcomes: errors.New("away")}
	require.Equal(t, http.StatusCreated, w.send(t, key, http.MethodPost, path, body).Code, "what was done is said")
	require.Equal(t, 1, named())
	require.Nil(t, w.newest(t).Outcome, "and the entry shows that its outcome is not known")
}

func TestAnonymousRefusalsAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var out bytes.Buffer
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.server.refusals = httpserver.NewRefusals("refused", slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return clock })
	for range 3 {
		for _, r := range routes {
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
