// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/namespaces"
)

// keyCluster is a Kubernetes API that counts who lists keys. One namespace may not
// be read.
type keyCluster struct {
	client.WithWatch
	lists atomic.Int64
}

func newKeyCluster(t *testing.T) *keyCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := &keyCluster{}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.APIKey{}, fieldKeyID, func(o client.Object) []string { return []string{o.(*v1alpha1.APIKey).Spec.KeyID} }).
		Build(), interceptor.Funcs{List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		c.lists.Add(1)
		if (&client.ListOptions{}).ApplyOptions(opts).Namespace == "forbidden" {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("apikeys").GroupResource(), "", errors.New("no RoleBinding"))
		}
		return inner.List(ctx, list, opts...)
	}})
	return c
}

// IsWatchListSemanticsUnSupported says that a watch of it does not begin with what is there.
func (*keyCluster) IsWatchListSemanticsUnSupported() bool { return true }

func (c *keyCluster) create(t *testing.T, namespace string) (keys.Key, *v1alpha1.APIKey) {
	t.Helper()
	key := keys.Generate()
	o := &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ci", Annotations: map[string]string{"large": "value"}},
		Spec:       v1alpha1.APIKeySpec{Hash: key.Hash(), KeyID: key.ID()},
	}
	require.NoError(t, c.Create(t.Context(), o))
	return key, o
}

// Anonymous callers can invent keys, so lookups have a rate limit.
func TestIndex_LimitsLookupsOfUnknownKeys(t *testing.T) {
	t.Parallel()
	c := newKeyCluster(t)
	index := NewIndex(c, nil, slog.New(slog.DiscardHandler))
	index.budget = rate.NewLimiter(0, 3)
	key, _ := c.create(t, "team")
	found, err := index.find(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, found, 1, "a key that is new is looked for")

	invented := keys.Generate()
	for range 100 {
		found, err := index.find(t.Context(), invented)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	require.EqualValues(t, 2, c.lists.Load(), "that nobody has it is remembered")

	busy := 0
	for range 100 {
		_, err := index.find(t.Context(), keys.Generate())
		var p Problem
		if errors.As(err, &p) {
			require.Equal(t, http.StatusServiceUnavailable, p.Status)
			busy++
		}
	}
	require.Equal(t, 99, busy)
	require.EqualValues(t, 3, c.lists.Load())
}

// Invented keys and other namespaces do not affect known keys.
func TestIndex_FindsKnownKeysWithoutLookup(t *testing.T) {
	t.Parallel()
	c := newKeyCluster(t)
	key, o := c.create(t, "team")
	index := NewIndex(c, namespaces.Set{"forbidden", "team"}, slog.New(slog.DiscardHandler))
	index.budget = rate.NewLimiter(0, 0)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- index.Run(ctx) }()
	read := func(holds func(*v1alpha1.APIKey) bool) func() bool {
		return func() bool {
			found := index.known(key)
			return len(found) == 1 && holds(found[0])
		}
	}
	require.Eventually(t, read(func(k *v1alpha1.APIKey) bool { return !k.Spec.Revoked && k.Annotations == nil }), 10*time.Second, time.Millisecond)
	found, err := index.find(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, found, 1)

	o.Spec.Revoked = true
	require.NoError(t, c.Update(t.Context(), o))
	require.Eventually(t, read(func(k *v1alpha1.APIKey) bool { return k.Spec.Revoked }), 10*time.Second, time.Millisecond)
	require.NoError(t, c.Delete(t.Context(), o))
	require.Eventually(t, func() bool { return len(index.known(key)) == 0 }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// New projects are read through. A missing project is cached for a while.
func TestIndex_CachesProjects(t *testing.T) {
	t.Parallel()
	c := newKeyCluster(t)
	gets, watching := 0, false
	counted := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if !watching {
				gets++
			}
			return inner.List(ctx, list, opts...)
		},
	})
	index, clock := NewIndex(unlistable{counted}, nil, slog.New(slog.DiscardHandler)), time.Unix(1000, 0)
	index.absent = cache.New[string, struct{}](cacheSize, absentTime, func() time.Time { return clock })
	_, err := index.Project(t.Context(), "team")
	require.True(t, apierrors.IsNotFound(err), err)
	_, err = index.Project(t.Context(), "team")
	require.True(t, apierrors.IsNotFound(err), err)
	require.Equal(t, 1, gets, "that there is none is remembered")

	o := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: v1alpha1.ProjectName, Annotations: map[string]string{"large": "value"}}}
	require.NoError(t, c.Create(t.Context(), o))
	clock = clock.Add(absentTime)
	project, err := index.Project(t.Context(), "team")
	require.NoError(t, err)
	require.Equal(t, "team", project.Namespace)
	require.Equal(t, 2, gets, "a project that is new is read through")

	watching = true
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- index.Run(ctx) }()
	known := func() *v1alpha1.Project {
		for _, o := range index.projects.byIndex("namespace", "team") {
			return o.(*v1alpha1.Project)
		}
		return nil
	}
	require.Eventually(t, func() bool { return known() != nil }, 10*time.Second, time.Millisecond)
	require.Nil(t, known().Annotations)
	o.Spec.DefaultEnvironment = "staging"
	require.NoError(t, c.Update(t.Context(), o))
	require.Eventually(t, func() bool { return known().Spec.DefaultEnvironment == "staging" }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	watching = false
	project, err = index.Project(t.Context(), "team")
	require.NoError(t, err)
	require.EqualValues(t, "staging", project.Spec.DefaultEnvironment)
	require.Equal(t, 2, gets, "one that is known is not asked for")
	require.Empty(t, index.projects.byIndex("no such index", "team"))
}

// unlistable is a client whose watches do not begin with what is there.
type unlistable struct{ client.WithWatch }

func (unlistable) IsWatchListSemanticsUnSupported() bool { return true }
