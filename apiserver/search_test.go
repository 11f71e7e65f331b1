// SPDX-License-Identifier: Apache-2.0

package apiserver

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

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

// index indexes what has ended, as a gateway does.
func (p *past) index(t *testing.T) {
	t.Helper()
	_, err := p.db.IndexRuns(t.Context(), 100, func(run store.Searched) []string { return searched(run).Words() })
	require.NoError(t, err)
}

// TestRunsAreSearched: by words and by conditions, from their acceptance on; and numbers are of
// what a list finds.
func TestRunsAreSearched(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for range 2 {
		for text, want := range map[string][]uuid.UUID{
			`ada`:                             {w.queued, w.failed, w.completed},
			`Hello, ada`:                      {w.completed},
			`"hello ada"`:                     {w.completed},
			`"ada hello"`:                     nil,
			`agent_not_found`:                 {w.failed},
			`bob`:                             nil,
			`input.name == "Ada"`:             {w.queued, w.failed, w.completed},
			`status == "failed"`:              {w.failed},
			`error == "agent_not_found"`:      nil, // it has a text of its own
			`error_code == "agent_not_found"`: {w.failed},
			`test_name == "b" && output.startsWith("Hello")`:                                            {w.completed},
			`test_name == "" && attempt == 0`:                                                           {w.queued, w.failed},
			`deployment_id == "` + w.ids["deployment"] + `"`:                                            {w.completed},
			`connector_id == "` + w.ids["connector"] + `" && agent_name == "hello" && duration_ms >= 0`: {w.queued, w.completed},
			`input.amount > 3`: nil,
		} {
			t.Run(text, func(t *testing.T) {
				query := url.Values{"search": {text}}.Encode()
				status, body := w.call(t, key, http.MethodGet, "/runs?"+query, "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				page := decode[RunList](t, body)
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
				status, body = w.call(t, key, http.MethodGet, sample{path: "/agents/hello?environment_id={environment}&" + query}.fill(t, w.ids), "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				require.Equal(t, counted, decode[AgentDetails](t, body).Stats.Total)
			})
		}
		w.index(t)
	}
}

// TestRunsAreListedByTheirFields: each alone, with a search and without.
func TestRunsAreListedByTheirFields(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
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
				status, body := w.call(t, key, http.MethodGet, sample{path: "/runs?" + query + more}.fill(t, w.ids), "")
				require.Equal(t, http.StatusOK, status, "%s", body)
				require.Len(t, decode[RunList](t, body).Items, want, query+more)
			}
		})
	}
}

// TestRunsOfWhatIsNotThere: they are told from what has none.
func TestRunsOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, name := range []string{"deployment_id", "connector_id", "connector_run_id"} {
		status, body := w.call(t, key, http.MethodGet, "/runs?"+name+"="+uuid.NewString(), "")
		require.Equal(t, http.StatusNotFound, status, "%s: %s", name, body)
	}
	for _, query := range []string{"deployment_id={deployment}", "connector_id={connector}", "connector_run_id={event}"} {
		status, body := w.call(t, key, http.MethodGet, sample{path: "/runs?agent_name=nobody&" + query}.fill(t, w.ids), "")
		require.Equal(t, http.StatusOK, status, "%s: %s", query, body)
	}
}

// TestALastPageNeedNotKnowWhatItIsOf: it may be empty, and what it is of have gone meanwhile.
func TestALastPageNeedNotKnowWhatItIsOf(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	query := "/runs?connector_id=" + uuid.NewString()
	status, body := w.call(t, w.key(t, nil), http.MethodGet, query+"&cursor="+url.QueryEscape(*cursorAfter(runCursor, uuid.New())), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Empty(t, decode[RunList](t, body).Items)
}

// TestTheIDOfNothingNarrowsNothing: no call takes it for an id that was not given.
func TestTheIDOfNothingNarrowsNothing(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, asked := w.key(t, nil), 0
	for _, r := range served(t) {
		for _, p := range operationOf(t, w.world, r).Parameters {
			if p.In != "query" || p.Schema.Format != idFormat {
				continue
			}
			asked++
			at, err := url.Parse(concrete(r))
			require.NoError(t, err)
			query := at.Query()
			query.Set(p.Name, uuid.Nil.String())
			at.RawQuery = query.Encode()
			status, body := w.call(t, key, r.method, at.String(), body(r))
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", r.id, body)
			require.Contains(t, string(body), "query."+p.Name, r.id)
		}
	}
	require.Greater(t, asked, 5)
	status, body := w.call(t, key, http.MethodGet, "/runs?end_date=0001-01-01T00:00:00Z", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Empty(t, decode[RunList](t, body).Items)
	status, body = w.call(t, key, http.MethodGet, "/runs?start_date=0001-01-01T00:00:00Z", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NotEmpty(t, decode[RunList](t, body).Items)
}

// TestWhatCannotBeSearchedBy: it is told where, and not echoed.
func TestWhatCannotBeSearchedBy(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
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
			status, body := w.call(t, key, http.MethodGet, "/runs?"+query, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", query, body)
			require.NotContains(t, string(body), "CANARY")
			problem := decode[Problem](t, body)
			require.Len(t, problem.Errors, 1, query)
			require.Equal(t, field, problem.Errors[0].Location)
		})
	}
}

// Reading an agent needs one permission, whatever narrows its numbers.
func TestGetAgent_SearchNeedsNoOtherPermission(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"agents.view"}
	})
	path := sample{path: "/agents/hello?environment_id={environment}&search=ada"}.fill(t, w.ids)
	status, body := w.call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, key, http.MethodGet, "/runs?search=ada", "")
	require.Equal(t, http.StatusForbidden, status, "%s", body)
}

