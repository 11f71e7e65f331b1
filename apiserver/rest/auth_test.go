// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

func TestOldest_ReturnsFirstCreatedKeys(t *testing.T) {
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
			require.Equal(t, c.want, oldestKeys(c.given))
		})
	}
}

// The names of the objects do not matter.
func TestFirst_PrefersHolderOfID(t *testing.T) {
	t.Parallel()
	made := func(name, uid string) *v1alpha1.APIKey {
		return &v1alpha1.APIKey{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(uid)}}
	}
	project, holders := uuid.New(), holders{}
	s := &Service{Store: &holders}
	a, b := made("a", "1"), made("b", "2")
	first := func(keys ...*v1alpha1.APIKey) *v1alpha1.APIKey {
		key, err := s.chooseKey(t.Context(), project, keys)
		require.NoError(t, err)
		return key
	}
	require.Nil(t, first())
	require.Equal(t, a, first(a, b), "no key holds an ID yet")
	holders.id, holders.ref = v1alpha1.ProjectObjectID(project, "APIKey", "b"), store.ObjectRef{ObjectUID: "2"}
	require.Equal(t, b, first(a, b))
	require.Equal(t, a, first(a, made("b", "3")), "an earlier object with this name holds the ID")
	holders.err = io.EOF
	_, err := s.chooseKey(t.Context(), project, []*v1alpha1.APIKey{a, b})
	require.ErrorIs(t, err, io.EOF)
}

// holders is a store in which one object holds an ID.
type holders struct {
	Store
	id  uuid.UUID
	ref store.ObjectRef
	err error
}

func (h *holders) Holder(_ context.Context, key store.Key) (store.ObjectRef, error) {
	switch {
	case h.err != nil:
		return store.ObjectRef{}, h.err
	case key.ID != h.id:
		return store.ObjectRef{}, store.ErrNotFound
	default:
		return h.ref, nil
	}
}
