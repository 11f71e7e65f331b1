// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

func TestGetRun_ShowsRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	status, body := w.Call(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	run := apiservertest.Decode[runs.Run](t, body)
	require.Equal(t, runs.RunStatus("completed"), run.Status)
	require.Equal(t, "Hello, Ada", *run.Output)
	require.Equal(t, map[string]any{"name": "Ada"}, run.Input)
	require.Equal(t, costs.TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, run.TokenUsage)
	require.Equal(t, "hello", run.AgentName)
	require.Equal(t, "b", *run.TestName)
	require.Equal(t, w.IDs["deployment"], *run.DeploymentID)
	require.Equal(t, w.IDs["connector"], *run.ConnectorID)
	require.Equal(t, w.IDs["event"], *run.ConnectorRunID)
	require.NotNil(t, run.DurationMS)
	require.Regexp(t, `"queued_at":"[^"]*Z"`, string(body))
	require.Len(t, apiservertest.Decode[map[string]any](t, body), 31, "all fields, null or not")

	_, body = w.Call(t, key, http.MethodGet, "/runs/"+w.FailedRun.String(), "")
	failed := apiservertest.Decode[runs.Run](t, body)
	require.Equal(t, "agent_not_found", *failed.ErrorCode)
	require.NotNil(t, failed.Error)
	_, body = w.Call(t, key, http.MethodGet, "/runs/"+w.QueuedRun.String(), "")
	queued := apiservertest.Decode[runs.Run](t, body)
	require.Equal(t, runs.RunStatus("queued"), queued.Status)
	require.Nil(t, queued.Output)
	require.Nil(t, queued.TestName)
	require.Nil(t, queued.DurationMS)
}

// Each filter narrows the list, alone and together.
func TestListRuns_AppliesEachFilter(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	completed, failed, queued := w.CompletedRun.String(), w.FailedRun.String(), w.QueuedRun.String()
	for query, want := range map[string][]string{
		"":                        {queued, failed, completed},
		"agent_name=hello":        {queued, completed},
		"agent_name=nobody":       nil,
		"status_filter=completed": {completed},
		"status_filter=failed":    {failed},
		"status_filter=queued":    {queued},
		"status_filter=cancelled": nil,
		"status_filter=failed&status_filter=queued":                                   {queued, failed},
		"status_filter=failed&status_filter=failed":                                   {failed},
		"status_filter=completed&status_filter=failed&status_filter=running":          {failed, completed},
		"status_filter=queued&status_filter=running&status_filter=cancelled":          {queued},
		"status_filter=completed&status_filter=queued&limit=1":                        {queued},
		"search=status==%22failed%22&status_filter=completed&status_filter=failed":    {failed},
		"search=status==%22failed%22&status_filter=completed&status_filter=cancelled": nil,
		"agent_name=gone&limit=1":                                                     {failed},
		"test_name=b":                                                                 {completed},
		"test_name=__base__":                                                          {queued, failed},
		"test_name=short":                                                             nil,
		"limit=2":                                                                     {queued, failed},
		"environment_id={here}":                                                       {queued, failed, completed},
		"environment_id={staging}":                                                    nil,
		"environment_id={here}&agent_name=hello&status_filter=queued":                 {queued},
	} {
		t.Run(query, func(t *testing.T) {
			path := "/runs?" + apiservertest.FillPath(t, query, map[string]string{"here": w.IDs["environment"], "staging": w.EnvironmentID("staging")})
			status, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Equal(t, want, apiservertest.RunIDs(t, body))
		})
	}
}

