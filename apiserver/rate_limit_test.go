// SPDX-License-Identifier: Apache-2.0

package apiserver_test

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
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// usual is how many requests a project may make of which no controller has spoken.
var usual = int(plan.Default().RequestsPerMinute)

// Each endpoint returns the headers, whatever its status is.
func TestRateLimit_ShowsHeadersAfterAuthentication(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	powerless := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	clock := time.Unix(1000, 0)
	w.UseStore(&counting{Store: w.Store, limits: &store.RateWindows{Now: func() time.Time { return clock }}})
	left := map[string]int{"project": apiservertest.HighLimit, "forbidden": apiservertest.HighLimit}
	for _, r := range apiservertest.Endpoints {
		for name, c := range map[string]struct{ key, project, path, window string }{
			"own":           {w.CreateKey(t, nil), w.ProjectID.String(), apiservertest.RandomPath(r), "project"},
			"no permission": {powerless, w.ProjectID.String(), apiservertest.RandomPath(r), "forbidden"},
			"other project": {powerless, uuid.NewString(), apiservertest.RandomPath(r), "forbidden"},
			"no endpoint":   {powerless, w.ProjectID.String(), "/nothing" + apiservertest.RandomPath(r), "forbidden"},
		} {
			t.Run(name, func(t *testing.T) {
				answer := w.Send(t, c.key, r.Method, "/v1/projects/"+c.project+c.path, apiservertest.AcceptedBody(r))
				left[c.window]--
				require.Equal(t, fmt.Sprintf(`"%s";q=%d;w=60`, c.window, apiservertest.HighLimit), answer.Header().Get("RateLimit-Policy"), "%s, %s", r.ID, name)
				require.Regexp(t, fmt.Sprintf(`^"%s";r=%d;t=60$`, c.window, left[c.window]), answer.Header().Get("RateLimit"), "%s, %s", r.ID, name)
			})
		}
		answer := w.Send(t, "", r.Method, "/v1/projects/"+w.ProjectID.String()+apiservertest.RandomPath(r), "")
		require.Empty(t, answer.Header().Get("RateLimit"), "the response does not reveal the project's remaining requests")
	}
}

// All keys of a project share the limit.
func TestRateLimit_AppliesToProject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	clock := time.Unix(1000, 0)
	counter := &counting{Store: w.Store, limits: &store.RateWindows{Now: func() time.Time { return clock }}}
	facade := w.NewReplica(t, func(o *apiserver.Options) { o.RequestsPerMinute, o.Store = 0, counter })
	path := "/v1/projects/" + w.ProjectID.String() + "/environments"
	keys := []string{w.CreateKey(t, nil), w.CreateKey(t, nil), w.CreateKey(t, nil)}
	for i := range usual {
		answer := w.SendTo(t, facade, keys[i%len(keys)], http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, answer.Code, "%d: %s", i, answer.Body)
		clock = clock.Add(100 * time.Millisecond)
	}
	before := w.CountAuditEntries(t)
	for _, r := range apiservertest.Endpoints {
		answer := w.SendTo(t, facade, keys[0], r.Method, "/v1/projects/"+w.ProjectID.String()+apiservertest.RandomPath(r), apiservertest.AcceptedBody(r))
		require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s: %s", r.ID, answer.Body)
		require.Equal(t, httpserver.CodeRateLimited, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
		require.Equal(t, "48", answer.Header().Get("Retry-After"), "the first was 12 seconds ago")
		require.Equal(t, `"project";r=0;t=48`, answer.Header().Get("RateLimit"))
	}
	require.Equal(t, before, w.CountAuditEntries(t), "a rejected request writes no audit entry")
	require.Equal(t, http.StatusUnauthorized, w.SendTo(t, facade, "", http.MethodGet, path, "").Code)
	clock = clock.Add(48*time.Second - 1)
	answer := w.SendTo(t, facade, keys[0], http.MethodGet, path, "")
	require.Equal(t, http.StatusTooManyRequests, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"), "never less than a second")
	clock = clock.Add(1)
	require.Equal(t, http.StatusOK, w.SendTo(t, facade, keys[0], http.MethodGet, path, "").Code)
	require.Equal(t, http.StatusTooManyRequests, w.SendTo(t, facade, keys[1], http.MethodGet, path, "").Code, "the second was later")
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
			w := apiservertest.NewProject(t)
			clock := time.Unix(1000, 0)
			counter := &counting{Store: w.Store, limits: &store.RateWindows{Now: func() time.Time { return clock }}}
			facade := w.NewReplica(t, func(o *apiserver.Options) { o.RequestsPerMinute, o.Store = 0, counter })
			powerless := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
			project := "/v1/projects/" + w.ProjectID.String() + "/"
			for range usual {
				require.Equal(t, refused.status, w.SendTo(t, facade, powerless, refused.method, project+refused.path, "").Code)
			}
			answer := w.SendTo(t, facade, powerless, refused.method, project+refused.path, "")
			require.Equal(t, http.StatusTooManyRequests, answer.Code, "%s", answer.Body)
			require.Equal(t, "60", answer.Header().Get("Retry-After"))
			require.Empty(t, answer.Header().Get("Allow"))
			require.Contains(t, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Detail, "with status 403 or 405")
			key := w.CreateKey(t, nil)
			for range usual {
				require.Equal(t, http.StatusOK, w.SendTo(t, facade, key, http.MethodGet, project+"environments", "").Code)
			}
			require.Equal(t, http.StatusTooManyRequests, w.SendTo(t, facade, key, http.MethodGet, project+"environments", "").Code)
		})
	}
}

