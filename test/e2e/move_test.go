// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// With one process the store is deleted with its namespace. With three components the cluster is new and PostgreSQL stays. In
// both cases the test restores the same manifests and keys.
var _ = Describe("A cluster that was emptied", Serial, func() {
	It("comes back from its manifests and keys", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		first := t.live(ctx, "v1")
		second := t.live(ctx, "v2")
		before, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		forgotten := t.hook(ctx, "forgotten", v1alpha1.ModeInbound, "hello")
		connector := &v1alpha1.Connector{ObjectMeta: t.at("ask")}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(connector), connector)).To(Succeed())
		url := connector.Status.URL

		By("emptying the cluster and installing again with the old keys")
		keys := &corev1.Secret{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-keys"}, keys)).To(Succeed())
		traffic := t.reinstall(ctx, keys, events)

		By("applying the same manifests")
		t.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}})
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("model"), StringData: map[string]string{"apiKey": "e2e-key"}})
		for _, o := range append(t.manifests(1), manifest(second), manifest(first)) {
			t.create(ctx, o)
		}
		after := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
		t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(connector), connector)).To(Succeed())
		Expect(connector.Status.URL).To(Equal(url))
		Expect(after.secret).To(Equal(before.secret))
		again := &v1alpha1.Deployment{ObjectMeta: t.at("v2")}
		if cluster.split {
			eventually(ctx, again, func() bool { return again.Status.Live })
			jobs := &batchv1.JobList{}
			Expect(cluster.List(ctx, jobs, client.InNamespace(t.namespace))).To(Succeed())
			Expect(jobs.Items).To(BeEmpty(), "nothing is built again")
			Expect(again.Status.Commit).To(Equal(second.Status.Commit))
			say("a new cluster with the old keys and the old store: same URL, same secret, live commit %s, no rebuild", again.Status.Commit)
		} else {
			say("old keys, empty store: same URL, same secret")
		}
		Eventually(ctx, func() string { return after.post(ctx, cluster.gateway, `{}`).Result.Output }).
			WithTimeout(patience).WithPolling(2 * interval).Should(HavePrefix("hello from v"))
		if traffic != nil {
			t.giveKey(ctx)
			t.judgeAdoption(ctx, traffic.end())
			Expect(forgotten.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK), "it may still come")
			finishAdoption(ctx)
			Eventually(ctx, func() int { return forgotten.post(ctx, cluster.gateway, `{}`).Status }).
				WithTimeout(patience).WithPolling(2 * interval).Should(Equal(http.StatusNotFound))
			Expect(after.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK), "existing rows are not swept")
		}
	}, SpecTimeout(10*time.Minute))
})

// judgeAdoption checks that every request got a response while the store changed clusters, and that every accepted run
// completed in the new cluster.
func (t *team) judgeAdoption(ctx context.Context, replies []reply) {
	GinkgoHelper()
	var runs []string
	for _, r := range replies {
		Expect(r.Status).To(Equal(http.StatusOK), "%s", r.Body)
		Expect(r.RunIDs).To(HaveLen(1))
		runs = append(runs, r.RunIDs...)
	}
	t.complete(ctx, runs)
	say("the store adopted by a second cluster under 20 requests/s: %d requests, all 2xx; %d of %d runs completed", len(replies), len(runs), len(replies))
}

// finishAdoption confirms that all objects exist, so that a starting manager sweeps all other rows.
func finishAdoption(ctx context.Context) {
	GinkgoHelper()
	for _, args := range [][]string{
		{"exec", "deploy/agentplatform-manager", "--", "agentctl", "store", "adopt", "--finish", "--store-dsn-file=/etc/agentplatform/postgres/dsn"},
		{"rollout", "restart", "deployment/agentplatform-manager"},
		{"rollout", "status", "--timeout=180s", "deployment/agentplatform-manager"},
	} {
		out, err := kubectl(ctx, append([]string{"-n", systemNamespace}, args...)...)
		Expect(err).NotTo(HaveOccurred(), out)
	}
}

// manifest returns the manifest of a deployment as in Git.
func manifest(d *v1alpha1.Deployment) *v1alpha1.Deployment {
	return &v1alpha1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name},
		Spec:       v1alpha1.DeploymentSpec{Environment: d.Spec.Environment, Source: d.Spec.Source},
	}
}

// reinstall installs the platform again with the saved keys. With one process it first deletes all namespaces, including the
// store. With three components it uses a new cluster on the old store, which did not notice the end of the old cluster. The
// returned load starts before the handover of the store and continues.
func (t *team) reinstall(ctx context.Context, keys *corev1.Secret, events *hook) (traffic *load) {
	GinkgoHelper()
	runner, err := filepath.Abs("../../bin/e2e-runner")
	Expect(err).NotTo(HaveOccurred())
	kept, install := []*corev1.Secret{keys}, []string{"install", "embedded"}
	if cluster.split {
		// With its certificate a gateway can serve requests before a manager is allowed to work.
		for _, name := range []string{"agentplatform-postgres", "agentplatform-ca", "agentplatform-dispatch-tls", "agentplatform-api-tls"} {
			s := &corev1.Secret{}
			Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: name}, s)).To(Succeed())
			kept = append(kept, s)
		}
		install = []string{"up", "default", runner}
		collectAudit()
		devcluster(ctx, "down")
		devcluster(ctx, "up")
		connect()
	} else {
		gone(ctx, t.namespace)
		gone(ctx, systemNamespace)
	}
	Expect(cluster.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})).To(Succeed())
	for _, s := range kept {
		Expect(cluster.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: s.Labels}, Data: s.Data, Type: s.Type,
		})).To(Succeed())
	}
	adopted := make(chan *load, 1)
	go func() {
		defer GinkgoRecover()
		defer close(adopted)
		if cluster.split {
			adopted <- adoptUnderLoad(ctx, events)
		}
	}()
	out, err := exec.CommandContext(ctx, "../../hack/platform.sh", install...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	traffic = <-adopted
	locate(ctx)
	return traffic
}

// adoptUnderLoad hands the store over when the gateways serve its connectors. It returns the load on the connectors.
func adoptUnderLoad(ctx context.Context, events *hook) *load {
	GinkgoHelper()
	gateway := ""
	Eventually(ctx, func() int {
		s := &corev1.Service{}
		if cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-gateway"}, s) != nil {
			return 0
		}
		gateway = "http://" + s.Spec.ClusterIP
		return events.post(ctx, gateway, `{}`).Status
	}).WithTimeout(5 * time.Minute).WithPolling(2 * interval).Should(Equal(http.StatusOK))
	traffic := startLoad(ctx, gateway, 20, events)
	adopt(ctx)
	return traffic
}

// adopt hands the store over to the new cluster as soon as its manager's pod runs. The manager waits for the handover.
func adopt(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		text, err := kubectl(ctx, "-n", systemNamespace, "exec", "deploy/agentplatform-manager", "--",
			"agentctl", "store", "adopt", "--store-dsn-file=/etc/agentplatform/postgres/dsn", "--wait=90s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		say("%s", text)
		return nil
	}).WithTimeout(5 * time.Minute).WithPolling(2 * interval).Should(Succeed())
}
