// SPDX-License-Identifier: Apache-2.0

package auditlog_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/auditlog"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// The entry shows the object before its deletion, without secrets.
func TestAuditLog_KeepsDeletedObject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, ids := w.CreateKey(t, nil), w.NewObjects(t)
	_, body := w.Call(t, key, http.MethodGet, "/connectors/"+ids["connector"], "")
	before := apiservertest.Decode[connectors.Connector](t, body)
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, "/connectors/"+ids["connector"]+"/links/"+ids["link"], "").Code)
	entry := w.NewestAuditEntry(t)
	require.Equal(t, store.AuditObject{Kind: "link", ID: ids["link"], Name: "hello"}, entry.Outcome.Object)
	require.Equal(t, "hello", apiservertest.Decode[connectors.Link](t, entry.Outcome.Before).AgentName)
	require.Nil(t, entry.Outcome.After)

	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, "/connectors/"+ids["connector"], "").Code)
	entry = w.NewestAuditEntry(t)
	require.Equal(t, store.AuditObject{Kind: "connector", ID: ids["connector"], Name: before.Name}, entry.Outcome.Object)
	require.Equal(t, rest.Masked, *apiservertest.Decode[connectors.Connector](t, entry.Outcome.Before).Secret)
	require.NotContains(t, string(entry.Outcome.Before), *before.Secret)
}

// Each call has an entry, also a repeated call.
func TestAuditLog_RecordsRepeatedCalls(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	before := w.CountAuditEntries(t)
	for range 3 {
		answer := w.Request(t, key, http.MethodPost, "/connectors/"+w.IDs["connector"]+"/links", `{"agent_name":"other"}`, "Idempotency-Key", "k")
		require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	}
	require.Equal(t, before+3, w.CountAuditEntries(t))
}

// Callers cannot choose the ID.
func TestRequestID_IsUniqueAndNotChosenByCallers(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, seen := w.CreateKey(t, nil), map[string]bool{}
	for range 3 {
		answer := w.Request(t, key, http.MethodGet, "/environments", "", "X-Request-Id", "chosen")
		id := answer.Header().Get("X-Request-Id")
		require.NoError(t, uuid.Validate(id))
		require.False(t, seen[id])
		seen[id] = true
	}
}

// Pages of any size contain each entry once.
func TestAuditLog_PagesContainEachEntryOnce(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for range 7 {
		w.Call(t, key, http.MethodPost, "/connectors/"+w.IDs["connector"]+"/links", `{"nonsense":true}`)
	}
	for limit, pages := range map[string]int{"1": 7, "2": 4, "3": 3, "7": 1, "100": 1} {
		t.Run(limit, func(t *testing.T) {
			seen, cursor := map[string]bool{}, ""
			for n := 1; ; n++ {
				_, body := w.Call(t, key, http.MethodGet, "/audit-log?limit="+limit+cursor, "")
				page := apiservertest.Decode[auditlog.AuditLog](t, body)
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

// No page contains an entry of another project.
func TestAuditLog_HidesOtherProjects(t *testing.T) {
	t.Parallel()
	w, other := apiservertest.NewProjectWithHistory(t), apiservertest.NewProjectWithHistory(t)
	w.Call(t, w.CreateKey(t, nil), http.MethodPost, "/connectors/"+w.IDs["connector"]+"/links", `{"agent_name":"secretive"}`)
	_, body := other.Call(t, other.CreateKey(t, nil), http.MethodGet, "/audit-log", "")
	require.Empty(t, apiservertest.Decode[auditlog.AuditLog](t, body).Items)
	lacking := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.view"}
	})
	status, _ := w.Call(t, lacking, http.MethodGet, "/audit-log", "")
	require.Equal(t, http.StatusForbidden, status)
}

func TestAuditLog_ListsPages(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	connector := w.IDs["connector"]
	links := "/connectors/" + connector + "/links"
	for _, body := range []string{`{"agent_name":"one"}`, `{"agent_name":"two"}`, `{"nonsense":true}`} {
		w.Call(t, key, http.MethodPost, links, body)
	}
	status, body := w.Call(t, key, http.MethodGet, "/audit-log?limit=2", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	page := apiservertest.Decode[auditlog.AuditLog](t, body)
	require.Len(t, page.Items, 2)
	refused, made := page.Items[0], page.Items[1]
	require.Equal(t, http.StatusUnprocessableEntity, *refused.Status)
	require.Equal(t, "invalid_request", *refused.Code)
	require.Equal(t, auditlog.AuditObject{Kind: rest.Optional("connector"), ID: &connector}, refused.Object)
	require.Nil(t, refused.After)
	require.Equal(t, http.StatusCreated, *made.Status)
	require.Equal(t, "link", *made.Object.Kind)
	require.Equal(t, "two", apiservertest.Decode[connectors.Link](t, made.After).AgentName)
	_, body = w.Call(t, key, http.MethodGet, "/audit-log?limit=2&cursor="+*page.NextCursor, "")
	page = apiservertest.Decode[auditlog.AuditLog](t, body)
	require.Len(t, page.Items, 1)
	require.Equal(t, "one", *page.Items[0].Object.Name)
	require.Nil(t, page.NextCursor)

	narrow := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, _ = w.Call(t, narrow, http.MethodGet, "/audit-log", "")
	require.Equal(t, http.StatusForbidden, status)
}
