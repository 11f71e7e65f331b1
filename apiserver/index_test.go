// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
)

// TestKnownProjectsCostNothing: new ones are read through, and that there is none is
// remembered for a while.
func TestKnownProjectsCostNothing(t *testing.T) {
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
	index, clock := NewIndex(unlistable{counted}, nil, quiet()), time.Unix(1000, 0)
	index.absent = cache.New[string, struct{}](cacheSize, absentTime, func() time.Time { return clock })
	_, err := index.project(t.Context(), "team")
	require.True(t, apierrors.IsNotFound(err), err)
	_, err = index.project(t.Context(), "team")
	require.True(t, apierrors.IsNotFound(err), err)
	require.Equal(t, 1, gets, "that there is none is remembered")

	o := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: v1alpha1.ProjectName, Annotations: map[string]string{"large": "value"}}}
	require.NoError(t, c.Create(t.Context(), o))
	clock = clock.Add(absentTime)
	project, err := index.project(t.Context(), "team")
	require.NoError(t, err)
	require.Equal(t, "team", project.Namespace)
	require.Equal(t, 2, gets, "a project that is new is read through")

	watching = true
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- index.Run(ctx) }()
	known := func() *v1alpha1.Project {
		for _, o := range index.projects.by("namespace", "team") {
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
	project, err = index.project(t.Context(), "team")
	require.NoError(t, err)
	require.EqualValues(t, "staging", project.Spec.DefaultEnvironment)
	require.Equal(t, 2, gets, "one that is known is not asked for")
	require.Empty(t, index.projects.by("no such index", "team"))
}

// unlistable is a client whose watches do not begin with what is there.
type unlistable struct{ client.WithWatch }

func (unlistable) IsWatchListSemanticsUnSupported() bool { return true }

// TestARevokedKeyEndsWithTheCache: it is asked for again after keyCacheTime, and no
// sooner.
func TestARevokedKeyEndsWithTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := time.Now()
	w.server.now = func() time.Time { return clock }
	key := w.key(t, nil)
	get := func() int {
		status, _ := w.call(t, key, http.MethodGet, "/environments", "")
		return status
	}
	require.Equal(t, http.StatusOK, get())
	var list v1alpha1.APIKeyList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
	list.Items[0].Spec.Revoked = true
	require.NoError(t, w.client.Update(t.Context(), &list.Items[0]))
	clock = clock.Add(keyCacheTime - 1)
	require.Equal(t, http.StatusOK, get())
	clock = clock.Add(1)
	require.Equal(t, http.StatusUnauthorized, get())
}

// TestAReviewHoldsForAWhile: what Kubernetes says of an owner is asked for again
// after reviewCacheTime, and no sooner.
func TestAReviewHoldsForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock, asked := time.Now(), 0
	w.server.now = func() time.Time { return clock }
	defer w.between(func(verb string, o client.Object) error {
		if _, ours := o.(v1alpha1.ConditionedObject); !ours && verb == "create" {
			asked++
		}
		return nil
	})()
	key := w.key(t, nil)
	get := func() int {
		status, _ := w.call(t, key, http.MethodGet, "/runs", "")
		require.Equal(t, http.StatusOK, status)
		return asked
	}
	require.Equal(t, 1, get())
	clock = clock.Add(reviewCacheTime - 1)
	require.Equal(t, 1, get())
	clock = clock.Add(1)
	require.Equal(t, 2, get())
}
