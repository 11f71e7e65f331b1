// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
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

// With one process the store goes with its namespace; with three the cluster is
// another and PostgreSQL stays. The same manifests and keys come back to both.
var _ = Describe("A cluster that was emptied", Serial, func() {
	It("comes back from its manifests and keys", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		first := t.live(ctx, "v1")
		second := t.live(ctx, "v2")
		before := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
		connector := &v1alpha1.Connector{ObjectMeta: t.at("ask")}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(connector), connector)).To(Succeed())
		url := connector.Status.URL

		By("emptying the cluster and installing again with the old keys")
		keys := &corev1.Secret{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-keys"}, keys)).To(Succeed())
		t.reinstall(ctx, keys)

		By("applying the same manifests")
		t.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}})
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("model"), StringData: map[string]string{"apiKey": "e2e-key"}})
		for _, o := range append(t.manifests(1), manifest(second), manifest(first)) {
			t.create(ctx, o)
		}
		after := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
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
			WithTimeout(patience).WithPolling(10 * interval).Should(HavePrefix("hello from v"))
	}, SpecTimeout(10*time.Minute))
})

// manifest is a deployment as Git has it.
func manifest(d *v1alpha1.Deployment) *v1alpha1.Deployment {
	return &v1alpha1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name},
		Spec:       v1alpha1.DeploymentSpec{Environment: d.Spec.Environment, Source: d.Spec.Source},
	}
}

// reinstall installs the platform again with keys that were kept: with one
// process after all namespaces were deleted, and the store with them; with three
// in a new cluster on the old store, which saw nothing of the old cluster's end.
func (t *team) reinstall(ctx context.Context, keys *corev1.Secret) {
	GinkgoHelper()
	runner, err := filepath.Abs("../../bin/e2e-runner")
	Expect(err).NotTo(HaveOccurred())
	kept, install := []*corev1.Secret{keys}, []string{"install", "embedded"}
	if cluster.split {
		dsn := &corev1.Secret{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-postgres"}, dsn)).To(Succeed())
		kept, install = append(kept, dsn), []string{"up", "default", runner}
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
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: s.Labels}, Data: s.Data,
		})).To(Succeed())
	}
	adopted := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(adopted)
		if cluster.split {
			adopt(ctx)
		}
	}()
	out, err := exec.CommandContext(ctx, "../../hack/platform.sh", install...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	<-adopted
	locate(ctx)
}

// adopt hands the store to the new cluster as soon as its manager's pod runs,
// which waits for that.
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
	}).WithTimeout(5 * time.Minute).WithPolling(10 * interval).Should(Succeed())
}
