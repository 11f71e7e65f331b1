// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// ordersPath is the path of a connector's file.
const ordersPath = "connectors/orders.yaml"

// deployFiles deploys the agents of a version with other files beside them, and waits until the
// deployment has ended.
func (t *team) deployFiles(ctx context.Context, version string, files map[string]*string, change func(*v1alpha1.DeploymentSpec)) *v1alpha1.Deployment {
	GinkgoHelper()
	all := agents(version)
	for path, content := range files {
		all[path] = content
	}
	hash := commit(ctx, version, all)
	d := &v1alpha1.Deployment{ObjectMeta: t.at(version), Spec: v1alpha1.DeploymentSpec{
		Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(hash)}},
	}}
	change(&d.Spec)
	t.create(ctx, d)
	eventually(ctx, d, func() bool { return d.Status.Phase.Terminal() })
	return d
}

// ofCode waits until the mirror of connectors/orders.yaml is as it should be.
func (t *team) ofCode(ctx context.Context, is func(*v1alpha1.Connector) bool) *v1alpha1.Connector {
	GinkgoHelper()
	c := &v1alpha1.Connector{ObjectMeta: t.at("dev.orders")}
	eventually(ctx, c, func() bool { return v1alpha1.IsReady(c) && is(c) })
	return c
}

var _ = Describe("A connector that a repository defines", func() {
	It("is live with its deployment, retired by the next, and back by a roll-back with the same URL and secret", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		as := func(*v1alpha1.DeploymentSpec) {}
		orders := map[string]*string{ordersPath: ptr.To("type: webhook\nmode: sync\nname: Orders\nagents: [hello]\n")}
		first := t.deployFiles(ctx, "code-1", orders, as)
		Expect(first.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), first.Status.Message)
		c := t.ofCode(ctx, func(c *v1alpha1.Connector) bool { return !c.Status.Retired })
		Expect(c.Status.DefinedInCode).To(BeTrue())
		url, h := c.Status.URL, t.known(ctx, c)
		answer := h.post(ctx, cluster.gateway, `{}`)
		Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
		Expect(answer.Result.Output).To(Equal("hello from code-1"))
		t.rest(ctx, http.MethodPatch, "/connectors/"+h.id, `{"name":"Other"}`, http.StatusConflict)
		t.rest(ctx, http.MethodDelete, "/connectors/"+h.id, "", http.StatusConflict)

		By("healing what somebody changes of it")
		before := c.DeepCopy()
		c.Spec.DisplayName = "Mine"
		Expect(cluster.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		eventually(ctx, c, func() bool { return c.Title() == "Orders" })

		By("retiring it")
		second := t.deployFiles(ctx, "code-2", nil, as)
		Expect(second.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), second.Status.Message)
		Expect(h.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusConflict))
		t.ofCode(ctx, func(c *v1alpha1.Connector) bool { return c.Status.Retired })
		t.rest(ctx, http.MethodPatch, "/connectors/"+h.id, `{"enabled":true}`, http.StatusConflict)

		By("rolling back")
		eventually(ctx, first, func() bool { return !first.Status.Live })
		was := first.DeepCopy()
		first.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Now().Truncate(time.Second))}
		Expect(cluster.Patch(ctx, first, client.MergeFrom(was))).To(Succeed())
		eventually(ctx, first, func() bool { return first.Status.Live })
		Expect(h.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK), "the secret of before")
		Expect(t.ofCode(ctx, func(c *v1alpha1.Connector) bool { return !c.Status.Retired }).Status.URL).To(Equal(url))

		By("failing a deployment that changes its mode")
		inbound := map[string]*string{ordersPath: ptr.To("type: webhook\nmode: inbound\nagents: [hello]\n")}
		bad := t.deployFiles(ctx, "code-3", inbound, as)
		Expect(bad.Status.FailureReason).To(Equal(v1alpha1.FailureConnectors), bad.Status.Message)
		Expect(h.post(ctx, cluster.gateway, `{}`).Result.Output).To(Equal("hello from code-1"))
		anyway := t.deployFiles(ctx, "code-4", inbound, func(spec *v1alpha1.DeploymentSpec) { spec.SkipFailedConnectors = true })
		Expect(anyway.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), anyway.Status.Message)
		Expect(h.post(ctx, cluster.gateway, `{}`).Result.Output).To(Equal("hello from code-4"), "the connector stays as it was")
	})
})
