// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/code"
	"github.com/agentplatform/agentplatform/controllers/connector"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

var _ = Describe("Mirrors of a Deployment's code", func() {
	It("get removed labels back, and their rows stay", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		was := s.route(ctx, "dev.orders")
		c := s.object(ctx, "dev.orders")
		delete(c.Labels, v1alpha1.LabelDefinedInCode)
		Expect(s.Admin.Update(ctx, c)).To(Succeed())
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}, GatewayURL: "https://hooks.example.com"}
		s.ExpectReconciled(ctx, of, c)
		Expect(State(c)).To(ContainSubstring("NameCollision"))
		Expect(s.route(ctx, "dev.orders").Connector.DefinedInCode).To(BeTrue(), "no ordinary connector takes it over")
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").DefinedInCode()).To(BeTrue())
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.route(ctx, "dev.orders").Connector.SecretDigest).To(Equal(was.Connector.SecretDigest))
	})

	It("are disabled even if no field shows that the platform created them", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		c := s.object(ctx, "dev.orders")
		patch := `[{"op":"remove","path":"/metadata/labels"},{"op":"replace","path":"/metadata/managedFields","value":[{}]},{"op":"replace","path":"/spec/enabled","value":false}]`
		Expect(s.Admin.Patch(ctx, c, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}, GatewayURL: "https://hooks.example.com"}
		s.ExpectReconciled(ctx, of, c)
		Expect(State(c)).To(ContainSubstring("NameCollision"))
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeFalse())
	})

	It("exist beside a user's own object, and a warning reports it", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("alpha", ordersFile), file("nightly", cronFile))
		mine := s.Connector("dev.alpha", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Mine" })
		s.ExpectApplied(ctx, mine)
		s.Events.Sent()
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.nightly"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.Events.Sent()).To(ContainElement(And(HavePrefix("Warning NameCollision"), ContainSubstring(`Connector "dev.alpha"`))))
		Expect(s.object(ctx, "dev.alpha").Spec.DisplayName).To(BeEquivalentTo("Mine"))
		Expect(s.object(ctx, "dev.alpha").Labels).To(BeEmpty())
		Expect(State(s.object(ctx, "dev.alpha"))).To(ContainSubstring("NameCollision"))
		Expect(s.route(ctx, "dev.alpha").Connector.Name).To(Equal("Orders"))
		s.Cluster.Writes() // discard earlier calls
		s.mirrored(ctx)
		Expect(s.Cluster.Writes()).To(BeEmpty(), "nothing is tried against it")

		By("creating it after the other object is deleted, without a deployment")
		s.ExpectDeleted(ctx, s.connectors(), mine)
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.alpha"))).To(Equal("Ready=True/Succeeded observed"), Message(s.object(ctx, "dev.alpha")))
		Expect(s.object(ctx, "dev.alpha").Title()).To(Equal("Orders"))
	})

	It("are missing if Kubernetes rejects them, with its reason", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.brought(ctx, s.Deployment("v1"), file("nightly", cronFile), file("orders", ordersFile))
		s.Events.Sent()
		s.Cluster.Fail(func(c Call) error {
			if c.Verb == "create" && c.Kind == "Connector" && c.Name == "dev.nightly" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "connectors"}, c.Name, errors.New("exceeded quota"))
			}
			return nil
		})
		mirror := &code.Reconciler{Base: s.Base, Store: s.Store}
		_, err := mirror.Reconcile(ctx, s.Request(s.environment))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "it is tried again")
		Expect(s.Events.Sent()).To(HaveExactElements(
			And(HavePrefix("Warning Refused"), ContainSubstring(`connectors "dev.nightly" is forbidden: exceeded quota`)),
			And(HavePrefix("Warning Refused"), ContainSubstring(`connectors "dev.nightly" is forbidden: exceeded quota`)),
		), "at %s and its environment", d.Name)
		s.ExpectExists(ctx, s.Connector("dev.orders"))
		Expect(s.route(ctx, "dev.nightly").Connector.Enabled).To(BeTrue())

		By("creating it when Kubernetes accepts it")
		s.Cluster.Fail(nil)
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.nightly"))).To(Equal("Ready=True/Succeeded observed"), Message(s.object(ctx, "dev.nightly")))
	})

	It("are retired only if the store confirms it", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"))
		forged := s.Connector("forged", func(c *v1alpha1.Connector) {
			c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelRetired: "true", v1alpha1.LabelActivation: "1"}
		})
		s.ExpectApplied(ctx, forged)
		s.ExpectReconciled(ctx, &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}}, forged)
		Expect(State(forged)).To(ContainSubstring("Ready=False/Progressing"))
		Expect(forged.Status.Retired).To(BeFalse())
	})

	It("cannot have the name of a row", func(ctx SpecContext) {
		s := newScene(ctx)
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}}
		first := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		s.brought(ctx, s.Deployment("v2"))
		s.mirrored(ctx)
		mine := s.Connector("mine", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Orders" })
		s.ExpectApplied(ctx, mine)
		s.ExpectReconciled(ctx, of, mine)
		Expect(State(mine)).To(ContainSubstring("NameTaken"), "a retired connector has it")
		retired := s.route(ctx, "dev.orders").Connector
		s.ExpectGone(ctx, s.object(ctx, "dev.orders"))
		Expect(s.Store.Remove(ctx, retired.ProjectID, retired.Ref)).To(Succeed())
		s.ExpectReconciled(ctx, of, mine)
		mine.Spec.DisplayName, mine.Spec.SecretRef = "Old orders", &v1alpha1.SecretReference{Name: "not-there-yet"}
		s.ExpectApplied(ctx, mine)
		s.ExpectReconciled(ctx, of, mine)
		Expect(State(mine)).To(ContainSubstring("SecretMissing"))
		const problem = `the name "Orders" still belongs to Connector "mine"`

		By("a new deployment")
		d := s.brought(ctx, s.Deployment("v3"), file("orders", ordersFile), file("nightly", cronFile))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureConnectors), Message(d))
		Expect(d.Status.Message).To(ContainSubstring(problem))
		Expect(s.live(ctx)).To(Equal("v2"))

		By("one that may skip failed connectors")
		d = s.brought(ctx, s.Deployment("v4", func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }),
			file("orders", ordersFile), file("nightly", cronFile))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
		Expect(s.actions(ctx, d)).To(And(ContainSubstring(`{"connector":"orders","action":"skipped"`), ContainSubstring(`{"connector":"nightly","action":"created"`)))
		Expect(s.live(ctx)).To(Equal("v4"))
		Expect(s.route(ctx, "mine").Connector.Name).To(Equal("Orders"))
		s.mirrored(ctx)

		By("a rollback")
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationConnectorsFailed))
		Expect(first.Status.Activation.Message).To(ContainSubstring(problem))
		Expect(s.live(ctx)).To(Equal("v4"))
		first.Spec.Activation = &v1alpha1.DeploymentActivation{Force: true, RequestedAt: metav1.NewTime(s.Clock.Now().Add(time.Minute).Truncate(time.Second))}
		s.reconciled(ctx, first)
		Expect(first.Status.Activation.Result).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.live(ctx)).To(Equal("v1"))
	})
})
