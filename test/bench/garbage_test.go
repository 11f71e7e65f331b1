// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
)

const (
	// garbageRate is the number of requests with invented keys per second. They last for garbageTime.
	garbageRate, garbageTime = 1000, 20 * time.Second
	// garbageClients is the maximum number of these requests at once.
	garbageClients = 200
	// ownRequests is the number of requests with a valid key. It is below the rate limit of a minute.
	ownRequests = 50
)

// BenchmarkGarbage sends 1,000 requests a second with invented API keys. It measures the resulting requests to kube-apiserver,
// and the response times of a project's valid requests at the same time. The yardstick is the same valid requests without other
// load.
func BenchmarkGarbage(b *testing.B) {
	s := newObjects(b)
	team := s.namespace("team")
	s.manager(team)
	s.until(team, "one") // so that the manager has made the keys
	addr, metrics := freeAddr(b), freeAddr(b)
	start(b, s.bin, "apiserver", "--store-dsn-file="+filepath.Join(s.dir, "dsn"), "--system-namespace=default",
		"--watch-namespaces="+team, "--api-addr="+addr, "--metrics-addr="+metrics)
	key := s.key(team)
	project := &v1alpha1.Project{}
	require.NoError(b, s.Get(b.Context(), client.ObjectKey{Namespace: team, Name: v1alpha1.ProjectName}, project))
	url := "http://" + addr + "/v1/projects/" + project.Status.ID + "/environments"
	ask := func(key string) int {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(b, err)
		request.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	s.eventually(func() bool { return ask(key) == http.StatusOK })
	own := func() (took []time.Duration) {
		for range ownRequests {
			begun := time.Now()
			require.Equal(b, http.StatusOK, ask(key))
			took = append(took, time.Since(begun))
		}
		return took
	}
	alone := own()
	<-time.After(time.Minute) // the rate limit of a key is 120 requests per minute
	before := lookups(b, metrics)
	answers, beside := garbage(b, ask, own)
	heard := lookups(b, metrics) - before
	print(b, Rate("garbage/answers to invented keys", "requests/s", answers/garbageTime.Seconds(), garbageRate, 1))
	print(b, Cost("garbage/requests to kube-apiserver for them", "requests/s", heard/garbageTime.Seconds(), garbageRate, 0))
	print(b, Cost("garbage/p50 of a project's own requests beside them", "ms", Percentile(beside, 0.5), Percentile(alone, 0.5), 0))
}

// garbage sends requests with invented keys while own runs. It returns the number of responses.
func garbage(b *testing.B, ask func(string) int, own func() []time.Duration) (answered float64, beside []time.Duration) {
	ctx, stop := context.WithTimeout(b.Context(), garbageTime)
	defer stop()
	var (
		work  errgroup.Group
		count atomic.Int64
		pace  = rate.NewLimiter(garbageRate, garbageClients)
	)
	for range garbageClients {
		work.Go(func() error {
			for pace.Wait(ctx) == nil {
				switch ask(keys.Generate().String()) {
				case http.StatusUnauthorized, http.StatusServiceUnavailable:
					count.Add(1)
				}
			}
			return nil
		})
	}
	beside = own()
	require.NoError(b, work.Wait())
	return float64(count.Load()), beside
}

// key creates an API key whose owner has all permissions.
func (s *objects) key(namespace string) string {
	s.Helper()
	require.NoError(s, s.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bench"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}))
	key := keys.Generate()
	require.NoError(s, s.Create(s.Context(), &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"},
		Spec: v1alpha1.APIKeySpec{
			Hash: key.Hash(), KeyID: key.ID(), Access: v1alpha1.AccessAll, Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "bench"},
		},
	}))
	return key.String()
}

// lookups returns the number of API keys that a facade has looked up in Kubernetes.
func lookups(b *testing.B, metrics string) (n float64) {
	resp, err := http.Get("http://" + metrics + "/metrics")
	require.NoError(b, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(b, err)
	for _, m := range families["agentplatform_api_key_lookups_total"].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}
