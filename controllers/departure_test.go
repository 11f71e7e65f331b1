// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// service creates a connector with a link to the agent of the live deployment.
func (t *team) service(ctx context.Context) (*v1alpha1.Connector, *v1alpha1.ConnectorLink) {
	GinkgoHelper()
	connector := &v1alpha1.Connector{ObjectMeta: t.at("ask"), Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
	}}
	link := &v1alpha1.ConnectorLink{ObjectMeta: t.at("ask-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "hello"}}
	Expect(t.client.Create(ctx, connector)).To(Succeed())
	Expect(t.client.Create(ctx, link)).To(Succeed())
	t.eventually(ctx, connector, ready(connector))
	t.eventually(ctx, link, ready(link))
	return connector, link
}

// served reports whether the gateway accepts webhooks of a connector.
func (t *team) served(ctx context.Context, connector *v1alpha1.Connector) bool {
	GinkgoHelper()
	key, err := v1alpha1.ObjectID(t.projectID, connector)
	Expect(err).NotTo(HaveOccurred())
	row, err := t.store.Connector(ctx, store.Key{ProjectID: t.projectID, ID: key})
	Expect(err).NotTo(HaveOccurred())
	return row.Enabled
}

// notReady reports whether an object is not ready for this reason.
func notReady(o v1alpha1.ConditionedObject, reason string) bool {
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	return ready != nil && ready.Status != metav1.ConditionTrue && ready.Reason == reason
}

var _ = Describe("An object whose dependency is deleted", func() {
	It("reports it, and is in effect again when it comes back", func(ctx SpecContext) {
		t := start().team(ctx)
		live := t.goLive(ctx, "v1")
		connector, link := t.service(ctx)
		Expect(t.served(ctx, connector)).To(BeTrue())

		By("losing the environment")
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		Expect(t.client.Delete(ctx, environment)).To(Succeed())
		t.eventually(ctx, connector, func() bool {
			routes := connector.Status.Condition(v1alpha1.ConditionRoutesReady)
			return notReady(connector, v1alpha1.ReasonReferenceMissing) && routes.Status == metav1.ConditionFalse
		})
		t.eventually(ctx, live, func() bool {
			return !live.Status.Live && !live.Status.IsTrue(v1alpha1.ConditionLive) && v1alpha1.IsReady(live)
		})
		Eventually(ctx, func() bool { return t.served(ctx, connector) }).Should(BeFalse())
		Expect(t.client.Create(ctx, &v1alpha1.Environment{ObjectMeta: t.at("dev")})).To(Succeed())
		t.eventually(ctx, live, func() bool {
			return live.Status.Live && live.Status.IsTrue(v1alpha1.ConditionLive) && v1alpha1.IsReady(live)
		})
		t.eventually(ctx, connector, func() bool {
			return v1alpha1.IsReady(connector) && connector.Status.IsTrue(v1alpha1.ConditionRoutesReady)
		})
		t.eventually(ctx, link, ready(link))

		By("losing the project")
		Expect(t.client.Delete(ctx, &v1alpha1.Project{ObjectMeta: t.at("project")})).To(Succeed())
		for _, o := range []v1alpha1.ConditionedObject{connector, link, live, environment} {
			t.eventually(ctx, o.(client.Object), func() bool { return notReady(o, v1alpha1.ReasonProjectMissing) })
		}
		Expect(connector.Status.IsTrue(v1alpha1.ConditionRoutesReady)).To(BeFalse())
		Eventually(ctx, func() bool { return t.served(ctx, connector) }).Should(BeFalse())
		Expect(live.Status.Live).To(BeTrue(), "the live deployment executes the accepted runs")
		Expect(t.client.Create(ctx, &v1alpha1.Project{ObjectMeta: t.at("project"), Spec: v1alpha1.ProjectSpec{
			Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git"},
		}})).To(Succeed())
		for _, o := range []v1alpha1.ConditionedObject{connector, link, live} {
			t.eventually(ctx, o.(client.Object), ready(o))
		}
		Expect(t.served(ctx, connector)).To(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("is no longer the default, and the next environment is", func(ctx SpecContext) {
		t := start().team(ctx)
		project, next := &v1alpha1.Project{ObjectMeta: t.at("project")}, &v1alpha1.Environment{ObjectMeta: t.at("prod")}
		t.eventually(ctx, project, func() bool { return project.Status.DefaultEnvironment == "dev" })
		Expect(t.client.Create(ctx, next.DeepCopy())).To(Succeed())
		t.eventually(ctx, next, func() bool { return next.Status.ID != "" && !next.Status.Default })
		Expect(t.client.Delete(ctx, &v1alpha1.Environment{ObjectMeta: t.at("dev")})).To(Succeed())
		t.eventually(ctx, project, func() bool { return project.Status.DefaultEnvironment == "prod" })
		t.eventually(ctx, next, func() bool { return next.Status.Default })
	}, SpecTimeout(time.Minute))

	It("has no pods while a foreign policy has the name of its own", func(ctx SpecContext) {
		t := start().empty()
		theirs := &networkingv1.NetworkPolicy{ObjectMeta: t.at("agentplatform-runner")}
		Expect(t.client.Create(ctx, theirs)).To(Succeed())
		t.populate(ctx)
		project, environment := &v1alpha1.Project{ObjectMeta: t.at("project")}, &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		t.eventually(ctx, project, func() bool {
			network := project.Status.Condition(v1alpha1.ConditionNetworkReady)
			return v1alpha1.IsStalled(project) && network.Status == metav1.ConditionFalse && network.Reason == v1alpha1.ReasonNameCollision
		})
		version := t.deploy(ctx, "v1", "main")
		for _, o := range []v1alpha1.ConditionedObject{environment, version} {
			t.eventually(ctx, o.(client.Object), func() bool {
				ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
				return ready != nil && ready.Message == `Project "project" is not in effect yet; see its conditions`
			})
		}
		pool := &appsv1.Deployment{ObjectMeta: t.at("dev-runner")}
		Expect(client.IgnoreNotFound(t.client.Get(ctx, client.ObjectKeyFromObject(pool), pool))).To(Succeed())
		Expect(pool.UID).To(BeEmpty())

		By("creating them after the policy is deleted")
		Expect(t.client.Delete(ctx, theirs)).To(Succeed())
		before := project.DeepCopy()
		project.Annotations = map[string]string{"looked": "after"} // otherwise half a minute later
		Expect(t.client.Patch(ctx, project, client.MergeFrom(before))).To(Succeed())
		t.eventually(ctx, pool, func() bool { return pool.UID != "" })
		t.eventually(ctx, version, func() bool { return version.Status.Phase == v1alpha1.DeploymentBuilding })
	}, SpecTimeout(2*time.Minute))
})
