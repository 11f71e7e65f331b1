// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/code"
	"github.com/agentplatform/agentplatform/controllers/connector"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

var _ = Describe("Connectors of the code of a deleted Environment", func() {
	It("are disabled with their environment and come back with it", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		was := s.route(ctx, "dev.orders").Connector
		ref := s.Ref(s.environment)
		Expect(s.Store.Remove(ctx, s.Key(d).ProjectID, ref)).To(Succeed())
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeTrue())
		s.ExpectGone(ctx, s.environment)
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}}
		c := s.object(ctx, "dev.orders")
		s.ExpectReconciled(ctx, of, c)
		Expect(State(c)).To(Equal("Ready=Unknown/EnvironmentGone Reconciling observed"))
		s.environment = s.ExpectEnvironment(ctx, "dev")
		s.ExpectReconciled(ctx, of, c)
		Expect(State(c)).To(ContainSubstring("Ready=False/NotLive"))
		Expect(c.Status.Condition(v1alpha1.ConditionRoutesReady).Message).To(HavePrefix(`webhooks are rejected: Environment "dev" has no live deployment`))
		s.ExpectReconciled(ctx, s.r, d)
		s.mirrored(ctx)
		now := s.route(ctx, "dev.orders").Connector
		Expect(now.Retired).To(BeFalse())
		Expect(now.Enabled).To(BeTrue())
		Expect(now.SecretDigest).To(Equal(was.SecretDigest))
	})

	It("are deleted some time after their environment, and created again for a new one", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile), file("nightly", cronFile), file("rotated", "type: webhook\nmode: sync\nname: R\nagents: [hello]\n"))
		s.mirrored(ctx)
		was, of := s.route(ctx, "dev.orders").Connector, s.connectors()
		rotated := s.object(ctx, "dev.rotated")
		rotated.Spec.SecretVersion = 2
		s.ExpectApplied(ctx, rotated)
		mine, alike := s.Connector("mine"), s.object(ctx, "dev.orders").DeepCopy()
		alike.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: "dev.alike", Labels: alike.Labels}
		alike.Spec.DisplayName = "Alike"
		s.ExpectApplied(ctx, mine, alike)
		s.ExpectReconciled(ctx, of, rotated)
		s.ExpectReconciled(ctx, of, mine)
		s.environmentGone(ctx)

		for _, name := range []string{"dev.orders", "dev.nightly"} {
			c := s.object(ctx, name)
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue,
				Reason: "Progressing", LastTransitionTime: metav1.NewTime(s.Clock.Now().Add(-time.Hour).Truncate(time.Second))})
			s.ExpectStatus(ctx, c)
			after := s.ExpectReconciled(ctx, of, c).RequeueAfter
			Expect(after).To(And(BeNumerically(">", 9*time.Minute), BeNumerically("<=", 10*time.Minute)), "whatever it waited for before")
			Expect(State(c)).To(Equal("Ready=Unknown/EnvironmentGone Reconciling observed"))
			Expect(c.Status.Retired).To(BeTrue())
			routes := c.Status.Condition(v1alpha1.ConditionRoutesReady)
			Expect(string(routes.Status) + "/" + routes.Reason).To(Equal("False/EnvironmentGone"))
			s.ExpectAtRest(ctx, of, c)
		}
		mirror := &code.Reconciler{Base: s.Base, Store: s.Store}
		links := func() (names []string) {
			GinkgoHelper()
			_, err := mirror.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.environment)})
			Expect(err).NotTo(HaveOccurred())
			list := &v1alpha1.ConnectorLinkList{}
			Expect(s.Admin.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
			for _, link := range list.Items {
				names = append(names, link.Name)
			}
			return names
		}
		Expect(links()).To(HaveLen(3))
		s.ExpectGone(ctx, s.project) // the deleted project protects none of them

		for _, name := range []string{"dev.orders", "dev.nightly"} {
			c := s.object(ctx, name)
			s.Clock.SetTime(c.Status.Condition(v1alpha1.ConditionReconciling).LastTransitionTime.Add(10 * time.Minute))
			_, err := of.Reconcile(ctx, s.Request(c))
			Expect(err).NotTo(HaveOccurred())
			s.ExpectNotFound(ctx, c)
			_, err = of.Reconcile(ctx, s.Request(c))
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(links()).To(HaveLen(1), "that of the connector that stays")
		s.ExpectGone(ctx, s.Secret("dev.orders-connector", nil)) // there is no garbage collector here

		By("keeping connectors with a rotated secret, and users' own ones")
		Expect(s.ExpectAtRest(ctx, of, s.object(ctx, "dev.rotated")).RequeueAfter).To(BeZero())
		for _, reason := range []string{"ProjectMissing", "ReferenceMissing"} {
			for _, c := range []*v1alpha1.Connector{mine, alike} {
				s.ExpectReconciled(ctx, of, c)
				s.Clock.Step(time.Hour)
				s.ExpectReconciled(ctx, of, c)
				Expect(State(c)).To(ContainSubstring(reason))
			}
			if reason == "ProjectMissing" {
				s.project = s.ExpectProject(ctx)
			}
		}

		By("re-creating the environment")
		s.ExpectGone(ctx, alike)
		s.environment = s.ExpectEnvironment(ctx, "dev")
		s.ExpectReconciled(ctx, s.r, d)
		s.mirrored(ctx)
		now := s.route(ctx, "dev.orders").Connector
		Expect(now.Enabled).To(BeTrue())
		Expect(now.SecretDigest).To(Equal(was.SecretDigest))
		Expect(s.route(ctx, "dev.rotated").Connector.SecretVersion).To(BeEquivalentTo(2))
		for _, name := range []string{"dev.orders", "dev.nightly", "dev.rotated"} {
			Expect(State(s.object(ctx, name))).To(Equal("Ready=True/Succeeded observed"), Message(s.object(ctx, name)))
		}
	})
})
