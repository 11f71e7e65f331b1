// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// usual is how many requests a project may make of which no controller has spoken.
var usual = int(plan.Default().RequestsPerMinute)

// TestEveryAnswerAfterAuthenticationSaysWhatIsLeft: of every route, whatever it is.
func TestEveryAnswerAfterAuthenticationSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	powerless := w.key(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	clock := time.Unix(1000, 0)
	w.server.store = &counting{Store: w.db, limits: &store.RateWindows{Now: func() time.Time { return clock }}}
	left := map[string]int{"project": plenty, "forbidden": plenty}
	for _, r := range routes {
		for name, c := range map[string]struct{ key, project, path, window string }{
			"own":           {w.key(t, nil), w.projectID.String(), concrete(r), "project"},
			"no permission": {powerless, w.projectID.String(), concrete(r), "forbidden"},
			"other project": {powerless, uuid.NewString(), concrete(r), "forbidden"},
			"no endpoint":   {powerless, w.projectID.String(), "/nothing" + concrete(r), "forbidden"},
		} {
			t.Run(name, func(t *testing.T) {
				answer := w.send(t, c.key, r.method, "/v1/projects/"+c.project+c.path, body(r))
				left[c.window]--
				require.Equal(t, fmt.Sprintf(`"%s";q=%d;w=60`, c.window, plenty), answer.Header().Get("RateLimit-Policy"), "%s, %s", r.id, name)
				require.Regexp(t, fmt.Sprintf(`^"%s";r=%d;t=60$`, c.window, left[c.window]), answer.Header().Get("RateLimit"), "%s, %s", r.id, name)
			})
		}
		answer := w.send(t, "", r.method, "/v1/projects/"+w.projectID.String()+concrete(r), "")
		require.Empty(t, answer.Header().Get("RateLimit"), "nobody is told what a project has left")
	}
}

// TestAProjectHasSoManyRequestsAMinute: over all of its keys.
func TestAProjectHasSoManyRequestsAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Unix(1000, 0)
	counter := &counting{Store: w.db, limits: &store.RateWindows{Now: func() time.Time { return clock }}}
	facade := w.facade(t, func(o *Options) { o.RequestsPerMinute, o.Store = 0, counter })
	path := "/v1/projects/" + w.projectID.String() + "/environments"
	keys := []string{w.key(t, nil), w.key(t, nil), w.key(t, nil)}
	for i := range usual {
		answer := w.sendTo(t, facade, keys[i%len(keys)], http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, answer.Code, "%d: %s", i, answer.Body)
		clock = clock.Add(100 * time.Millisecond)
	}
	before := w.auditEntries(t)
	for _, r := range routes {
		answer := w.sendTo(t, facade, keys[0], r.method, "/v1/projects/"+w.projectID.String()+concrete(r), body(r))
		require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s: %s", r.id, answer.Body)
		require.Equal(t, httpserver.CodeRateLimited, decode[Problem](t, answer.Body.Bytes()).Code)
		require.Equal(t, "48", answer.Header().Get("Retry-After"), "the first was 12 seconds ago")
		require.Equal(t, `"project";r=0;t=48`, answer.Header().Get("RateLimit"))
	}
	require.Equal(t, before, w.auditEntries(t), "what is not let through costs the store nothing more")
	require.Equal(t, http.StatusUnauthorized, w.sendTo(t, facade, "", http.MethodGet, path, "").Code)
	clock = clock.Add(48*time.Second - 1)
	answer := w.sendTo(t, facade, keys[0], http.MethodGet, path, "")
	require.Equal(t, http.StatusTooManyRequests, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"), "never less than a second")
	clock = clock.Add(1)
	require.Equal(t, http.StatusOK, w.sendTo(t, facade, keys[0], http.MethodGet, path, "").Code)
	require.Equal(t, http.StatusTooManyRequests, w.sendTo(t, facade, keys[1], http.MethodGet, path, "").Code, "the second was later")
}

// What is answered 403 does not use up the requests of a project, and is bounded nonetheless.
func TestRateLimit_CountsForbiddenRequestsApart(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]struct {
		method, path string
		status       int
	}{
		"without the permission": {http.MethodGet, "environments", http.StatusForbidden},
		"no endpoint":            {http.MethodGet, "secrets", http.StatusForbidden},
		"another method":         {http.MethodPut, "environments", http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			clock := time.Unix(1000, 0)
			counter := &counting{Store: w.db, limits: &store.RateWindows{Now: func() time.Time { return clock }}}
			facade := w.facade(t, func(o *Options) { o.RequestsPerMinute, o.Store = 0, counter })
			powerless := w.key(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
			project := "/v1/projects/" + w.projectID.String() + "/"
			for range usual {
				require.Equal(t, refused.status, w.sendTo(t, facade, powerless, refused.method, project+refused.path, "").Code)
			}
			answer := w.sendTo(t, facade, powerless, refused.method, project+refused.path, "")
			require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s", answer.Body)
			require.Equal(t, "60", answer.Header().Get("Retry-After"))
			require.Empty(t, answer.Header().Get("Allow"))
			require.Contains(t, decode[Problem](t, answer.Body.Bytes()).Detail, "were answered 403 or 405")
			key := w.key(t, nil)
			for range usual {
				require.Equal(t, http.StatusOK, w.sendTo(t, facade, key, http.MethodGet, project+"environments", "").Code)
			}
			require.Equal(t, http.StatusTooManyRequests, w.sendTo(t, facade, key, http.MethodGet, project+"environments", "").Code)
		})
	}
}

