// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// countedClaims is a store that counts claims. Its IDs are free, or belong to a given object.
type countedClaims struct {
	base.Store
	held   bool
	claims int
}

func (c *countedClaims) Holder(context.Context, store.Key) (store.ObjectRef, error) {
	if c.held {
		return store.ObjectRef{}, nil
	}
	return store.ObjectRef{}, store.ErrNotFound
}

func (c *countedClaims) ClaimID(context.Context, store.Key, store.ObjectRef) error {
	c.claims++
	return nil
}

// A free ID is claimed by the row that is put, otherwise before the status shows it.
func TestReconcilePut_ClaimsFreeIDOnce(t *testing.T) {
	t.Parallel()
	missing := &base.MissingError{Kind: "Connector", Name: "a"}
	for name, c := range map[string]struct {
		held        bool
		unsupported bool
		err         error
		want        int
		put         bool
	}{
		"new":                  {put: true},
		"new, and nothing put": {err: missing, want: 1, put: true},
		"known":                {held: true, want: 1, put: true},
		"not supported":        {unsupported: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			claims, put := &countedClaims{held: c.held}, false
			var o, found v1alpha1.ConditionedObject = dev("u", 1), &v1alpha1.Environment{}
			if c.unsupported {
				o, found = &v1alpha1.Project{ObjectMeta: dev("u", 1).ObjectMeta, Spec: v1alpha1.ProjectSpec{
					ModelProviders: []v1alpha1.ModelProvider{{Prefix: "claude", Type: v1alpha1.ModelProviderAnthropic}},
				}}, &v1alpha1.Project{}
			}
			cluster := cached(t, o.(client.Object))
			base := &base.Base{Client: cluster, Reader: cluster, Store: claims}
			_, err := base.ReconcilePut(t.Context(), request(o.(client.Object)), found, func(context.Context, store.Key) (time.Duration, error) {
				put = true
				return 0, c.err
			})
			require.NoError(t, err)
			require.Equal(t, c.want, claims.claims)
			require.Equal(t, c.put, put)
			require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(o.(client.Object)), found.(client.Object)))
			require.NotEmpty(t, found.CommonStatus().ID)
		})
	}

	environment := dev("u", 1)
	cluster := cached(t, environment)
	base := &base.Base{Client: cluster, Reader: cluster, Store: taken{}}
	found := &v1alpha1.Environment{}
	_, err := base.ReconcilePut(t.Context(), request(environment), found, func(context.Context, store.Key) (time.Duration, error) {
		return 0, errors.New("no row was put")
	})
	require.NoError(t, err)
	require.Empty(t, found.Status.ID)
	require.Equal(t, v1alpha1.ReasonIDTaken, found.Status.Condition(v1alpha1.ConditionStalled).Reason, "which says more")
}

// taken is a store whose ID is claimed by another object between two calls.
type taken struct{ base.Store }

func (taken) Holder(context.Context, store.Key) (store.ObjectRef, error) {
	return store.ObjectRef{}, store.ErrNotFound
}

func (taken) ClaimID(_ context.Context, _ store.Key, ref store.ObjectRef) error {
	return &store.IDTakenError{Holder: ref}
}