// lateStore lets time pass while its runs are searched.
type lateStore struct {
	Store
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

// TestASearchEndsInTime: a list answers what it has, and where it goes on; numbers are not told.
func TestASearchEndsInTime(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	now := time.Now()
	w.server.now = func() time.Time { return now }
	w.server.store = lateStore{w.db, func() { now = now.Add(searchTime / 2) }}
	var got []string
	cursor, pages := "", 0
	for ; ; pages++ {
		status, body := w.call(t, key, http.MethodGet, "/runs?search=ada"+cursor, "")
		require.Equal(t, http.StatusOK, status, "%s", body)
		page := decode[RunList](t, body)
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
	require.Equal(t, []string{w.queued.String(), w.failed.String(), w.completed.String()}, got)

	status, body := w.call(t, key, http.MethodGet, sample{path: "/agents/hello?environment_id={environment}&search=ada"}.fill(t, w.ids), "")
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", body)
	problem := decode[Problem](t, body)
	require.Equal(t, httpserver.CodeSearchTooBroad, problem.Code)
	require.Contains(t, problem.Detail, "choose a shorter window")
}

// A search's time begins when its request arrives: it waits for a turn no longer than that.
func TestSearch_CountsItsTimeFromTheRequest(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	w.server.readings = newReadings(1, time.Minute)
	turn, err := w.server.readings.Wait(t.Context(), w.projectID, 1)
	require.NoError(t, err)
	defer turn.End()
	var passed atomic.Int64
	begin := time.Now()
	w.server.now = func() time.Time { return begin.Add(time.Duration(passed.Add(1)) * searchTime) }
	for _, path := range []string{"/runs?search=ada", sample{path: "/agents/hello?environment_id={environment}&search=ada"}.fill(t, w.ids)} {
		requireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, w.world, key, http.MethodGet, path, "")
	}
}

// TestSearchesHavePlaces: a project has some of them, and all others together no more than there are; who
// finds none is told when to try again, what is no search needs none, and each is given back.
func TestSearchesHavePlaces(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	agent := sample{path: "/agents/hello?environment_id={environment}"}.fill(t, w.ids)
	for _, path := range []string{"/runs?search=ada", "/runs?search=!", agent + "&search=ada", "/runs?search=ada&cursor=x", agent + "&search=ada&deployment_id=" + uuid.NewString()} {
		w.ask(t, key, http.MethodGet, path, "")
		require.Zero(t, w.server.searches.Taken(), path)
	}
	refused := func(status int) {
		for _, path := range []string{"/runs?search=ada", agent + "&search=ada"} {
			answer := w.ask(t, key, http.MethodGet, path, "")
			require.Equal(t, status, answer.Code, "%s: %s", path, answer.Body)
			require.Equal(t, "2", answer.Header().Get("Retry-After"))
		}
	}
	for range maxSearches / searchShare {
		require.NoError(t, w.server.searches.Take(w.projectID, 1))
	}
	refused(http.StatusTooManyRequests)
	for _, path := range []string{"/runs", agent} {
		require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodGet, path, "").Code)
	}
	for range maxSearches / searchShare {
		w.server.searches.Give(w.projectID, 1)
	}
	for w.server.searches.Taken() < maxSearches {
		require.NoError(t, w.server.searches.Take(uuid.New(), 1))
	}
	refused(http.StatusServiceUnavailable)
}
