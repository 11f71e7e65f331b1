// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

func TestARunIsShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	status, body := w.call(t, key, http.MethodGet, "/runs/"+w.completed.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	run := decode[Run](t, body)
	require.Equal(t, RunStatus("completed"), run.Status)
	require.Equal(t, "Hello, Ada", *run.Output)
	require.Equal(t, map[string]any{"name": "Ada"}, run.Input)
	require.Equal(t, TokenUsage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, run.TokenUsage)
	require.Equal(t, "hello", run.AgentName)
	require.Equal(t, "b", *run.TestName)
	require.Equal(t, w.ids["deployment"], *run.DeploymentID)
	require.Equal(t, w.ids["connector"], *run.ConnectorID)
	require.Equal(t, w.ids["event"], *run.ConnectorRunID)
	require.NotNil(t, run.DurationMS)
	require.Regexp(t, `"queued_at":"[^"]*Z"`, string(body))
	require.Len(t, decode[map[string]any](t, body), 26, "all fields, null or not")

	_, body = w.call(t, key, http.MethodGet, "/runs/"+w.failed.String(), "")
	failed := decode[Run](t, body)
	require.Equal(t, "agent_not_found", *failed.ErrorCode)
	require.NotNil(t, failed.Error)
	_, body = w.call(t, key, http.MethodGet, "/runs/"+w.queued.String(), "")
	queued := decode[Run](t, body)
	require.Equal(t, RunStatus("queued"), queued.Status)
	require.Nil(t, queued.Output)
	require.Nil(t, queued.TestName)
	require.Nil(t, queued.DurationMS)
}

// idsOfRuns are those of a page, in its order.
func idsOfRuns(t testing.TB, body []byte) (ids []string) {
	t.Helper()
	for _, r := range decode[RunList](t, body).Items {
		require.Nil(t, r.Output, "lists carry no outputs")
		require.Nil(t, r.Input)
		ids = append(ids, r.ID)
	}
	return ids
}

// TestRunsAreNarrowedByEveryFilter: each alone, and together.
func TestRunsAreNarrowedByEveryFilter(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	completed, failed, queued := w.completed.String(), w.failed.String(), w.queued.String()
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
			path := "/runs?" + sample{path: query}.fill(t, map[string]string{"here": w.ids["environment"], "staging": w.environmentID("staging")})
			status, body := w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Equal(t, want, idsOfRuns(t, body))
		})
	}
}

// TestRunsAreReadPageByPage: what comes in meanwhile shifts nothing.
func TestRunsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	_, body := w.call(t, key, http.MethodGet, "/runs?limit=1", "")
	page := decode[RunList](t, body)
	require.Equal(t, []string{w.queued.String()}, idsOfRuns(t, body))
	w.event(t, "hello") // newer than all
	var seen []string
	for page.NextCursor != nil {
		_, body = w.call(t, key, http.MethodGet, "/runs?limit=1&cursor="+url.QueryEscape(*page.NextCursor), "")
		seen, page = append(seen, idsOfRuns(t, body)...), decode[RunList](t, body)
	}
	require.Equal(t, []string{w.failed.String(), w.completed.String()}, seen)
	_, body = w.call(t, key, http.MethodGet, "/runs?limit=4", "")
	require.Nil(t, decode[RunList](t, body).NextCursor, "a page that holds all is the last")

	audit := *cursorAfter(auditCursor, uuid.New())
	for _, garbage := range []string{"x", "0", uuid.NewString(), audit, *page.next(t, w, key) + "A"} {
		for _, list := range []string{"/runs", "/audit-log"} {
			if list == "/audit-log" && garbage == audit {
				continue
			}
			status, body := w.call(t, key, http.MethodGet, list+"?cursor="+garbage, "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s %s: %s", list, garbage, body)
			require.Equal(t, "query.cursor", decode[Problem](t, body).Errors[0].Location)
		}
	}
}

// shortPage is a store whose list has looked at enough before the page is full.
type shortPage struct {
	Store
	next uuid.UUID
}

func (s shortPage) ListRuns(context.Context, store.RunQuery) ([]store.Run, *uuid.UUID, error) {
	return nil, &s.next, nil
}

// TestAShortPageNeedNotBeTheLast: its cursor leads on.
func TestAShortPageNeedNotBeTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := uuid.New()
	w.server.store = shortPage{w.db, next}
	_, body := w.call(t, w.key(t, nil), http.MethodGet, "/runs?status_filter=failed", "")
	page := decode[RunList](t, body)
	require.Empty(t, page.Items)
	require.Equal(t, cursorAfter(runCursor, next), page.NextCursor)
}

