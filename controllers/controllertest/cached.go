// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// Cached returns a client with the indexes of the cache, for tests of the map functions of watches,
// which need no cluster.
func Cached(t testing.TB, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatalf("making the scheme: %v", err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err := base.IndexFields(t.Context(), indexer{builder}); err != nil {
		t.Fatalf("indexing: %v", err)
	}
	return builder.Build()
}

// indexer registers the indexes of the cache with a fake client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(o, field, extract)
	return nil
}

// Names returns the names of the requests, in their order.
func Names(requests []ctrl.Request) (names []string) {
	for _, r := range requests {
		names = append(names, r.Name)
	}
	return names
}
