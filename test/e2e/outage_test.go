// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("The data plane", Serial, func() {
	It("works without the control plane, also after SIGKILL", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 2)
		t.live(ctx, "v1")
		t.running(ctx, 2) // runs that have not started when kube-apiserver stops do not start during the outage
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		gateways := gatewayPods(ctx)
		if cluster.split { // the single process continues; of the three components only the gateway continues
			scale(ctx, 0)
		}
		devcluster(ctx, "stop", "kube-apiserver")
		DeferCleanup(func(ctx SpecContext) {
			devcluster(ctx, "start", "kube-apiserver")
			if cluster.split {
				scale(ctx, 2)
			}
		})
		runs := t.calls(ctx, ask, events, 20)
		say("kube-apiserver is stopped: %d webhooks answered", 2*20)

		signal(ctx, syscall.SIGKILL, gateways...)
		Eventually(ctx, func() int { return ask.post(ctx, cluster.gateway, `{}`).Status }).
			WithTimeout(patience).WithPolling(2 * interval).Should(Equal(http.StatusOK))
		begin := time.Now()
		runs = append(runs, t.calls(ctx, ask, events, 20)...)
		say("after SIGKILL of the gateway: %d webhooks answered in %.1f s", 2*20, time.Since(begin).Seconds())

		devcluster(ctx, "start", "kube-apiserver")
		if cluster.split {
			scale(ctx, 2)
		}
		t.complete(ctx, runs)
		say("%d of %d runs completed", len(runs), len(runs))
	}, SpecTimeout(8*time.Minute))

	It("is restarted under load without refusing anybody, where it has replicas", needsReplicas, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		t.running(ctx, 1)
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		traffic := startLoad(ctx, cluster.gateway, 20, ask, events)
		for _, args := range [][]string{{"rollout", "restart"}, {"rollout", "status", "--timeout=180s"}} {
			out, err := kubectl(ctx, append([]string{"-n", systemNamespace}, append(args, "deployment/agentplatform-webhookgw")...)...)
			Expect(err).NotTo(HaveOccurred(), out)
		}
		pause(ctx, 15*time.Second) // the old pods drain
		replies := traffic.end()
		for _, r := range replies {
			Expect(r.Status).To(Equal(http.StatusOK), "%s", r.Body)
		}
		say("all gateways restarted under 20 requests/s: %d requests, all 2xx", len(replies))
	}, SpecTimeout(8*time.Minute))

	It("lets the namespace go within a minute", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
		begin := time.Now()
		gone(ctx, t.namespace)
		took := time.Since(begin)
		say("the namespace was gone after %.1f s", took.Seconds())
		Expect(took).To(BeNumerically("<", time.Minute))
	}, SpecTimeout(8*time.Minute))
})

// calls posts n times to each hook and returns the runs.
func (t *team) calls(ctx context.Context, ask, events *hook, n int) (runs []string) {
	GinkgoHelper()
	for i := range n {
		begin := time.Now()
		answer := ask.post(ctx, cluster.gateway, `{}`)
		Expect(answer.Status).To(Equal(http.StatusOK), "sync call %d after %s: %s", i+1, time.Since(begin), answer.Body)
		Expect(answer.Result.Status).To(Equal("completed"), "sync call %d after %s: %s", i+1, time.Since(begin), answer.Body)
		begin = time.Now()
		accepted := events.post(ctx, cluster.gateway, `{}`)
		Expect(accepted.Status).To(Equal(http.StatusOK), "inbound call %d after %s: %s", i+1, time.Since(begin), accepted.Body)
		runs = append(append(runs, answer.Result.RunID), accepted.RunIDs...)
	}
	return runs
}

// scale gives manager and facade n replicas and waits until they are so.
func scale(ctx context.Context, n int32) {
	GinkgoHelper()
	for _, name := range []string{"agentplatform-manager", "agentplatform-apiserver"} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}
		Eventually(ctx, func() error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			d.Spec.Replicas = ptr.To(n)
			return cluster.Update(ctx, d)
		}).WithTimeout(patience).WithPolling(2 * interval).Should(Succeed())
		component := client.MatchingLabels(d.Spec.Selector.MatchLabels)
		Eventually(ctx, func() int {
			list := &corev1.PodList{}
			if err := cluster.List(ctx, list, client.InNamespace(systemNamespace), component); err != nil {
				return -1
			}
			if n > 0 && cluster.Get(ctx, client.ObjectKeyFromObject(d), d) == nil {
				return int(d.Status.ReadyReplicas)
			}
			return len(list.Items)
		}).WithTimeout(patience).WithPolling(2 * interval).Should(BeEquivalentTo(n))
	}
}