// TestAProjectHasTheRequestsOfItsPlan: as many as the store has been told, more or fewer
// than usual, from the next request on. What its status says, which tenants may be able to
// write, is nobody's business.
func TestAProjectHasTheRequestsOfItsPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	facade := w.facade(t, func(o *Options) { o.RequestsPerMinute = 0 })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- facade.index.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	w.showRequests(t, facade, 10_000)

	key, path := w.key(t, nil), "/v1/projects/"+w.projectID.String()+"/environments"
	ask := func(status, allowed, left int) {
		answer := w.sendTo(t, facade, key, http.MethodGet, path, "")
		require.Equal(t, status, answer.Code, answer.Body)
		require.Equal(t, fmt.Sprintf(`"project";q=%d;w=60`, allowed), answer.Header().Get("RateLimit-Policy"))
		require.Regexp(t, fmt.Sprintf(`^"project";r=%d;t=`, left), answer.Header().Get("RateLimit"))
		if status == http.StatusTooManyRequests {
			require.Contains(t, decode[Problem](t, answer.Body.Bytes()).Detail, fmt.Sprintf("made %d requests in the last minute", allowed))
		}
	}
	ask(http.StatusOK, usual, usual-1)
	for _, step := range []struct{ own, status, left int }{
		{2, http.StatusOK, 0}, {2, http.StatusTooManyRequests, 0}, {200, http.StatusOK, 197}, {1, http.StatusTooManyRequests, 0},
	} {
		require.NoError(t, w.db.PutProject(t.Context(), store.Project{
			Ref: w.refOf(t, store.KindProject, v1alpha1.ProjectName), ID: w.projectID,
			Limits: store.ProjectLimits{RequestsPerMinute: int64(step.own)},
		}))
		ask(step.status, step.own, step.left)
	}
}

// showRequests is what a tenant may do to a status, and waits until a facade has heard.
func (w *world) showRequests(t testing.TB, facade *Server, allowed int) {
	t.Helper()
	project := &v1alpha1.Project{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.ProjectName}, project))
	project.Status.Limits.RequestsPerMinute = ptr.To(int32(allowed))
	require.NoError(t, w.client.Status().Update(t.Context(), project))
	require.Eventually(t, func() bool {
		known := facade.index.knownProject(w.namespace)
		return known != nil && known.ResourceVersion == project.ResourceVersion
	}, 10*time.Second, time.Millisecond)
}

func (w *world) auditEntries(t testing.TB) int {
	t.Helper()
	list, err := w.db.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.projectID, Limit: 10000})
	require.NoError(t, err)
	return len(list)
}

// TestTwoFacadesShareOneLimit: on PostgreSQL, by which replicas share it, from many
// callers at once: never more than the limit in any stretch of a minute.
func TestTwoFacadesShareOneLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shared, err := postgres.Open(t.Context(), postgres.Options{DSN: testenv.Postgres(t), Logger: quiet()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	require.NoError(t, shared.Migrate(t.Context()))
	counter := &counting{Store: w.db, limits: shared}
	var facades []*Server
	for range 2 {
		facades = append(facades, w.facade(t, func(o *Options) { o.RequestsPerMinute, o.Store = 0, counter }))
	}
	key, path := w.key(t, nil), "/v1/projects/"+w.projectID.String()+"/environments"
	ask := func(facade *Server) int { // by many at once, so that nothing here may end the test
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Header.Set("Authorization", "Bearer "+key)
		answer := httptest.NewRecorder()
		facade.Handler().ServeHTTP(answer, request)
		return answer.Code
	}
	var (
		group             sync.WaitGroup
		accepted, refused atomic.Int64
	)
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				switch ask(facades[i%2]) {
				case http.StatusOK:
					accepted.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 400, accepted.Load()+refused.Load())
	require.EqualValues(t, len(counter.allowed), accepted.Load())
	require.GreaterOrEqual(t, len(counter.allowed), usual)
	// A request was let through at some moment while it was asked for: one more than
	// the limit cannot all have been asked for within a minute.
	slices.SortFunc(counter.allowed, func(a, b asked) int { return a.from.Compare(b.from) })
	for i := usual; i < len(counter.allowed); i++ {
		first, last := counter.allowed[i-usual].from, time.Time{}
		for _, a := range counter.allowed[i-usual : i+1] {
			if a.to.After(last) {
				last = a.to
			}
		}
		require.GreaterOrEqual(t, last.Sub(first), rateWindow)
	}
}

// asked is when a request was asked for that was let through.
type asked struct{ from, to time.Time }

// counting is a store whose requests another one counts.
type counting struct {
	Store
	limits store.RateLimiter

	mutex   sync.Mutex
	allowed []asked
}

func (c *counting) TakeRequest(ctx context.Context, project uuid.UUID, limit store.RateLimit) (store.RateVerdict, error) {
	from := time.Now()
	verdict, err := c.limits.TakeRequest(ctx, project, limit)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if verdict.Allowed {
		c.allowed = append(c.allowed, asked{from, time.Now()})
	}
	return verdict, err
}
