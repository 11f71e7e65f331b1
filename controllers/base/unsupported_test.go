// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// claimsAll is a store that grants every ID.
type claimsAll struct{ base.Store }

func (claimsAll) ClaimID(context.Context, store.Key, store.ObjectRef) error { return nil }

// No work starts for an object with an unsupported spec.
func TestReconcile_RejectsUnsupportedSpec(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	at := metav1.ObjectMeta{Namespace: "support", Name: "project", UID: "u", Generation: 2}
	for _, o := range []v1alpha1.ConditionedObject{
		&v1alpha1.Project{ObjectMeta: at, Spec: v1alpha1.ProjectSpec{
			ModelProviders: []v1alpha1.ModelProvider{{Prefix: "claude", Type: v1alpha1.ModelProviderAnthropic}},
		}},
	} {
		held := o.(client.Object)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(held).WithStatusSubresource(held).Build()
		keeper := &base.Base{Client: c, Reader: c, Store: claimsAll{}}
		found := o.DeepCopyObject().(v1alpha1.ConditionedObject)
		result, err := keeper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(held)}, found,
			func(context.Context, store.Key) (time.Duration, error) {
				t.Errorf("%s: work was begun", o.ObjectKind())
				return 0, nil
			})
		require.NoError(t, err)
		require.Zero(t, result, "nothing mends itself")
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(held), held))
		require.True(t, v1alpha1.IsStalled(o), o.ObjectKind())
		require.Equal(t, v1alpha1.ReasonNotSupported, o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason)
		require.Contains(t, o.CommonStatus().Condition(v1alpha1.ConditionStalled).Message, o.Unsupported()[0])
	}
}