// next is a cursor of the list of runs.
func (RunList) next(t testing.TB, w *past, key string) *string {
	t.Helper()
	_, body := w.call(t, key, http.MethodGet, "/runs?limit=1", "")
	return decode[RunList](t, body).NextCursor
}

func TestPagesHaveOneToAHundredItems(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, path := range []string{"/runs", "/audit-log", "/connectors/" + w.ids["connector"] + "/runs"} {
		t.Run(path, func(t *testing.T) {
			for limit, want := range map[int]int{0: 422, 1: 200, 100: 200, 101: 422, -1: 422} {
				t.Run(fmt.Sprint(limit), func(t *testing.T) {
					status, body := w.call(t, key, http.MethodGet, path+"?limit="+strconv.Itoa(limit), "")
					require.Equal(t, want, status, "%s %d: %s", path, limit, body)
				})
			}
		})
	}
}

// TestRunsOfAConnectorAreNarrowedByEveryFilter: each alone, and together.
func TestRunsOfAConnectorAreNarrowedByEveryFilter(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/runs"
	for query, want := range map[string]struct{ items, total int }{
		"":                        {3, 3},
		"status_filter=completed": {1, 1},
		"status_filter=failed":    {1, 1},
		"status_filter=running":   {1, 1},
		"status_filter=pending":   {0, 0},
		"status_filter=completed&status_filter=running":                              {2, 2},
		"status_filter=completed&status_filter=failed&status_filter=skipped&limit=1": {1, 2},
		"status_filter=completed&status_filter=running&run_id=" + w.queued.String():  {1, 1},
		"trigger_type=webhook":         {3, 3},
		"trigger_type=cron":            {0, 0},
		"time_range=1h":                {3, 3},
		"limit=2":                      {2, 3},
		"limit=2&offset=2":             {1, 3},
		"offset=3":                     {0, 3},
		"limit=1&status_filter=failed": {1, 1},
		"run_id=" + w.queued.String():  {1, 1},
		"status_filter=failed&run_id=" + w.queued.String(): {0, 0},
	} {
		t.Run(query, func(t *testing.T) {
			status, body := w.call(t, key, http.MethodGet, path+"?"+query, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			page := decode[ConnectorRunList](t, body)
			require.Len(t, page.Items, want.items)
			require.EqualValues(t, want.total, page.Total)
		})
	}
	status, body := w.call(t, key, http.MethodGet, path+"?run_id="+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status, string(body))
	_, body = w.call(t, key, http.MethodGet, path, "")
	page := decode[ConnectorRunList](t, body)
	require.Equal(t, 25, page.Limit)
	require.Equal(t, []string{w.queued.String()}, page.Items[0].RunIDs, "newest first")
	require.Equal(t, 1, page.Items[0].DispatchedTo)
	for _, bad := range []string{"time_range=2h", "status_filter=queued", "trigger_type=fax", "offset=-1", "run_id=1"} {
		status, body := w.call(t, key, http.MethodGet, path+"?"+bad, "")
		require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", bad, body)
	}
}

// TestRunsOfAConnectorAreThoseOfAWindow: which ends now.
func TestRunsOfAConnectorAreThoseOfAWindow(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/runs"
	total := func(query string) int64 {
		_, body := w.call(t, key, http.MethodGet, path+query, "")
		return decode[ConnectorRunList](t, body).Total
	}
	require.EqualValues(t, 3, total(""))
	event := w.ids["event"]
	for window, most := range timeRanges {
		event = w.moveBack(t, event, most-time.Minute)
		require.EqualValues(t, 3, total("?time_range="+string(window)), "just inside %s", window)
		event = w.moveBack(t, event, most+time.Minute)
		require.EqualValues(t, 2, total("?time_range="+string(window)), "just outside %s", window)
	}
	w.moveBack(t, event, 8*24*time.Hour)
	require.EqualValues(t, 2, total(""), "without a window it is of seven days")
}

// moveBack lets an event that is over have come so long ago; its time is in its id,
// which is another one then.
func (w *world) moveBack(t testing.TB, event string, ago time.Duration) (moved string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(10000)")
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

func TestARunOfAConnectorIsShownWithItsOutcome(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors/"+w.ids["connector"]+"/runs/"
	_, body := w.call(t, key, http.MethodGet, path+w.ids["event"], "")
	run := decode[ConnectorRun](t, body)
	require.Equal(t, "Hello, Ada", *run.Output)
	require.Equal(t, ConnectorRunStatus("completed"), run.Status)
	require.Equal(t, TriggerType("webhook"), run.TriggerType)
	of, err := w.db.ConnectorRun(t.Context(), store.Key{ProjectID: w.projectID, ID: uuid.MustParse(w.ids["event"])})
	require.NoError(t, err)
	require.True(t, of.StartedAt.Equal(run.StartedAt))
	require.True(t, of.EndedAt.Equal(*run.EndedAt))
	require.Equal(t, of.EndedAt.Sub(of.StartedAt).Milliseconds(), *run.DurationMS)
	queued, err := w.db.Run(t.Context(), store.Key{ProjectID: w.projectID, ID: w.queued})
	require.NoError(t, err)
	_, body = w.call(t, key, http.MethodGet, path+queued.ConnectorRunID.String(), "")
	open := decode[ConnectorRun](t, body)
	require.False(t, open.StartedAt.IsZero())
	require.Nil(t, open.EndedAt)
	require.Nil(t, open.DurationMS)

	ids := w.fresh(t)
	status, _ := w.call(t, key, http.MethodGet, "/connectors/"+ids["connector"]+"/runs/"+w.ids["event"], "")
	require.Equal(t, http.StatusNotFound, status, "it is of another connector")
	_, body = w.call(t, key, http.MethodGet, "/connectors/"+ids["connector"]+"/runs", "")
	require.Zero(t, decode[ConnectorRunList](t, body).Total)
}

func TestWhatHappenedElsewhereIsNotShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	staging := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	for _, path := range []string{"/runs/" + w.completed.String(), "/deployments/" + w.ids["deployment"]} {
		status, _ := w.call(t, staging, http.MethodGet, path, "")
		require.Equal(t, http.StatusForbidden, status, path)
	}
	_, body := w.call(t, staging, http.MethodGet, "/runs", "")
	require.Empty(t, idsOfRuns(t, body), "lists leave it out")
	none := w.key(t, func(k *v1alpha1.APIKeySpec) { k.EnvironmentAccess = v1alpha1.AccessSelected })
	_, body = w.call(t, none, http.MethodGet, "/runs", "")
	require.Empty(t, idsOfRuns(t, body))
	for _, path := range []string{"/runs/" + uuid.NewString(), "/deployments/" + uuid.NewString()} {
		status, _ := w.call(t, staging, http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
}

func TestAgentsAreShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, query := w.key(t, nil), "?environment_id="+w.ids["environment"]
	_, body := w.call(t, key, http.MethodGet, "/agents"+query, "")
	list := map[string]Agent{}
	for _, a := range decode[[]Agent](t, body) {
		list[a.Name] = a
	}
	require.Len(t, list, 2, "variants are left out")
	require.Equal(t, AgentDeployment("deployed"), list["hello"].DeploymentStatus)
	require.EqualValues(t, 2, list["hello"].RunCount)
	require.EqualValues(t, 1, list["hello"].QueueCount)
	require.True(t, list["hello"].HasInboundConnector)
	require.Equal(t, AgentDeployment("not_deployed"), list["gone"].DeploymentStatus)
	require.Nil(t, list["gone"].Type)
	_, body = w.call(t, key, http.MethodGet, "/agents"+query+"&include_variants=true", "")
	all := decode[[]Agent](t, body)
	require.Len(t, all, 3)
	require.Equal(t, "hello-b", all[2].Name)
	require.Equal(t, "hello", *all[2].VariantOf)
	require.EqualValues(t, 1, all[2].RunCount, "what it has executed of the agent's runs")
	_, body = w.call(t, key, http.MethodGet, "/agents/hello-b"+query, "")
	require.EqualValues(t, 1, decode[AgentDetails](t, body).Stats.Total)
	_, body = w.call(t, key, http.MethodGet, "/agents/hello-b"+query+"&test_name=c", "")
	require.Zero(t, decode[AgentDetails](t, body).Stats.Total)

	_, body = w.call(t, key, http.MethodGet, "/agents/hello"+query, "")
	agent := decode[AgentDetails](t, body)
	require.JSONEq(t, `{"name":"hello"}`, string(agent.Config))
	require.Equal(t, []AgentConnector{{ID: w.ids["connector"], LinkID: w.ids["link"], Name: "tickets", Type: "webhook", Mode: "sync", Enabled: true}}, agent.Connectors)
	_, body = w.call(t, key, http.MethodGet, "/agents/gone"+query, "")
	require.Contains(t, string(body), `"config":null`)
	staging := "?environment_id=" + w.environmentID("staging")
	_, body = w.call(t, key, http.MethodGet, "/agents/hello"+staging, "")
	require.Equal(t, AgentDeployment("not_deployed"), decode[AgentDetails](t, body).DeploymentStatus, "it is known in another environment")
	status, _ := w.call(t, key, http.MethodGet, "/agents/nobody"+query, "")
	require.Equal(t, http.StatusNotFound, status)
}

// TestConnectorsOfAnAgentHaveAnOrder: that of their names as they are shown, and of those that have
// one name in common, that of their ids; whatever the order of their objects is.
func TestConnectorsOfAnAgentHaveAnOrder(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	type shown struct{ name, id, link string }
	want := []shown{{w.conn.Title(), w.ids["connector"], w.ids["link"]}}
	for i := range 24 { // more than a sort keeps in their order by chance
		conn := w.connectorNamed(t, fmt.Sprintf("c-%02d", i), func(c *v1alpha1.Connector) {
			c.Spec.DisplayName = v1alpha1.DisplayName([]string{"Orders", "Alerts", "zeta"}[i%3])
		})
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.meta(conn.Name), Spec: v1alpha1.ConnectorLinkSpec{
			Connector: v1alpha1.ConnectorName(conn.Name), Agent: "hello",
		}}
		w.create(t, link)
		want = append(want, shown{conn.Title(), conn.Status.ID, link.Status.ID})
	}
	slices.SortFunc(want, func(a, b shown) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id)) })
	_, body := w.call(t, w.key(t, nil), http.MethodGet, "/agents/hello?environment_id="+w.ids["environment"], "")
	var got []shown
	for _, c := range decode[AgentDetails](t, body).Connectors {
		got = append(got, shown{c.Name, c.ID, c.LinkID})
	}
	require.Equal(t, want, got)
}

func TestDeploymentsAreShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	_, body := w.call(t, key, http.MethodGet, "/deployments?environment_id="+w.ids["environment"], "")
	items := decode[[]DeploymentItem](t, body)
	require.Len(t, items, 1)
	require.Equal(t, 1, items[0].FailedTestCount)
	require.Contains(t, string(body), `"test_results":null`)
	require.Nil(t, items[0].BuildLogs)
	require.True(t, items[0].IsLive)
	_, body = w.call(t, key, http.MethodGet, "/deployments?environment_id="+w.environmentID("staging"), "")
	require.JSONEq(t, "[]", string(body))

	_, body = w.call(t, key, http.MethodGet, "/deployments/"+w.ids["deployment"], "")
	d := decode[Deployment](t, body)
	require.Equal(t, "packed 1 agent\n", *d.BuildLogs)
	require.Equal(t, DeploymentStatus("deployed"), d.Status)
	require.Equal(t, DeploymentSource{Type: "git", Branch: opt("main"), Commit: d.Source.Commit, CommitMessage: opt("Say hello"), Author: opt("Ada")}, d.Source)
	require.Len(t, d.TestResults, 3)
	var order []string
	for _, r := range d.TestResults {
		order = append(order, r.AgentName+"/"+r.TestName)
		require.Equal(t, []string{}, r.AgentRunIDs, "of what a build ran alone no run is kept")
	}
	require.Equal(t, []string{"farewell/waves", "hello/counts", "hello/greets"}, order)
	_, body = w.call(t, key, http.MethodGet, "/deployments/"+w.ids["deployment"]+"/test-runs", "")
	require.Equal(t, d.TestResults, decode[[]TestResult](t, body))
	_, body = w.call(t, key, http.MethodGet, "/deployments/"+w.building(t).String()+"/test-runs", "")
	require.JSONEq(t, "[]", string(body), "its tests have not run")
	crm := v1alpha1.ProjectObjectID(w.projectID, store.KindConnector, "production.crm").String()
	require.Equal(t, []ConnectorResult{{Connector: "crm", ConnectorID: &crm, Action: "created"}}, d.ConnectorResults)
	require.Len(t, d.Agents, 2)
}

// TestWhatABuildReportsIsShownInItsShapeOrNotAtAll: a build is the project's own
// program.
func TestWhatABuildReportsIsShownInItsShapeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, report := range []string{"", "null", "{}", `"x"`, "[1]", `[{"passed":"yes"}]`} {
		require.Equal(t, []TestResult{}, exchange{}.testResults(recordedResults([]byte(report))), report)
	}
	require.Equal(t, []ConnectorResult{{Connector: "a", Action: "failed", Error: opt("no")}},
		recorded[ConnectorResult]([]byte(`[{"connector":"a","action":"failed","error":"no"}]`)))
}
