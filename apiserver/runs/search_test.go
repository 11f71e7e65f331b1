// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/history"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

// indexRuns indexes what has ended, as a gateway does.
func indexRuns(t *testing.T, p *apiservertest.ProjectWithHistory) {
	t.Helper()
	_, err := p.Store.IndexRuns(t.Context(), 100, func(run store.Searched) []string { return history.SearchedRun(run).Words() })
	require.NoError(t, err)
}

// Words and conditions find runs from their acceptance on. Statistics count the same runs.
func TestListRuns_Searches(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for range 2 {
		for text, want := range map[string][]uuid.UUID{
			`ada`:                             {w.QueuedRun, w.FailedRun, w.CompletedRun},
			`Hello, ada`:                      {w.CompletedRun},
			`"hello ada"`:                     {w.CompletedRun},
			`"ada hello"`:                     nil,
			`agent_not_found`:                 {w.FailedRun},
			`bob`:                             nil,
			`input.name == "Ada"`:             {w.QueuedRun, w.FailedRun, w.CompletedRun},
			`status == "failed"`:              {w.FailedRun},
			`error == "agent_not_found"`:      nil, // it has a text of its own
			`error_code == "agent_not_found"`: {w.FailedRun},
			`test_name == "b" && output.startsWith("Hello")`:                                            {w.CompletedRun},
			`test_name == "" && attempt == 0`:                                                           {w.QueuedRun, w.FailedRun},
			`deployment_id == "` + w.IDs["deployment"] + `"`:                                            {w.CompletedRun},
			`connector_id == "` + w.IDs["connector"] + `" && agent_name == "hello" && duration_ms >= 0`: {w.QueuedRun, w.CompletedRun},
			`input.amount > 3`: nil,
		} {
			t.Run(text, func(t *testing.T) {
				query := url.Values{"search": {text}}.Encode()
				status, body := w.Call(t, key, http.MethodGet, "/runs?"+query, "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				page := apiservertest.Decode[runs.RunList](t, body)
				require.Nil(t, page.NextCursor)
				var got []uuid.UUID
				counted := int64(0)
				for _, run := range page.Items {
					got = append(got, uuid.MustParse(run.ID))
					require.Nil(t, run.Output, "lists carry none")
					if run.AgentName == "hello" {
						counted++
					}
				}
				require.Equal(t, want, got)
				status, body = w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&"+query, w.IDs), "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				require.Equal(t, counted, apiservertest.Decode[agents.AgentDetails](t, body).Stats.Total)
			})
		}
		indexRuns(t, w)
	}
}

func TestListRuns_FiltersWithAndWithoutSearch(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	hour := func(by time.Duration) string { return time.Now().UTC().Add(by).Format(time.RFC3339) }
	for query, want := range map[string]int{
		"deployment_id={deployment}": 1, "connector_id={connector}": 3, "connector_run_id={event}": 1,
		"start_date=" + hour(-time.Hour): 3, "start_date=" + hour(time.Hour): 0, "end_date=" + hour(time.Hour): 3, "end_date=" + hour(-time.Hour): 0,
		"start_date=" + hour(-time.Hour) + "&end_date=" + hour(time.Hour): 3,
		"time_range=24h": 3, "time_range=last_month": 0, "time_range=all": 3, "time_range=": 3, "time_range=null": 3,
		"time_range=last_month&start_date=" + hour(-time.Hour): 3, "time_range=24h&start_date=" + hour(time.Hour): 0,
		"time_range=24h&end_date=" + hour(-time.Hour): 0, "time_range=24h&end_date=" + hour(time.Hour): 3,
		"time_range=last_month&end_date=" + hour(time.Hour): 0,
	} {
		t.Run(query, func(t *testing.T) {
			for _, more := range []string{"", "&search=ada"} {
				status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, "/runs?"+query+more, w.IDs), "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				require.Len(t, apiservertest.Decode[runs.RunList](t, body).Items, want, query+more)
			}
		})
	}
}

