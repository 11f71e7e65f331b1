// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

// keyObject makes the object of a key in a namespace.
func keyObject(t *testing.T, w *apiservertest.Project, namespace, name string, key keys.Key, change func(*v1alpha1.APIKeySpec)) *v1alpha1.APIKey {
	t.Helper()
	object := &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.APIKeySpec{
			Hash: key.Hash(), KeyID: key.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	require.NoError(t, w.Client.Create(t.Context(), object))
	return object
}

// emptyCaches replaces the facade by a facade with empty caches.
func emptyCaches(t testing.TB, w *apiservertest.Project) {
	t.Helper()
	w.Server = w.NewReplica(t, nil)
}

// The hash can be public in Git, so a copy of the object in any namespace must not affect the key.
func TestAuth_IgnoresCopiesOfKeys(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := keys.Generate()
	get := func() int {
		emptyCaches(t, w)
		status, _ := w.Call(t, key.String(), http.MethodGet, "/environments", "")
		return status
	}
	original := keyObject(t, w, w.Namespace, "ci", key, nil)
	require.Equal(t, http.StatusOK, get(), "it holds its id now")
	elsewhere := "a-" + w.Namespace // sorts first
	require.NoError(t, w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}))
	keyObject(t, w, elsewhere, "ci", key, nil)
	keyObject(t, w, w.Namespace, "zz", key, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	require.Equal(t, http.StatusOK, get(), "the copies narrow nothing")

	before := original.DeepCopy()
	original.Spec.Revoked = true
	require.NoError(t, w.Client.Patch(t.Context(), original, client.MergeFrom(before)))
	require.Equal(t, http.StatusUnauthorized, get(), "and no copy outlives the key")
}

// The audit log records the key by its ID, so a key without a claimed ID is rejected.
func TestAuth_RequiresClaimedKeyID(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	taken, key := uuid.New(), keys.Generate()
	require.NoError(t, w.Store.ClaimID(t.Context(), store.Key{ProjectID: w.ProjectID, ID: taken},
		store.ObjectRef{Namespace: w.Namespace, Kind: store.KindConnector, Name: "decoy", ObjectUID: "u", Generation: 1}))
	keyObject(t, w, w.Namespace, "sly", key, func(k *v1alpha1.APIKeySpec) { k.ID = v1alpha1.UUID(taken.String()) })
	status, _ := w.Call(t, key.String(), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusUnauthorized, status)

	free := keys.Generate()
	object := keyObject(t, w, w.Namespace, "plain", free, nil)
	status, _ = w.Call(t, free.String(), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status)
	holder, err := w.Store.Holder(t.Context(), store.Key{ProjectID: w.ProjectID, ID: v1alpha1.ProjectObjectID(w.ProjectID, "APIKey", "plain")})
	require.NoError(t, err)
	require.Equal(t, string(object.UID), holder.ObjectUID)
}

// The facade reads the object before it accepts a key from the index.
func TestAuth_ReadsKeyThroughStaleIndex(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	for name, end := range map[string]func(o *v1alpha1.APIKey) error{
		"revoked": func(o *v1alpha1.APIKey) error {
			o.Spec.Revoked = true
			return w.Client.Update(t.Context(), o)
		},
		"deleted": func(o *v1alpha1.APIKey) error { return w.Client.Delete(t.Context(), o) },
		"made anew": func(o *v1alpha1.APIKey) error {
			again := &v1alpha1.APIKey{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Spec: o.Spec}
			return errors.Join(w.Client.Delete(t.Context(), o), w.Client.Create(t.Context(), again))
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := keys.Generate()
			o := keyObject(t, w, w.Namespace, strings.ReplaceAll(name, " ", "-"), key, nil)
			snapshot := o.DeepCopy()
			stale := interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if known, ok := list.(*v1alpha1.APIKeyList); ok {
						known.Items = []v1alpha1.APIKey{*snapshot}
						return nil
					}
					return c.List(ctx, list, opts...)
				},
			})
			call := func() int {
				facade := w.NewReplica(t, func(o *apiserver.Options) {
					o.Index = apiservertest.WithoutLookupLimit(rest.NewIndex(stale, nil, apiservertest.DiscardLogger()))
				})
				return w.SendTo(t, facade, key.String(), http.MethodGet, "/v1/projects/"+w.ProjectID.String()+"/environments", "").Code
			}
			require.Equal(t, http.StatusOK, call())
			require.NoError(t, end(o))
			require.Equal(t, http.StatusUnauthorized, call())
		})
	}
}

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