// New runs do not shift the pages.
func TestListRuns_PagesAreStable(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	_, body := w.Call(t, key, http.MethodGet, "/runs?limit=1", "")
	page := apiservertest.Decode[runs.RunList](t, body)
	require.Equal(t, []string{w.QueuedRun.String()}, apiservertest.RunIDs(t, body))
	w.AcceptEvent(t, "hello") // newer than all
	var seen []string
	for page.NextCursor != nil {
		_, body = w.Call(t, key, http.MethodGet, "/runs?limit=1&cursor="+url.QueryEscape(*page.NextCursor), "")
		seen, page = append(seen, apiservertest.RunIDs(t, body)...), apiservertest.Decode[runs.RunList](t, body)
	}
	require.Equal(t, []string{w.FailedRun.String(), w.CompletedRun.String()}, seen)
	_, body = w.Call(t, key, http.MethodGet, "/runs?limit=4", "")
	require.Nil(t, apiservertest.Decode[runs.RunList](t, body).NextCursor, "a page that holds all is the last")

	audit := *rest.NewCursor(rest.AuditCursor, uuid.New())
	for _, garbage := range []string{"x", "0", uuid.NewString(), audit, *nextCursor(t, w, key) + "A"} {
		for _, list := range []string{"/runs", "/audit-log"} {
			if list == "/audit-log" && garbage == audit {
				continue
			}
			status, body := w.Call(t, key, http.MethodGet, list+"?cursor="+garbage, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s %s: %s", list, garbage, body)
			require.Equal(t, "query.cursor", apiservertest.Decode[rest.Problem](t, body).Errors[0].Location)
		}
	}
}

// shortPage is a store whose list has looked at enough before the page is full.
type shortPage struct {
	apiserver.Store
	next uuid.UUID
}

func (s shortPage) ListRuns(context.Context, store.RunQuery) ([]store.Run, *uuid.UUID, error) {
	return nil, &s.next, nil
}

func TestListRuns_ShortPageHasCursor(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	next := uuid.New()
	w.UseStore(shortPage{w.Store, next})
	_, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/runs?status_filter=failed", "")
	page := apiservertest.Decode[runs.RunList](t, body)
	require.Empty(t, page.Items)
	require.Equal(t, rest.NewCursor(rest.RunCursor, next), page.NextCursor)
}

// nextCursor returns a cursor of the list of runs.
func nextCursor(t testing.TB, w *apiservertest.ProjectWithHistory, key string) *string {
	t.Helper()
	_, body := w.Call(t, key, http.MethodGet, "/runs?limit=1", "")
	return apiservertest.Decode[runs.RunList](t, body).NextCursor
}

func TestListRuns_LimitsPageSize(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, path := range []string{"/runs", "/audit-log", "/connectors/" + w.IDs["connector"] + "/runs"} {
		t.Run(path, func(t *testing.T) {
			for limit, want := range map[int]int{0: 422, 1: 200, 100: 200, 101: 422, -1: 422} {
				t.Run(fmt.Sprint(limit), func(t *testing.T) {
					status, body := w.Call(t, key, http.MethodGet, path+"?limit="+strconv.Itoa(limit), "")
					require.Equal(t, want, status, "%s %d: %s", path, limit, body)
				})
			}
		})
	}
}

// Each filter narrows the list, alone and together.
func TestListConnectorRuns_AppliesEachFilter(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/runs"
	for query, want := range map[string]struct{ items, total int }{
		"":                        {3, 3},
		"status_filter=completed": {1, 1},
		"status_filter=failed":    {1, 1},
		"status_filter=running":   {1, 1},
		"status_filter=pending":   {0, 0},
		"status_filter=completed&status_filter=running":                                {2, 2},
		"status_filter=completed&status_filter=failed&status_filter=skipped&limit=1":   {1, 2},
		"status_filter=completed&status_filter=running&run_id=" + w.QueuedRun.String(): {1, 1},
		"trigger_type=webhook":           {3, 3},
		"trigger_type=cron":              {0, 0},
		"time_range=1h":                  {3, 3},
		"limit=2":                        {2, 3},
		"limit=2&offset=2":               {1, 3},
		"offset=3":                       {0, 3},
		"limit=1&status_filter=failed":   {1, 1},
		"run_id=" + w.QueuedRun.String(): {1, 1},
		"status_filter=failed&run_id=" + w.QueuedRun.String(): {0, 0},
	} {
		t.Run(query, func(t *testing.T) {
			status, body := w.Call(t, key, http.MethodGet, path+"?"+query, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			page := apiservertest.Decode[runs.ConnectorRunList](t, body)
			require.Len(t, page.Items, want.items)
			require.EqualValues(t, want.total, page.Total)
		})
	}
	status, body := w.Call(t, key, http.MethodGet, path+"?run_id="+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status, string(body))
	_, body = w.Call(t, key, http.MethodGet, path, "")
	page := apiservertest.Decode[runs.ConnectorRunList](t, body)
	require.Equal(t, 25, page.Limit)
	require.Equal(t, []string{w.QueuedRun.String()}, page.Items[0].RunIDs, "newest first")
	require.Equal(t, 1, page.Items[0].DispatchedTo)
	for _, bad := range []string{"time_range=2h", "status_filter=queued", "trigger_type=fax", "offset=-1", "run_id=1"} {
		status, body := w.Call(t, key, http.MethodGet, path+"?"+bad, "")
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", bad, body)
	}
}

// The window ends now.
func TestListConnectorRuns_AppliesWindow(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/runs"
	total := func(query string) int64 {
		_, body := w.Call(t, key, http.MethodGet, path+query, "")
		return apiservertest.Decode[runs.ConnectorRunList](t, body).Total
	}
	require.EqualValues(t, 3, total(""))
	event := w.IDs["event"]
	for window, most := range map[runs.TimeRange]time.Duration{
		"1h": time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
	} {
		t.Run(string(window), func(t *testing.T) {
			event = moveEventBack(t, w.Project, event, most-time.Minute)
			require.EqualValues(t, 3, total("?time_range="+string(window)), "just inside")
			event = moveEventBack(t, w.Project, event, most+time.Minute)
			require.EqualValues(t, 2, total("?time_range="+string(window)), "just outside")
		})
	}
	moveEventBack(t, w.Project, event, 8*24*time.Hour)
	require.EqualValues(t, 2, total(""), "without a window it is of seven days")
}

// moveEventBack lets an event that is over have come so long ago; its time is in its id,
// which is another one then.
func moveEventBack(t testing.TB, w *apiservertest.Project, event string, ago time.Duration) (moved string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.StorePath+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	moved = store.Stamp(uuid.New(), time.Now().Add(-ago).UnixMicro(), 0).String()
	result, err := db.ExecContext(t.Context(), `UPDATE ended_connector_runs SET id = $1 WHERE id = $2`, moved, event)
	require.NoError(t, err)
	rows, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, rows)
	return moved
}

func TestGetConnectorRun_ShowsOutcome(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors/"+w.IDs["connector"]+"/runs/"
	_, body := w.Call(t, key, http.MethodGet, path+w.IDs["event"], "")
	run := apiservertest.Decode[runs.ConnectorRun](t, body)
	require.Equal(t, "Hello, Ada", *run.Output)
	require.Equal(t, runs.ConnectorRunStatus("completed"), run.Status)
	require.Equal(t, runs.TriggerType("webhook"), run.TriggerType)
	of, err := w.Store.ConnectorRun(t.Context(), store.Key{ProjectID: w.ProjectID, ID: uuid.MustParse(w.IDs["event"])})
	require.NoError(t, err)
	require.True(t, of.StartedAt.Equal(run.StartedAt))
	require.True(t, of.EndedAt.Equal(*run.EndedAt))
	require.Equal(t, of.EndedAt.Sub(of.StartedAt).Milliseconds(), *run.DurationMS)
	queued, err := w.Store.Run(t.Context(), store.Key{ProjectID: w.ProjectID, ID: w.QueuedRun})
	require.NoError(t, err)
	_, body = w.Call(t, key, http.MethodGet, path+queued.ConnectorRunID.String(), "")
	open := apiservertest.Decode[runs.ConnectorRun](t, body)
	require.False(t, open.StartedAt.IsZero())
	require.Nil(t, open.EndedAt)
	require.Nil(t, open.DurationMS)

	ids := w.NewObjects(t)
	status, _ := w.Call(t, key, http.MethodGet, "/connectors/"+ids["connector"]+"/runs/"+w.IDs["event"], "")
	require.Equal(t, http.StatusNotFound, status, "it is of another connector")
	_, body = w.Call(t, key, http.MethodGet, "/connectors/"+ids["connector"]+"/runs", "")
	require.Zero(t, apiservertest.Decode[runs.ConnectorRunList](t, body).Total)
}

func TestHistory_HidesOtherProjectsAndEnvironments(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	staging := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	for _, path := range []string{"/runs/" + w.CompletedRun.String(), "/deployments/" + w.IDs["deployment"]} {
		status, _ := w.Call(t, staging, http.MethodGet, path, "")
		require.Equal(t, http.StatusForbidden, status, path)
	}
	_, body := w.Call(t, staging, http.MethodGet, "/runs", "")
	require.Empty(t, apiservertest.RunIDs(t, body), "lists leave it out")
	none := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.EnvironmentAccess = v1alpha1.AccessSelected })
	_, body = w.Call(t, none, http.MethodGet, "/runs", "")
	require.Empty(t, apiservertest.RunIDs(t, body))
	for _, path := range []string{"/runs/" + uuid.NewString(), "/deployments/" + uuid.NewString()} {
		status, _ := w.Call(t, staging, http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
}

// An ended run and its list item have the context that scripts set. Searches find the run by it until the run is erased.
func TestRunContext_IsShownAndSearched(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	id := lease.Run.ID.String()
	const set = `{"customer":"Beta AG","order":9007199254740993}`
	require.Empty(t, getRun(t, w, key, id).Context)
	ends, err := w.Store.Complete(t.Context(), []store.Completion{{Lease: lease, Status: store.RunCompleted, Context: json.RawMessage(set)}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	require.Equal(t, set, string(getRun(t, w, key, id).Context))

	find := func(text string) []runs.Run {
		status, body := w.Call(t, key, http.MethodGet, "/runs?"+url.Values{"search": {text}}.Encode(), "")
		require.Equal(t, http.StatusOK, status, string(body))
		return apiservertest.Decode[runs.RunList](t, body).Items
	}
	searches := []string{`context.customer == "Beta AG" && context.order == 9007199254740993`, `"beta ag" 9007199254740993`}
	for range 2 {
		for _, text := range searches {
			found := find(text)
			require.Len(t, found, 1, text)
			require.Equal(t, id, found[0].ID)
			require.Equal(t, set, string(found[0].Context))
		}
		require.Empty(t, find(`context.customer == "Acme"`))
		indexRuns(t, w)
	}

	status, body := w.Call(t, key, http.MethodDelete, "/runs/"+id, "")
	require.Equal(t, http.StatusOK, status, string(body))
	for _, text := range searches {
		require.Empty(t, find(text), text)
	}
}

// The headers of the event join what scripts set. A script cannot replace them.
func TestRunContext_HasHeaders(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	ends, err := w.Store.Complete(t.Context(), []store.Completion{{
		Lease: lease, Status: store.RunCompleted, Context: json.RawMessage(`{"headers":{"x-team":"other"},"order":9007199254740993}`),
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	w.UseStore(inputs{Store: w.Store, headers: map[string]string{"x-team": "payments"}, body: strings.NewReader("text")})
	require.Equal(t, rest.Object(`{"headers":{"x-team":"payments"},"order":9007199254740993}`), getRun(t, w, key, lease.Run.ID.String()).Context)
}
