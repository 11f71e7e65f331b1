// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

// keyObject makes the object of a key in a namespace.
func (w *world) keyObject(t *testing.T, namespace, name string, key keys.Key, change func(*v1alpha1.APIKeySpec)) *v1alpha1.APIKey {
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
	require.NoError(t, w.client.Create(t.Context(), object))
	return object
}

// forget lets the facade look for keys anew.
func (w *world) forget() {
	w.server.keys = cache.New[askedKey, credential](cacheSize, keyCacheTime, nil)
	w.server.index.absent = cache.New[string, struct{}](cacheSize, absentTime, nil)
}

// TestACopyOfAKeysObjectDisturbsNobody: the hash may lie in Git, so that anybody
// may make an object of it, in another namespace or in the same one.
func TestACopyOfAKeysObjectDisturbsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := keys.Generate()
	get := func() int {
		w.forget()
		status, _ := w.call(t, key.String(), http.MethodGet, "/environments", "")
		return status
	}
	original := w.keyObject(t, w.namespace, "ci", key, nil)
	require.Equal(t, http.StatusOK, get(), "it holds its id now")
	elsewhere := "a-" + w.namespace // sorts first
	require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}))
	w.keyObject(t, elsewhere, "ci", key, nil)
	w.keyObject(t, w.namespace, "zz", key, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
	require.Equal(t, http.StatusOK, get(), "the copies narrow nothing")

	before := original.DeepCopy()
	original.Spec.Revoked = true
	require.NoError(t, w.client.Patch(t.Context(), original, client.MergeFrom(before)))
	require.Equal(t, http.StatusUnauthorized, get(), "and no copy outlives the key")
}

// TestAKeyCountsOnceItHoldsItsID: what is written into the trail by its id is
// what opens the door.
func TestAKeyCountsOnceItHoldsItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	taken, key := uuid.New(), keys.Generate()
	require.NoError(t, w.db.ClaimID(t.Context(), store.Key{ProjectID: w.projectID, ID: taken},
		store.ObjectRef{Namespace: w.namespace, Kind: store.KindConnector, Name: "decoy", ObjectUID: "u", Generation: 1}))
	w.keyObject(t, w.namespace, "sly", key, func(k *v1alpha1.APIKeySpec) { k.ID = v1alpha1.UUID(taken.String()) })
	status, _ := w.call(t, key.String(), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusUnauthorized, status)

	free := keys.Generate()
	object := w.keyObject(t, w.namespace, "plain", free, nil)
	status, _ = w.call(t, free.String(), http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status)
	holder, err := w.db.Holder(t.Context(), store.Key{ProjectID: w.projectID, ID: v1alpha1.ProjectObjectID(w.projectID, "APIKey", "plain")})
	require.NoError(t, err)
	require.Equal(t, string(object.UID), holder.ObjectUID)
}

func TestTheOldestKeysCount(t *testing.T) {
	t.Parallel()
	made := func(uid string, seconds int64) *v1alpha1.APIKey {
		return &v1alpha1.APIKey{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(seconds, 0))}}
	}
	for name, c := range map[string]struct{ given, want []*v1alpha1.APIKey }{
		"no key":              {nil, nil},
		"one key":             {[]*v1alpha1.APIKey{made("a", 1)}, []*v1alpha1.APIKey{made("a", 1)}},
		"the first is older":  {[]*v1alpha1.APIKey{made("b", 1), made("a", 2)}, []*v1alpha1.APIKey{made("b", 1)}},
		"the second is older": {[]*v1alpha1.APIKey{made("b", 2), made("a", 1)}, []*v1alpha1.APIKey{made("a", 1)}},
		"two of one age":      {[]*v1alpha1.APIKey{made("c", 2), made("b", 1), made("a", 1)}, []*v1alpha1.APIKey{made("a", 1), made("b", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, oldest(c.given))
		})
	}
}

// TestOfEqualKeysTheOneThatHoldsItsIDCounts: whatever they are called.
func TestOfEqualKeysTheOneThatHoldsItsIDCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := func(name, uid string) *v1alpha1.APIKey {
		return &v1alpha1.APIKey{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, UID: types.UID(uid)}}
	}
	a, b := made("a", "1"), made("b", "2")
	first := func(keys ...*v1alpha1.APIKey) *v1alpha1.APIKey {
		key, err := w.server.first(t.Context(), w.projectID, keys)
		require.NoError(t, err)
		return key
	}
	require.Nil(t, first())
	require.Equal(t, a, first(a, b), "nobody holds an id yet")
	id := store.Key{ProjectID: w.projectID, ID: v1alpha1.ProjectObjectID(w.projectID, "APIKey", "b")}
	require.NoError(t, w.db.ClaimID(t.Context(), id, w.ref(b)))
	require.Equal(t, b, first(a, b))
	impostor := made("b", "3")
	require.Equal(t, a, first(a, impostor), "the id is another incarnation's")
	w.server.store = failingStore{Store: w.db, err: io.EOF}
	_, err := w.server.first(t.Context(), w.projectID, []*v1alpha1.APIKey{a, b})
	require.ErrorIs(t, err, io.EOF)
}

// TestAnIndexThatLagsOpensNothing: what it has not heard of yet is read.
func TestAnIndexThatLagsOpensNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, end := range map[string]func(o *v1alpha1.APIKey) error{
		"revoked": func(o *v1alpha1.APIKey) error {
			o.Spec.Revoked = true
			return w.client.Update(t.Context(), o)
		},
		"deleted": func(o *v1alpha1.APIKey) error { return w.client.Delete(t.Context(), o) },
		"made anew": func(o *v1alpha1.APIKey) error {
			again := &v1alpha1.APIKey{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Spec: o.Spec}
			return errors.Join(w.client.Delete(t.Context(), o), w.client.Create(t.Context(), again))
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := keys.Generate()
			o := w.keyObject(t, w.namespace, strings.ReplaceAll(name, " ", "-"), key, nil)
			require.NoError(t, w.server.index.keys.informers[0].GetIndexer().Add(o.DeepCopy()))
			call := func() int {
				w.forget()
				status, _ := w.call(t, key.String(), http.MethodGet, "/environments", "")
				return status
			}
			require.Equal(t, http.StatusOK, call())
			require.NoError(t, end(o))
			require.Equal(t, http.StatusUnauthorized, call())
		})
	}
}
