// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// priorityPolicy is the name that stands in every refusal of a pod.
const priorityPolicy = "agentplatform-priority"

// podOf is a pod with a PriorityClass, "" for none.
func podOf(namespace, class string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec:       corev1.PodSpec{PriorityClassName: class, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
	}
}

// prioritized is a policed control plane with the class of config/priority, which
// it names.
func prioritized(t *testing.T) (control *kube.ControlPlane, class string) {
	t.Helper()
	control = policed(t)
	for _, o := range kube.Manifests(t, "config/priority") {
		require.NoError(t, control.Client.Create(t.Context(), o))
		class = o.GetName()
	}
	elsewhere := control.Namespace(t)
	deadline := time.Now().Add(policyTimeout)
	for control.Client.Create(t.Context(), podOf(elsewhere, class), client.DryRunAll) == nil {
		require.True(t, time.Now().Before(deadline), "the policy is not in force")
	}
	return control, class
}

// Else every tenant could preempt others.
func TestPriority_IsForPlatformPods(t *testing.T) {
	t.Parallel()
	control, class := prioritized(t)
	other := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class + "-other"}, Value: 1}
	require.NoError(t, control.Client.Create(t.Context(), other))
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}}
	require.NoError(t, client.IgnoreAlreadyExists(control.Client.Create(t.Context(), system)))

	tenant := &person{t: t, control: control, namespace: control.Namespace(t)}
	tenant.become("tenant")
	tenant.may(rule("", "pods", "create"))
	for who, c := range map[string]client.Client{"a tenant": tenant.client, "the administrator": control.Client} {
		t.Run(who, func(t *testing.T) {
			err := c.Create(t.Context(), podOf(tenant.namespace, class))
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, priorityPolicy)
			require.ErrorContains(t, err, "remove spec.priorityClassName or name another class")
			for _, free := range []string{"", other.Name} {
				require.NoError(t, c.Create(t.Context(), podOf(tenant.namespace, free)), "%s with class %q", who, free)
			}
		})
	}
	own := podOf(kube.SystemNamespace, class)
	require.NoError(t, control.Client.Create(t.Context(), own))
	require.Positive(t, *own.Spec.Priority)
}
