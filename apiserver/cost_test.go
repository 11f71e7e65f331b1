// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// counted counts what is asked of kube-apiserver over the wire.
type counted struct {
	http.RoundTripper
	requests *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// countedStore counts questions about ids.
type countedStore struct {
	Store
	questions *atomic.Int64
}

func (c countedStore) Holder(ctx context.Context, key store.Key) (store.ObjectRef, error) {
	c.questions.Add(1)
	return c.Store.Holder(ctx, key)
}

func (c countedStore) Holders(ctx context.Context, project uuid.UUID, kind string) ([]store.ProjectedObject, error) {
	c.questions.Add(1)
	return c.Store.Holders(ctx, project, kind)
}

// countedClaims counts questions about keys.
type countedClaims struct {
	Claims
	questions *atomic.Int64
}

func (c countedClaims) DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error) {
	c.questions.Add(1)
	return c.Claims.DerivationKey(ctx, connector, version)
}

func (c countedClaims) DerivationKeys(ctx context.Context, project uuid.UUID, connectors []uuid.UUID) (map[store.Derivation]string, error) {
	c.questions.Add(1)
	return c.Claims.DerivationKeys(ctx, project, connectors)
}

// countedFacade is a facade with all it asks for counted.
func (w *world) countedFacade(t testing.TB) (s *Server, requests, questions *atomic.Int64) {
	t.Helper()
	requests, questions = &atomic.Int64{}, &atomic.Int64{}
	config := kube.Start(t).User(t, "facade")
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counted{inner, requests} })
	c, err := client.NewWithWatch(config, client.Options{Scheme: kube.Start(t).Scheme})
	require.NoError(t, err)
	s = w.facade(t, func(o *Options) {
		o.Client, o.Index = c, unlimited(NewIndex(c, nil, quiet()))
		o.Store, o.Claims = countedStore{w.db, questions}, countedClaims{w.db, questions}
	})
	return s, requests, questions
}

// fill makes that many connectors in production, each with links, and the secrets of
// all are derived.
func (w *world) fill(t testing.TB, connectors, linksEach int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for range connectors {
		name := "filled-" + uuid.NewString()[:8]
		group.Go(func() error {
			conn := &v1alpha1.Connector{ObjectMeta: w.meta(name), Spec: v1alpha1.ConnectorSpec{
				Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
			}}
			errs := []error{w.put(t.Context(), conn)}
			key := store.Key{ProjectID: w.projectID, ID: v1alpha1.ProjectObjectID(w.projectID, "Connector", name)}
			_, err := w.db.DerivationKey(t.Context(), key, 1)
			errs = append(errs, err)
			for i := range linksEach {
				errs = append(errs, w.put(t.Context(), &v1alpha1.ConnectorLink{
					ObjectMeta: w.meta(fmt.Sprintf("%s-%d", name, i)),
					Spec:       v1alpha1.ConnectorLinkSpec{Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(fmt.Sprintf("agent-%d", i))},
				}))
			}
			return errors.Join(errs...)
		})
	}
	require.NoError(t, group.Wait())
}

// put creates an object and claims its id.
func (w *world) put(ctx context.Context, o v1alpha1.ConditionedObject) error {
	if err := w.client.Create(ctx, o.(client.Object)); err != nil {
		return err
	}
	id, err := v1alpha1.ObjectID(w.projectID, o)
	if err != nil {
		return err
	}
	return w.db.ClaimID(ctx, store.Key{ProjectID: w.projectID, ID: id}, w.ref(o))
}

// TestWhatAReadCostsDoesNotGrow: every GET asks Kubernetes, and the store for ids
// and keys, as often for 30 objects as for 3.
func TestWhatAReadCostsDoesNotGrow(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	cost := func() map[string][2]int64 {
		out := map[string][2]int64{}
		for _, r := range served(t) {
			if r.method != http.MethodGet {
				continue
			}
			s, requests, questions := w.countedFacade(t) // which knows nothing yet
			answer := w.sendTo(t, s, key, http.MethodGet, "/v1/projects/"+w.projectID.String()+samples[r.id].fill(t, w.ids), "")
			require.Equal(t, http.StatusOK, answer.Code, "%s: %s", r.id, answer.Body)
			out[r.id] = [2]int64{requests.Load(), questions.Load()}
		}
		return out
	}
	w.fill(t, 2, 3)
	w.grow(t, 3)
	w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.ids["environment"], "") // which notes keys that are not noted yet
	few := cost()
	w.fill(t, 27, 3)
	w.grow(t, 27)
	require.Equal(t, few, cost())
	_, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.ids["environment"], "")
	require.Len(t, decode[[]Connector](t, body), 30)
	_, body = w.call(t, key, http.MethodGet, "/environments", "")
	require.Len(t, decode[[]Environment](t, body), 33)
	for id, c := range few {
		require.Positive(t, c[0], id)
	}
}

// grow makes that many environments, and links and events of the past's connector.
func (p *past) grow(t testing.TB, n int) {
	t.Helper()
	for range n {
		name := "grown-" + uuid.NewString()[:8]
		require.NoError(t, p.put(t.Context(), &v1alpha1.Environment{ObjectMeta: p.meta(name)}))
		require.NoError(t, p.put(t.Context(), &v1alpha1.ConnectorLink{ObjectMeta: p.meta(name), Spec: v1alpha1.ConnectorLinkSpec{
			Connector: "tickets", Agent: v1alpha1.AgentName(name),
		}}))
		p.event(t, "hello")
	}
}

// BenchmarkListConnectors lists 1,000 connectors with 5,000 links, on a real
// kube-apiserver and etcd.
func BenchmarkListConnectors(b *testing.B) {
	w := newWorld(b)
	w.fill(b, 1000, 5)
	s, requests, questions := w.countedFacade(b)
	key, path := w.key(b, nil), "/v1/projects/"+w.projectID.String()+"/connectors?environment_id="+w.environmentID("production")
	list := func() {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
		require.NoError(b, err)
		request.Header.Set("Authorization", "Bearer "+key)
		answer := &discarded{header: http.Header{}}
		s.Handler().ServeHTTP(answer, request)
		require.Equal(b, http.StatusOK, answer.status)
	}
	list() // the key and its rights are known from now on
	requests.Store(0)
	questions.Store(0)
	for b.Loop() {
		list()
	}
	b.ReportMetric(float64(requests.Load())/float64(b.N), "kube-requests/op")
	b.ReportMetric(float64(questions.Load())/float64(b.N), "store-questions/op")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/op")
}

// discarded is an answer that nobody reads.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(p []byte) (int, error) { return io.Discard.Write(p) }
