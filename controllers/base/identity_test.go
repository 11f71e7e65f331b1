// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// ids is a store with one environment whose claims a function decides.
type ids struct {
	base.Store
	claim       func(key store.Key, ref store.ObjectRef) error
	environment store.Environment
}

func (i ids) ClaimID(_ context.Context, key store.Key, ref store.ObjectRef) error {
	return i.claim(key, ref)
}

func (i ids) Environment(_ context.Context, key store.Key) (store.Environment, error) {
	if key != i.environment.Key() {
		return store.Environment{}, store.ErrNotFound
	}
	return i.environment, nil
}

// cached returns a client like the cache.
func cached(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(objects...).Build()
}

func request(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

func dev(uid string, generation int64) *v1alpha1.Environment {
	return &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "dev", UID: types.UID(uid), Generation: generation,
	}}
}

// An object whose ID another object holds does nothing and shows no ID, whatever its status was.
func TestReconcile_ClaimsIDFirst(t *testing.T) {
	t.Parallel()
	platform := uuid.New()
	environment := dev("u", 1)
	environment.Status.ID = "the victim's"
	c := cached(t, environment)
	holder := store.ObjectRef{Kind: "Environment", Namespace: "team", Name: "production"}
	keeper := &base.Base{Client: c, Reader: c, PlatformID: platform, Store: ids{claim: func(key store.Key, _ store.ObjectRef) error {
		require.Equal(t, v1alpha1.ProjectID(platform, "team"), key.ProjectID)
		return &store.IDTakenError{Holder: holder}
	}}}
	found := &v1alpha1.Environment{}
	_, err := keeper.Reconcile(t.Context(), request(environment), found, func(context.Context, store.Key) (time.Duration, error) {
		t.Error("work was begun")
		return 0, nil
	})
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(environment), found))
	require.Empty(t, found.Status.ID)
	require.Equal(t, v1alpha1.ReasonIDTaken, found.Status.Condition(v1alpha1.ConditionStalled).Reason)
	require.Contains(t, found.Status.Condition(v1alpha1.ConditionStalled).Message, "team/production")
}

// An older generation is accepted after a restore of etcd, and not while the cache is stale.
func TestClaim_AcceptsRestoredGeneration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now     *v1alpha1.Environment // without a cache; nil if deleted
		again   bool                  // whether the claim is repeated as restored
		refused bool                  // another write happened meanwhile
	}{
		"restored": {now: dev("u", 3), again: true},
		"restored, and written by another process": {now: dev("u", 3), again: true, refused: true},
		"newer generation without the cache":       {now: dev("u", 9)},
		"re-created object":                        {now: dev("v", 3)},
		"deleted object":                           {},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []store.ObjectRef
			worked := false
			reader := cached(t)
			if c.now != nil {
				reader = cached(t, c.now)
			}
			environment := dev("u", 3)
			keeper := &base.Base{Client: cached(t, environment), Reader: reader, Store: ids{claim: func(_ store.Key, ref store.ObjectRef) error {
				asked = append(asked, ref)
				if ref.Restored == 17 && !c.refused {
					return nil
				}
				return &store.StaleError{Stored: 9, Writes: 17}
			}}}
			result, err := keeper.Reconcile(t.Context(), request(environment), &v1alpha1.Environment{},
				func(context.Context, store.Key) (time.Duration, error) {
					worked = true
					return 0, nil
				})
			require.NoError(t, err)
			require.Equal(t, c.again && !c.refused, worked)
			require.Equal(t, !worked, result.RequeueAfter > 0, "looked at again")
			require.Equal(t, c.again, len(asked) == 2)
			if c.again {
				require.EqualValues(t, 17, asked[1].Restored)
				require.EqualValues(t, 3, asked[1].Generation)
			}
		})
	}
}

// A row of an object with another UID, of another object, or a missing row is not in effect.
func TestReference_RequiresMatchingObjectUID(t *testing.T) {
	t.Parallel()
	platform := uuid.New()
	project := v1alpha1.ProjectID(platform, "team")
	environment := dev("u", 1)
	environment.Status.ID = uuid.NewString() // written by a tenant
	row := store.Environment{
		ProjectID: project, ID: v1alpha1.ProjectObjectID(project, "Environment", "dev"),
		Ref: store.ObjectRef{Namespace: "team", Kind: "Environment", Name: "dev", ObjectUID: "u"},
	}
	for name, c := range map[string]struct {
		change func(*store.Environment)
		found  bool
	}{
		"same object":               {func(*store.Environment) {}, true},
		"another object UID":        {func(e *store.Environment) { e.Ref.ObjectUID = "v" }, false},
		"another name":              {func(e *store.Environment) { e.Ref.Name = "production" }, false},
		"row without an object UID": {func(e *store.Environment) { e.Ref.ObjectUID = "" }, false},
		"another ID":                {func(e *store.Environment) { e.ID = uuid.New() }, false},
		"another project":           {func(e *store.Environment) { e.ProjectID = uuid.New() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			stored := row
			c.change(&stored)
			keeper := &base.Base{Client: cached(t, environment), PlatformID: platform, Store: ids{environment: stored}}
			_, got, err := keeper.Environment(t.Context(), "team", "dev")
			if c.found {
				require.NoError(t, err)
				require.Equal(t, stored, got)
				return
			}
			var missing *base.MissingError
			require.ErrorAs(t, err, &missing)
			require.True(t, missing.Unready)
		})
	}
}