// The limit in the store applies from the next request on. Tenants can write the status of the project, so it does not
// count.
func TestRateLimit_FollowsPlan(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	facade := w.NewReplica(t, func(o *apiserver.Options) { o.RequestsPerMinute = 0 })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- facade.Service.Index.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	showRequests(t, w, facade, 10_000)

	key, path := w.CreateKey(t, nil), "/v1/projects/"+w.ProjectID.String()+"/environments"
	ask := func(status, allowed, left int) {
		answer := w.SendTo(t, facade, key, http.MethodGet, path, "")
		require.Equal(t, status, answer.Code, answer.Body)
		require.Equal(t, fmt.Sprintf(`"project";q=%d;w=60`, allowed), answer.Header().Get("RateLimit-Policy"))
		require.Regexp(t, fmt.Sprintf(`^"project";r=%d;t=`, left), answer.Header().Get("RateLimit"))
		if status == http.StatusTooManyRequests {
			require.Contains(t, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Detail, fmt.Sprintf("reached its limit of %d requests per minute", allowed))
		}
	}
	ask(http.StatusOK, usual, usual-1)
	for _, step := range []struct{ own, status, left int }{
		{2, http.StatusOK, 0}, {2, http.StatusTooManyRequests, 0}, {200, http.StatusOK, 197}, {1, http.StatusTooManyRequests, 0},
	} {
		require.NoError(t, w.Store.PutProject(t.Context(), store.Project{
			Ref: w.StoredRef(t, store.KindProject, v1alpha1.ProjectName), ID: w.ProjectID,
			Limits: store.ProjectLimits{RequestsPerMinute: int64(step.own)},
		}))
		ask(step.status, step.own, step.left)
	}
}

// showRequests is what a tenant may do to a status, and waits until a facade has heard.
func showRequests(t testing.TB, w *apiservertest.Project, facade *apiserver.Server, allowed int) {
	t.Helper()
	project := &v1alpha1.Project{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: v1alpha1.ProjectName}, project))
	project.Status.Limits.RequestsPerMinute = ptr.To(int32(allowed))
	require.NoError(t, w.Client.Status().Update(t.Context(), project))
	require.Eventually(t, func() bool {
		known, err := facade.Service.Index.Project(t.Context(), w.Namespace)
		return err == nil && known.ResourceVersion == project.ResourceVersion
	}, 10*time.Second, time.Millisecond)
}

// On PostgreSQL, concurrent callers of two replicas never exceed the limit in a minute.
func TestRateLimit_IsSharedByReplicas(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	shared, err := postgres.Open(t.Context(), postgres.Options{DSN: testenv.Postgres(t), Logger: apiservertest.DiscardLogger()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	require.NoError(t, shared.Migrate(t.Context()))
	counter := &counting{Store: w.Store, limits: shared}
	var facades []*apiserver.Server
	for range 2 {
		facades = append(facades, w.NewReplica(t, func(o *apiserver.Options) { o.RequestsPerMinute, o.Store = 0, counter }))
	}
	key, path := w.CreateKey(t, nil), "/v1/projects/"+w.ProjectID.String()+"/environments"
	ask := func(facade *apiserver.Server) int { // by many at once, so that nothing here may end the test
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
	slices.SortFunc(counter.allowed, func(a, b requestOf) int { return a.from.Compare(b.from) })
	for i := usual; i < len(counter.allowed); i++ {
		first, last := counter.allowed[i-usual].from, time.Time{}
		for _, a := range counter.allowed[i-usual : i+1] {
			if a.to.After(last) {
				last = a.to
			}
		}
		require.GreaterOrEqual(t, last.Sub(first), rest.RateWindow)
	}
}

// requestOf is when a request was asked for that was let through.
type requestOf struct{ from, to time.Time }

// counting is a store whose requests another one counts.
type counting struct {
	apiserver.Store
	limits store.RateLimiter

	mutex   sync.Mutex
	allowed []requestOf
}

func (c *counting) TakeRequest(ctx context.Context, project uuid.UUID, limit store.RateLimit) (store.RateVerdict, error) {
	from := time.Now()
	verdict, err := c.limits.TakeRequest(ctx, project, limit)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if verdict.Allowed {
		c.allowed = append(c.allowed, requestOf{from, time.Now()})
	}
	return verdict, err
}
