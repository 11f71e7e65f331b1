// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// notYet lists the metrics that a replica does not export at first: metrics that appear with the first request, and metrics of
// the leader.
var notYet = []string{
	"agentplatform_api_requests_total", "agentplatform_api_request_duration_seconds",
	"agentplatform_dispatch_requests_total", "agentplatform_dispatch_request_duration_seconds",
	"agentplatform_sweep_refused_objects",
}

var _ = Describe("Metrics", func() {
	It("are served by every pod of the platform, and move with what it does", perInstallation, func(ctx SpecContext) {
		processes := []string{"all"}
		if cluster.split {
			processes = components
		}
		for _, process := range processes {
			found := component(ctx, process)
			Expect(found).NotTo(BeEmpty(), process)
			for _, pod := range found {
				scrape(ctx, pod).Check(GinkgoTB(), process, notYet...)
			}
		}

		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		events := t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		accepted := func() float64 {
			return sum(ctx, "agentplatform_webhooks_accepted_total", "mode", "inbound", "result", "recorded")
		}
		completed := func() float64 { return sum(ctx, "agentplatform_ended_runs_total", "status", "completed") }
		before, ended := accepted(), completed()
		const webhooks = 10
		for range webhooks {
			answer := events.post(ctx, cluster.gateway, `{"name": "Ada"}`)
			Expect(answer.Status).To(Equal(http.StatusOK), "%s", answer.Body)
		}
		// Other specs may send webhooks at the same time.
		Expect(accepted() - before).To(BeNumerically(">=", webhooks))
		Eventually(ctx, func() float64 { return completed() - ended }).WithTimeout(patience).WithPolling(2 * interval).
			Should(BeNumerically(">=", webhooks))
		for _, pod := range gatewayPods(ctx) {
			s := scrape(ctx, pod)
			Expect(s.Text()).NotTo(ContainSubstring(t.project.String()))
			Expect(s.Text()).NotTo(ContainSubstring(t.namespace))
			Expect(s.Value(GinkgoTB(), "agentplatform_store_reachable")).To(Equal(1.0))
		}
		say("every replica serves the metrics of docs/reference/metrics.md, and no label names a tenant")
	}, SpecTimeout(5*time.Minute))

	It("are not behind a Service", perInstallation, func(ctx SpecContext) {
		services := &corev1.ServiceList{}
		Expect(cluster.List(ctx, services, client.InNamespace(systemNamespace))).To(Succeed())
		for _, service := range services.Items {
			for _, port := range service.Spec.Ports {
				Expect(port.TargetPort.StrVal).NotTo(BeElementOf("metrics", "health"), service.Name)
			}
		}
		for _, base := range []string{cluster.gateway, cluster.api} {
			status, _ := call(ctx, http.MethodGet, base+"/metrics", nil, nil)
			Expect(status).NotTo(Equal(http.StatusOK), base)
		}
	})
})

// scrape reads the metrics of a pod as Prometheus does.
func scrape(ctx context.Context, pod corev1.Pod) metrictest.Served {
	GinkgoHelper()
	ports := pod.Spec.Containers[0].Ports
	i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" })
	Expect(i).NotTo(Equal(-1), "%s has no port metrics", pod.Name)
	addr := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(ports[i].ContainerPort)))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := httpClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	Expect(resp.StatusCode).To(Equal(http.StatusOK))
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return metrictest.Parse(GinkgoTB(), text)
}

// sum returns the total of a counter over all gateways.
func sum(ctx context.Context, name string, labels ...string) (total float64) {
	GinkgoHelper()
	for _, pod := range gatewayPods(ctx) {
		total += scrape(ctx, pod).Value(GinkgoTB(), name, labels...)
	}
	return total
}
