// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// components are the platform's Deployments, which have replicas.
var components = []string{"manager", "apiserver", "webhookgw"}

// The cluster has one node, so the node is not cordoned. The test evicts its pods as a drain does, and they return to the node.
var _ = Describe("A node that is drained", Serial, func() {
	It("refuses no webhook and loses no run, where the platform has replicas", needsReplicas, func(ctx SpecContext) {
		t := newTeam(ctx, 2)
		t.live(ctx, "v1")
		t.running(ctx, 2)
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		whole(ctx)
		old := map[string][]corev1.Pod{}
		for _, name := range components {
			old[name] = component(ctx, name)
			Expect(old[name]).To(HaveLen(2), name)
		}
		runners := pods(ctx, t.namespace, client.MatchingLabels{"app.kubernetes.io/component": "runner"})
		Expect(runners).To(HaveLen(2))

		traffic := startLoad(ctx, cluster.gateway, 20, ask, events)
		begin := time.Now()
		for i := range 2 {
			Expect(evict(ctx, runners[i])).To(Succeed(), "a pool is its project's, and has no budget")
			for _, name := range components {
				Expect(evict(ctx, old[name][i])).To(Succeed(), "replica %d of %s", i+1, name)
			}
			if i == 0 {
				for _, name := range components {
					Expect(apierrors.IsTooManyRequests(evict(ctx, old[name][1]))).To(BeTrue(),
						"%s: the other replica stays until the first is ready again", name)
				}
			}
			whole(ctx)
			t.running(ctx, 2)
		}
		took := time.Since(begin)
		pause(ctx, 6*time.Second) // the last to go still drain
		replies := traffic.end()
		for _, name := range components {
			for _, pod := range component(ctx, name) {
				for _, gone := range old[name] {
					Expect(pod.UID).NotTo(Equal(gone.UID))
				}
			}
		}
		t.judge(ctx, replies, "hello from v1")
		say("every pod of the platform and of a pool was evicted within %.0f s under 20 requests/s: %d requests, all 2xx, all runs completed",
			took.Seconds(), len(replies))
	}, SpecTimeout(5*time.Minute))
})

// component returns the running pods of one of the platform's Deployments.
func component(ctx context.Context, name string) []corev1.Pod {
	GinkgoHelper()
	return pods(ctx, systemNamespace, client.MatchingLabels{"app.kubernetes.io/name": "agentplatform", "app.kubernetes.io/component": name})
}

// evict requests the eviction of a pod as a drain does.
func evict(ctx context.Context, pod corev1.Pod) error {
	return cluster.SubResource("eviction").Create(ctx, &pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
	})
}

// whole waits until every replica is ready and each budget would let one go.
func whole(ctx context.Context) {
	GinkgoHelper()
	for _, name := range components {
		meta := metav1.ObjectMeta{Namespace: systemNamespace, Name: "agentplatform-" + name}
		deployment, budget := &appsv1.Deployment{ObjectMeta: meta}, &policyv1.PodDisruptionBudget{ObjectMeta: meta}
		eventually(ctx, deployment, func() bool { return deployment.Status.ReadyReplicas == *deployment.Spec.Replicas })
		eventually(ctx, budget, func() bool { return budget.Status.DisruptionsAllowed == 1 && len(budget.Status.DisruptedPods) == 0 })
	}
}