// A filter can select runs without a value.
func TestListRuns_FiltersByAbsentValue(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, name := range []string{"deployment_id", "connector_id", "connector_run_id"} {
		status, body := w.Call(t, key, http.MethodGet, "/runs?"+name+"="+uuid.NewString(), "")
		require.Equal(t, http.StatusNotFound, status, "%s: %s", name, body)
	}
	for _, query := range []string{"deployment_id={deployment}", "connector_id={connector}", "connector_run_id={event}"} {
		status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, "/runs?agent_name=nobody&"+query, w.IDs), "")
		require.Equal(t, http.StatusOK, status, "%s: %s", query, body)
	}
}

// The object of the filter can be deleted in the meantime.
func TestListRuns_LastPageMayBeEmpty(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	query := "/runs?connector_id=" + uuid.NewString()
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, query+"&cursor="+url.QueryEscape(*rest.NewCursor(rest.RunCursor, uuid.New())), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Empty(t, apiservertest.Decode[runs.RunList](t, body).Items)
}

// No endpoint treats the zero ID as an omitted ID.
func TestID_ZeroIsAValue(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, asked := w.CreateKey(t, nil), 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.In != "query" || p.Schema.Format != "uuid" {
				continue
			}
			asked++
			at, err := url.Parse(apiservertest.RandomPath(r))
			require.NoError(t, err)
			query := at.Query()
			query.Set(p.Name, uuid.Nil.String())
			at.RawQuery = query.Encode()
			status, body := w.Call(t, key, r.Method, at.String(), apiservertest.AcceptedBody(r))
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", r.ID, body)
			require.Contains(t, string(body), "query."+p.Name, r.ID)
		}
	}
	require.Greater(t, asked, 5)
	status, body := w.Call(t, key, http.MethodGet, "/runs?end_date=0001-01-01T00:00:00Z", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Empty(t, apiservertest.Decode[runs.RunList](t, body).Items)
	status, body = w.Call(t, key, http.MethodGet, "/runs?start_date=0001-01-01T00:00:00Z", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NotEmpty(t, apiservertest.Decode[runs.RunList](t, body).Items)
}

// The error has the position and does not repeat the text.
func TestSearch_RejectsInvalidConditions(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for query, field := range map[string]string{
		url.Values{"search": {`output.matches("CANARY(")`}}.Encode():                  "query.search",
		url.Values{"search": {`!?`}}.Encode():                                         "query.search",
		url.Values{"search": {strings.Repeat("CANARY", search.MaxSize/6+1)}}.Encode(): "query.search",
		"search=":           "query.search",
		"search=a&search=b": "query.search",
		"start_date=2026-01-02T00:00:00Z&end_date=2026-01-01T00:00:00Z": "query.end_date",
		"time_range=1h":                 "query.time_range",
		"time_range=24h&time_range=24h": "query.time_range",
	} {
		t.Run(fmt.Sprintf("%.60s", query), func(t *testing.T) {
			status, body := w.Call(t, key, http.MethodGet, "/runs?"+query, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", query, body)
			require.NotContains(t, string(body), "CANARY")
			problem := apiservertest.Decode[rest.Problem](t, body)
			require.Len(t, problem.Errors, 1, query)
			require.Equal(t, field, problem.Errors[0].Location)
		})
	}
}

// lateStore lets time pass while its runs are searched.
type lateStore struct {
	apiserver.Store
	pass func()
}

func (l lateStore) slow(s *store.Search) *store.Search {
	if s == nil {
		return nil
	}
	slow := *s
	slow.Match = func(ctx context.Context, run store.Searched) bool {
		l.pass()
		return s.Match(ctx, run)
	}
	return &slow
}

func (l lateStore) ListRuns(ctx context.Context, q store.RunQuery) ([]store.Run, *uuid.UUID, error) {
	q.Search = l.slow(q.Search)
	return l.Store.ListRuns(ctx, q)
}

func (l lateStore) RunStatistics(ctx context.Context, q store.StatisticsQuery) (store.RunStatistics, error) {
	q.Search = l.slow(q.Search)
	return l.Store.RunStatistics(ctx, q)
}

// A list returns a partial page with a cursor. Statistics return an error.
func TestSearch_EndsAtDeadline(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	now := time.Now()
	w.Server.Service.Now = func() time.Time { return now }
	w.UseStore(lateStore{w.Store, func() { now = now.Add(rest.SearchTime / 2) }})
	var got []string
	cursor, pages := "", 0
	for ; ; pages++ {
		status, body := w.Call(t, key, http.MethodGet, "/runs?search=ada"+cursor, "")
		require.Equal(t, http.StatusOK, status, "%s", body)
		page := apiservertest.Decode[runs.RunList](t, body)
		for _, run := range page.Items {
			got = append(got, run.ID)
		}
		if page.NextCursor == nil {
			break
		}
		require.Len(t, page.Items, 2)
		cursor = "&cursor=" + *page.NextCursor
	}
	require.Equal(t, 1, pages)
	require.Equal(t, []string{w.QueuedRun.String(), w.FailedRun.String(), w.CompletedRun.String()}, got)

	status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&search=ada", w.IDs), "")
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", body)
	problem := apiservertest.Decode[rest.Problem](t, body)
	require.Equal(t, httpserver.CodeSearchTooBroad, problem.Code)
	require.Contains(t, problem.Detail, "choose a shorter window")
}

// A search's time begins when its request arrives: it waits for a turn no longer than that.
func TestSearch_CountsItsTimeFromTheRequest(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	w.Server.Service.HistoryReads = rest.NewHistoryReads(1, time.Minute)
	turn, err := w.Server.Service.HistoryReads.Wait(t.Context(), w.ProjectID, 1)
	require.NoError(t, err)
	defer turn.End()
	var passed atomic.Int64
	begin := time.Now()
	w.Server.Service.Now = func() time.Time { return begin.Add(time.Duration(passed.Add(1)) * rest.SearchTime) }
	for _, path := range []string{"/runs?search=ada", apiservertest.FillPath(t, "/agents/hello?environment_id={environment}&search=ada", w.IDs)} {
		apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, w.Project, key, http.MethodGet, path, "")
	}
}

// Projects and the facade have limits. A search over the limit gets Retry-After, and each search releases its slot.
func TestSearch_LimitsConcurrentSearches(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	agent := apiservertest.FillPath(t, "/agents/hello?environment_id={environment}", w.IDs)
	for _, path := range []string{"/runs?search=ada", "/runs?search=!", agent + "&search=ada", "/runs?search=ada&cursor=x", agent + "&search=ada&deployment_id=" + uuid.NewString()} {
		w.Request(t, key, http.MethodGet, path, "")
		require.Zero(t, w.Server.Searches.Slots.Taken(), path)
	}
	refused := func(status int) {
		for _, path := range []string{"/runs?search=ada", agent + "&search=ada"} {
			answer := w.Request(t, key, http.MethodGet, path, "")
			require.Equal(t, status, answer.Code, "%s: %s", path, answer.Body)
			require.Equal(t, "2", answer.Header().Get("Retry-After"))
		}
	}
	for range history.MaxSearches / history.SearchShare {
		require.NoError(t, w.Server.Searches.Slots.Take(w.ProjectID, 1))
	}
	refused(http.StatusTooManyRequests)
	for _, path := range []string{"/runs", agent} {
		require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodGet, path, "").Code)
	}
	for range history.MaxSearches / history.SearchShare {
		w.Server.Searches.Slots.Give(w.ProjectID, 1)
	}
	for w.Server.Searches.Slots.Taken() < history.MaxSearches {
		require.NoError(t, w.Server.Searches.Slots.Take(uuid.New(), 1))
	}
	refused(http.StatusServiceUnavailable)
}
