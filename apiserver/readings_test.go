// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// slow is a store that reads four lists at once, in which those of a project take until end.
type slow struct {
	Store
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

// neighbour is another project of the same platform.
func (w *world) neighbour(t *testing.T) *world {
	t.Helper()
	other := *w
	other.namespace = "next-to-" + w.namespace
	other.projectID = v1alpha1.ProjectID(w.options.PlatformID, other.namespace)
	require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.namespace}}))
	other.create(t, &v1alpha1.Project{ObjectMeta: other.meta(v1alpha1.ProjectName)})
	other.allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return &other
}

// TestAProjectReadsAPartOfHistoryAtOnce: while it does, others are served, and what it asks for beside
// that is told when to try again, whatever of history it is.
func TestAProjectReadsAPartOfHistoryAtOnce(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	other := w.neighbour(t)
	key, others := w.key(t, nil), other.key(t, nil)
	db := slow{Store: w.db, project: w.projectID, begun: make(chan struct{}), end: make(chan struct{})}
	w.server = w.facade(t, func(o *Options) { o.Store = db })
	other.server = w.server
	w.server.readings = newReadings(db.ListsAtOnce(), 50*time.Millisecond)

	var reading sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, db.ListsAtOnce()/readingShare)
	for i := range answers {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/projects/"+w.projectID.String()+"/runs", nil)
		fillIn(request, key, "", nil)
		answers[i] = httptest.NewRecorder()
		reading.Go(func() { w.server.Handler().ServeHTTP(answers[i], request) })
		<-db.begun
	}
	replay := `{"status": ["failed"], "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "dry_run": true}`
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "/runs", ""},
		{http.MethodGet, "/runs?search=ada", ""},
		{http.MethodGet, "/agents?environment_id={environment}", ""},
		{http.MethodGet, "/agents/hello?environment_id={environment}", ""},
		{http.MethodGet, "/connectors/{connector}/runs", ""},
		{http.MethodGet, "/connectors/{connector}/stats", ""},
		{http.MethodPost, "/connectors/{connector}/replays", replay},
		{http.MethodGet, "/audit-log", ""},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			answer := w.ask(t, key, c.method, sample{path: c.path}.fill(t, w.ids), c.body)
			require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s: %s", c.path, answer.Body)
			require.Equal(t, httpserver.CodeRateLimited, decode[Problem](t, answer.Body.Bytes()).Code)
			require.Equal(t, "5", answer.Header().Get("Retry-After"))
		})
	}
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodGet, "/environments", "").Code, "what is no history needs none")
	require.Equal(t, http.StatusOK, other.ask(t, others, http.MethodGet, "/runs", "").Code)
	rest, err := w.server.readings.Wait(t.Context(), uuid.New(), 2)
	require.NoError(t, err)
	requireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, other, others, http.MethodGet, "/runs", "")
	rest.End()
	close(db.end)
	reading.Wait()
	for _, answer := range answers {
		require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
	}
	require.True(t, w.server.readings.Free())
}
