// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// slow is a store that reads four lists at once. The lists of one project take until end.
type slow struct {
	apiserver.Store
	project    uuid.UUID
	begun, end chan struct{}
}

func (s slow) ListsAtOnce() int { return 4 }

func (s slow) ListRuns(ctx context.Context, q store.RunQuery) ([]store.Run, *uuid.UUID, error) {
	if q.ProjectID == s.project {
		s.begun <- struct{}{}
		<-s.end
	}
	return s.Store.ListRuns(ctx, q)
}

// newNeighbor is another project of the same platform.
func newNeighbor(t *testing.T, w *apiservertest.Project) *apiservertest.Project {
	t.Helper()
	other := *w
	other.Namespace = "next-to-" + w.Namespace
	other.ProjectID = v1alpha1.ProjectID(w.Options.PlatformID, other.Namespace)
	require.NoError(t, w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.Namespace}}))
	other.Create(t, &v1alpha1.Project{ObjectMeta: other.Meta(v1alpha1.ProjectName)})
	other.Allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return &other
}

// Other projects are served meanwhile. Further reads of the project return 429 with Retry-After.
func TestReadings_LimitConcurrentReadsPerProject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	other := newNeighbor(t, w.Project)
	key, others := w.CreateKey(t, nil), other.CreateKey(t, nil)
	db := slow{Store: w.Store, project: w.ProjectID, begun: make(chan struct{}), end: make(chan struct{})}
	w.Server = w.NewReplica(t, func(o *apiserver.Options) { o.Store = db })
	other.Server = w.Server
	w.Server.Service.HistoryReads = rest.NewHistoryReads(db.ListsAtOnce(), 50*time.Millisecond)

	var reading sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, db.ListsAtOnce()/rest.HistoryReadShare)
	for i := range answers {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/projects/"+w.ProjectID.String()+"/runs", nil)
		apiservertest.SetHeaders(request, key, "", nil)
		answers[i] = httptest.NewRecorder()
		reading.Go(func() { w.Server.Handler().ServeHTTP(answers[i], request) })
		<-db.begun
	}
	replay := `{"status": ["failed"], "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "dry_run": true}`
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "/runs", ""},
		{http.MethodGet, "/runs?search=ada", ""},
		{http.MethodGet, "/runs/{run}", ""},
		{http.MethodGet, "/agents?environment_id={environment}", ""},
		{http.MethodGet, "/agents/hello?environment_id={environment}", ""},
		{http.MethodGet, "/connectors/{connector}/runs", ""},
		{http.MethodGet, "/connectors/{connector}/stats", ""},
		{http.MethodPost, "/connectors/{connector}/replays", replay},
		{http.MethodGet, "/audit-log", ""},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			answer := w.Request(t, key, c.method, apiservertest.FillPath(t, c.path, w.IDs), c.body)
			require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s: %s", c.path, answer.Body)
			require.Equal(t, httpserver.CodeRateLimited, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
			require.Equal(t, "5", answer.Header().Get("Retry-After"))
		})
	}
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodGet, "/environments", "").Code, "other endpoints need no history read")
	require.Equal(t, http.StatusOK, other.Request(t, others, http.MethodGet, "/runs", "").Code)
	rest, err := w.Server.Service.HistoryReads.Wait(t.Context(), uuid.New(), 2)
	require.NoError(t, err)
	apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, other, others, http.MethodGet, "/runs", "")
	rest.End()
	close(db.end)
	reading.Wait()
	for _, answer := range answers {
		require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
	}
	require.True(t, w.Server.Service.HistoryReads.Free())
}
