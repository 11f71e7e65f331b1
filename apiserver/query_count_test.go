// SPDX-License-Identifier: Apache-2.0

package apiserver_test

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
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// countedTransport counts what is asked of kube-apiserver over the wire.
type countedTransport struct {
	http.RoundTripper
	requests *atomic.Int64
}

func (c countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// countedStore counts questions about ids.
type countedStore struct {
	apiserver.Store
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
	apiserver.Claims
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
func countedFacade(t testing.TB, w *apiservertest.Project) (s *apiserver.Server, requests, questions *atomic.Int64) {
	t.Helper()
	requests, questions = &atomic.Int64{}, &atomic.Int64{}
	config := kube.Start(t).User(t, "facade")
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return countedTransport{inner, requests} })
	c, err := client.NewWithWatch(config, client.Options{Scheme: kube.Start(t).Scheme})
	require.NoError(t, err)
	s = w.NewReplica(t, func(o *apiserver.Options) {
		o.Client, o.Index = c, apiservertest.WithoutLookupLimit(rest.NewIndex(c, nil, apiservertest.DiscardLogger()))
		o.Store, o.Claims = countedStore{w.Store, questions}, countedClaims{w.Store, questions}
	})
	return s, requests, questions
}

// createConnectors makes that many connectors in production, each with links, and the secrets of
// all are derived.
func createConnectors(t testing.TB, w *apiservertest.Project, connectors, linksEach int) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for range connectors {
		name := "filled-" + uuid.NewString()[:8]
		group.Go(func() error {
			conn := &v1alpha1.Connector{ObjectMeta: w.Meta(name), Spec: v1alpha1.ConnectorSpec{
				Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
			}}
			errs := []error{putObject(t.Context(), w, conn)}
			key := store.Key{ProjectID: w.ProjectID, ID: v1alpha1.ProjectObjectID(w.ProjectID, "Connector", name)}
			_, err := w.Store.DerivationKey(t.Context(), key, 1)
			errs = append(errs, err)
			for i := range linksEach {
				errs = append(errs, putObject(t.Context(), w, &v1alpha1.ConnectorLink{
					ObjectMeta: w.Meta(fmt.Sprintf("%s-%d", name, i)),
					Spec:       v1alpha1.ConnectorLinkSpec{Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(fmt.Sprintf("agent-%d", i))},
				}))
			}
			return errors.Join(errs...)
		})
	}
	require.NoError(t, group.Wait())
}

// putObject creates an object and claims its id.
func putObject(ctx context.Context, w *apiservertest.Project, o v1alpha1.ConditionedObject) error {
	if err := w.Client.Create(ctx, o.(client.Object)); err != nil {
		return err
	}
	id, err := v1alpha1.ObjectID(w.ProjectID, o)
	if err != nil {
		return err
	}
	return w.Store.ClaimID(ctx, store.Key{ProjectID: w.ProjectID, ID: id}, w.ObjectRef(o))
}

// Each GET needs as many calls to Kubernetes and the store for 30 objects as for 3.
func TestReads_TakeConstantNumberOfQueries(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	cost := func() map[string][2]int64 {
		out := map[string][2]int64{}
		for _, r := range apiservertest.SupportedEndpoints(t) {
			if r.Method != http.MethodGet {
				continue
			}
			s, requests, questions := countedFacade(t, w.Project) // which knows nothing yet
			answer := w.SendTo(t, s, key, http.MethodGet, "/v1/projects/"+w.ProjectID.String()+apiservertest.FillPath(t, r.Example.Path, w.IDs), "")
			require.Equal(t, http.StatusOK, answer.Code, "%s: %s", r.ID, answer.Body)
			out[r.ID] = [2]int64{requests.Load(), questions.Load()}
		}
		return out
	}
	createConnectors(t, w.Project, 2, 3)
	addRuns(t, w, 3)
	w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.IDs["environment"], "") // which notes keys that are not noted yet
	few := cost()
	createConnectors(t, w.Project, 27, 3)
	addRuns(t, w, 27)
	require.Equal(t, few, cost())
	_, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.IDs["environment"], "")
	require.Len(t, apiservertest.Decode[[]connectors.Connector](t, body), 30)
	_, body = w.Call(t, key, http.MethodGet, "/environments", "")
	require.Len(t, apiservertest.Decode[[]environments.Environment](t, body), 33)
	for id, c := range few {
		require.Positive(t, c[0], id)
	}
}

// addRuns makes that many environments, and links and events of the past's connector.
func addRuns(t testing.TB, p *apiservertest.ProjectWithHistory, n int) {
	t.Helper()
	for range n {
		name := "grown-" + uuid.NewString()[:8]
		require.NoError(t, putObject(t.Context(), p.Project, &v1alpha1.Environment{ObjectMeta: p.Meta(name)}))
		require.NoError(t, putObject(t.Context(), p.Project, &v1alpha1.ConnectorLink{ObjectMeta: p.Meta(name), Spec: v1alpha1.ConnectorLinkSpec{
			Connector: "tickets", Agent: v1alpha1.AgentName(name),
		}}))
		p.AcceptEvent(t, "hello")
	}
}

// The project has 1,000 connectors with 5,000 links on a real kube-apiserver and etcd.
func BenchmarkListConnectors_WithLinks(b *testing.B) {
	w := apiservertest.NewProject(b)
	createConnectors(b, w, 1000, 5)
	s, requests, questions := countedFacade(b, w)
	key, path := w.CreateKey(b, nil), "/v1/projects/"+w.ProjectID.String()+"/connectors?environment_id="+w.EnvironmentID("production")
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

func (d *discarded) Header() http.Header { return d.header }

func (d *discarded) WriteHeader(status int) { d.status = status }

func (d *discarded) Write(p []byte) (int, error) { return io.Discard.Write(p) }
