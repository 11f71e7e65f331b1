// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// The facade looks a key up again after KeyCacheTime.
func TestAuth_RevokedKeyEndsWithCache(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	clock := time.Now()
	w.Server.Service.Now = func() time.Time { return clock }
	key := w.CreateKey(t, nil)
	get := func() int {
		status, _ := w.Call(t, key, http.MethodGet, "/environments", "")
		return status
	}
	require.Equal(t, http.StatusOK, get())
	var list v1alpha1.APIKeyList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
	list.Items[0].Spec.Revoked = true
	require.NoError(t, w.Client.Update(t.Context(), &list.Items[0]))
	clock = clock.Add(rest.KeyCacheTime - 1)
	require.Equal(t, http.StatusOK, get())
	clock = clock.Add(1)
	require.Equal(t, http.StatusUnauthorized, get())
}

// The facade asks Kubernetes about an owner again after ReviewCacheTime.
func TestPermissions_CacheReviews(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	clock, asked := time.Now(), 0
	w.Server.Service.Now = func() time.Time { return clock }
	defer w.FailWrites(func(verb string, o client.Object) error {
		if _, ours := o.(v1alpha1.ConditionedObject); !ours && verb == "create" {
			asked++
		}
		return nil
	})()
	key := w.CreateKey(t, nil)
	get := func() int {
		status, _ := w.Call(t, key, http.MethodGet, "/runs", "")
		require.Equal(t, http.StatusOK, status)
		return asked
	}
	require.Equal(t, 1, get())
	clock = clock.Add(rest.ReviewCacheTime - 1)
	require.Equal(t, 1, get())
	clock = clock.Add(1)
	require.Equal(t, 2, get())
}
