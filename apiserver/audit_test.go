// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Each endpoint that can change something records an entry for a known key, whatever the response is.
func TestAudit_RecordsEveryChange(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	powerless := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	narrow := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	own, foreign := "/v1/projects/"+w.ProjectID.String(), "/v1/projects/"+uuid.NewString()
	for _, r := range apiservertest.Endpoints {
		if r.Method == http.MethodGet {
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
				if c.unknown && r.IsSupported() && !apiservertest.Placeholder.MatchString(r.Example.Path) {
					return // it names nothing
				}
				path, content := apiservertest.RandomPath(r), apiservertest.AcceptedBody(r)
				if r.IsSupported() && !c.unknown {
					path, content = apiservertest.FillPath(t, r.Example.Path, idsForExample(t, w, r)), bodyFor(r)
				}
				if c.more != "" && strings.Contains(path, "?") {
					path += "&" + c.more
				} else if c.more != "" {
					path += "?" + c.more
				}
				if !r.IsSupported() && c.status != http.StatusForbidden || !r.IsSupported() && c.key == narrow {
					c.status = http.StatusNotImplemented
				}
				answer := w.Send(t, c.key, r.Method, c.project+path, content)
				if c.status == 0 {
					require.Less(t, answer.Code, 300, "%s: %s", r.ID, answer.Body)
				} else {
					require.Equal(t, c.status, answer.Code, "%s, %s: %s", r.ID, name, answer.Body)
				}
				entry := w.NewestAuditEntry(t)
				require.False(t, seen[entry.ID], "%s, %s has no entry", r.ID, name)
				seen[entry.ID] = true
				requireEntry(t, entry, r, answer)
				require.Equal(t, c.status == 0, entry.Outcome.Before != nil || entry.Outcome.After != nil, "%s, %s", r.ID, name)
				requireNoSecret(t, w.Project, entry)
			})
		}
	}
}

// requireEntry holds an entry against the route and the answer.
func requireEntry(t *testing.T, e store.AuditEntry, r rest.Endpoint, answer *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, r.ID, e.Operation)
	require.Equal(t, r.Method, e.Method)
	require.Equal(t, rest.PathPrefix+r.Path, e.Route)
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
	require.EqualValues(t, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code, e.Outcome.Code)
}

// requireNoSecret looks for the secrets that the platform itself generates.
func requireNoSecret(t *testing.T, w *apiservertest.Project, e store.AuditEntry) {
	t.Helper()
	id, err := uuid.Parse(e.Outcome.Object.ID)
	if err != nil {
		return
	}
	of := secrets.Generated{ProjectID: w.ProjectID, ConnectorID: id, Version: 1}
	key, err := w.Store.DerivationKey(t.Context(), store.Key{ProjectID: of.ProjectID, ID: of.ConnectorID}, of.Version)
	require.NoError(t, err)
	for _, derive := range []func(string, secrets.Generated) (string, error){w.PlatformKeys.Secret, w.PlatformKeys.SigningSecret} {
		secret, err := derive(key, of)
		require.NoError(t, err)
		require.NotContains(t, string(e.Outcome.Before)+string(e.Outcome.After), secret)
	}
}

func TestAudit_LeavesOutSecrets(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"),
		`{"name":"Answered","type":"webhook","mode":"inbound"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	made := apiservertest.Decode[connectors.Connector](t, body)
	after := string(w.NewestAuditEntry(t).Outcome.After)
	require.NotContains(t, after, *made.Secret)
	require.NotContains(t, after, *made.WebhookURL)
	require.Contains(t, after, `"name":"Answered"`)
	require.Contains(t, after, `"secret":"********"`)
}

func TestAudit_RecordsUnknownPaths(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	status, _ := w.Call(t, w.CreateKey(t, nil), http.MethodDelete, "/secrets/x", "")
	require.Equal(t, http.StatusForbidden, status)
	entry := w.NewestAuditEntry(t)
	require.Equal(t, "/v1/projects/"+w.ProjectID.String()+"/secrets/x", entry.Route)
	require.Equal(t, http.StatusForbidden, entry.Outcome.Status)
	for _, r := range apiservertest.Endpoints {
		if r.Method != http.MethodGet {
			continue
		}
		w.Call(t, w.CreateKey(t, nil), r.Method, apiservertest.RandomPath(r), "")
		require.Equal(t, entry.ID, w.NewestAuditEntry(t).ID, "%s only reads", r.ID)
	}
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

func TestAudit_RejectsCallsIfRecordingFails(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	path := "/v1/projects/" + w.ProjectID.String() + "/connectors?environment_id=" + w.EnvironmentID("production")
	body, key := `{"name":"New","type":"webhook","mode":"inbound"}`, w.CreateKey(t, nil)
	w.UseStore(brokenAudit{Store: w.Store, intents: errors.New("away")})
	answer := w.Send(t, key, http.MethodPost, path, body)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "2", answer.Header().Get("Retry-After"))
	named := func() int {
		list := apiservertest.Decode[[]connectors.Connector](t, w.Send(t, key, http.MethodGet, path, "").Body.Bytes())
		return len(slices.DeleteFunc(list, func(c connectors.Connector) bool { return c.Name != "New" }))
	}
	require.Zero(t, named())

	w.UseStore(brokenAudit{Store: w.Store, outcomes: errors.New("away")})
	require.Equal(t, http.StatusCreated, w.Send(t, key, http.MethodPost, path, body).Code, "the response reports the change")
	require.Equal(t, 1, named())
	require.Nil(t, w.NewestAuditEntry(t).Outcome, "and the entry shows that its outcome is not known")
}

func TestAuth_LogsRejectionsOnceAMinute(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	var out bytes.Buffer
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.Server = w.NewReplica(t, func(o *apiserver.Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	w.Server.Service.Now = func() time.Time { return clock }
	for range 3 {
		for _, r := range apiservertest.Endpoints {
			require.Equal(t, http.StatusUnauthorized, w.Send(t, "", r.Method, "/v1/projects/"+w.ProjectID.String()+apiservertest.RandomPath(r), "").Code)
		}
		require.Equal(t, http.StatusUnauthorized, w.Send(t, "ap_nonsense", http.MethodGet, "/v1/projects/x/y", "").Code)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "address=192.0.2.1 count=1")
	clock = clock.Add(time.Minute)
	w.Send(t, "", http.MethodGet, "/v1/projects/x/y", "")
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "ap_")
}

// idsForExample returns IDs with which the example of an endpoint succeeds. Objects that the call changes
// are new.
func idsForExample(t testing.TB, p *apiservertest.ProjectWithHistory, e rest.Endpoint) map[string]string {
	t.Helper()
	if e.Effect == rest.EffectNone {
		return p.IDs
	}
	return p.NewObjects(t)
}

// bodyFor returns the body of an endpoint's example with a name that is free.
func bodyFor(e rest.Endpoint) string {
	return strings.ReplaceAll(apiservertest.ExampleBody(e), "CRM", fmt.Sprintf("CRM %s", uuid.NewString()[:8]))
}
