// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/code"
	"github.com/agentplatform/agentplatform/controllers/connector"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

const (
	ordersFile = "type: webhook\nmode: sync\nname: Orders\nagents: [hello]\nconfig: {timeout_seconds: 60}\n"
	cronFile   = "type: cron\nconfig: {schedule: '@daily', prompt: Go, payload: {z: 1, a: <x>}}\nlinks: [{agent: hello}]\n"
)

// file returns a file of connectors/.
func file(key, content string) store.ConnectorFile {
	return store.ConnectorFile{Key: key, Content: content}
}

// brought deploys code with these connectors, until the deployment ends.
func (s *scene) brought(ctx context.Context, d *v1alpha1.Deployment, files ...store.ConnectorFile) *v1alpha1.Deployment {
	GinkgoHelper()
	s.reconciled(ctx, d)
	s.ExpectBuiltWith(ctx, s.Key(d), files, "hello", "other")
	s.ExpectReconciled(ctx, s.r, d)
	return d
}

// mirrored writes the mirrors of "dev" and projects them.
func (s *scene) mirrored(ctx context.Context) {
	GinkgoHelper()
	mirror := &code.Reconciler{Base: s.Base, Store: s.Store}
	_, err := mirror.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.environment)})
	Expect(err).NotTo(HaveOccurred())
	connectors, links := &v1alpha1.ConnectorList{}, &v1alpha1.ConnectorLinkList{}
	Expect(s.Admin.List(ctx, connectors, client.InNamespace(s.Namespace))).To(Succeed())
	Expect(s.Admin.List(ctx, links, client.InNamespace(s.Namespace))).To(Succeed())
	of := s.connectors()
	for i := range connectors.Items {
		s.ExpectReconciled(ctx, of, &connectors.Items[i])
	}
	for i := range links.Items {
		s.ExpectReconciled(ctx, &connectorlink.Reconciler{Base: s.Base, Store: s.Store}, &links.Items[i])
	}
}

// connectors returns the connector controller.
func (s *scene) connectors() *connector.Reconciler {
	return &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}, GatewayURL: "https://hooks.example.com"}
}

// environmentRow returns the row of "dev".
func (s *scene) environmentRow(ctx context.Context) store.Environment {
	GinkgoHelper()
	row, err := s.Store.Environment(ctx, s.Key(s.environment))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// route returns the route of the gateway by the name of its object.
func (s *scene) route(ctx context.Context, name string) store.Route {
	GinkgoHelper()
	route, err := s.Store.Route(ctx, s.Key(s.Connector(name)))
	Expect(err).NotTo(HaveOccurred())
	return route
}

// object returns the object of a connector.
func (s *scene) object(ctx context.Context, name string) *v1alpha1.Connector {
	GinkgoHelper()
	c := s.Connector(name)
	s.ExpectExists(ctx, c)
	return c
}

func (s *scene) actions(ctx context.Context, d *v1alpha1.Deployment) string {
	GinkgoHelper()
	return string(s.outcome(ctx, d).ConnectorResults)
}

var _ = Describe("Connectors of a Deployment's code", func() {
	It("are live with it, and their mirrors match", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile), file("nightly", cronFile))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
		Expect(d.Status.Condition(v1alpha1.ConditionConnectorsApplied).Message).To(Equal("live with 2 connectors from the code"))
		Expect(s.actions(ctx, d)).To(MatchJSON(`[{"connector":"nightly","action":"created","error":null},{"connector":"orders","action":"created","error":null}]`))
		before := map[string]store.Route{}
		for _, name := range []string{"dev.orders", "dev.nightly"} {
			before[name] = s.route(ctx, name)
			Expect(before[name].Connector.Enabled).To(BeTrue())
			Expect(before[name].Connector.DefinedInCode).To(BeTrue())
			Expect(before[name].Links).To(HaveLen(1))
		}
		Expect(before["dev.orders"].Connector.Name).To(Equal("Orders"))
		Expect(before["dev.orders"].Connector.Secrets).To(HaveLen(1))

		s.mirrored(ctx)
		for name, was := range before {
			c := s.object(ctx, name)
			Expect(State(c)).To(Equal("Ready=True/Succeeded observed"), Message(c))
			Expect(c.Status.DefinedInCode).To(BeTrue())
			Expect(c.OwnerReferences).To(BeEmpty())
			now := s.route(ctx, name)
			Expect(now.Connector.Version).To(Equal(was.Connector.Version), "the mirror of %s is the same row", name)
			Expect(now.Connector.Config).To(Equal(was.Connector.Config))
			Expect(now.Connector.Ref.ObjectUID).To(Equal(string(c.UID)))
			Expect(now.Links[0].Ref.ObjectUID).NotTo(BeEmpty())
		}
		s.Cluster.Writes() // discard earlier calls
		s.mirrored(ctx)
		Expect(s.Cluster.Writes()).To(BeEmpty(), "nothing is written twice")
	})

	It("are retired and restored with the same URL and secret", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		was, url := s.route(ctx, "dev.orders"), s.object(ctx, "dev.orders").Status.URL
		second := s.brought(ctx, s.Deployment("v2"))
		Expect(s.actions(ctx, second)).To(MatchJSON(`[{"connector":"orders","action":"retired","error":null}]`))
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeTrue())
		s.mirrored(ctx)
		c := s.object(ctx, "dev.orders")
		Expect(c.Status.Retired).To(BeTrue())
		Expect(c.IsEnabled()).To(BeFalse())
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeTrue())

		By("reverting a user's change")
		c.Spec.Enabled = ptr.To(true)
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").IsEnabled()).To(BeFalse())

		By("rolling back")
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationActivated))
		s.mirrored(ctx)
		now := s.route(ctx, "dev.orders")
		Expect(now.Connector.Retired).To(BeFalse())
		Expect(now.Connector.Enabled).To(BeTrue())
		Expect(now.Connector.SecretDigest).To(Equal(was.Connector.SecretDigest))
		Expect(now.Links).To(HaveLen(1))
		Expect(s.object(ctx, "dev.orders").Status.URL).To(Equal(url))
		Expect(s.object(ctx, "dev.orders").Status.Retired).To(BeFalse())
	})

	It("are kept in a bounded number after they are retired, except for those with a rotated secret", func(ctx SpecContext) {
		s := newScene(ctx)
		const each = bundle.MaxConnectors/2 + 5
		mirror := func() (names []string) {
			GinkgoHelper()
			for range 2 { // the second reconcile sees retired connectors
				_, err := (&code.Reconciler{Base: s.Base, Store: s.Store}).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.environment)})
				Expect(err).NotTo(HaveOccurred())
			}
			list := &v1alpha1.ConnectorList{}
			Expect(s.Admin.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
			for _, c := range list.Items {
				names = append(names, c.Name)
			}
			return names
		}
		batch := func(prefix string) (files []store.ConnectorFile) {
			for i := range each {
				files = append(files, file(fmt.Sprintf("%s%02d", prefix, i), fmt.Sprintf("type: webhook\nmode: sync\nname: %s %d\nagents: [hello]\n", prefix, i)))
			}
			return files
		}
		s.brought(ctx, s.Deployment("v1"), batch("a")...)
		mirror()
		rotated := s.object(ctx, "dev.a00")
		rotated.Spec.SecretVersion = 2
		s.ExpectApplied(ctx, rotated)
		s.ExpectReconciled(ctx, s.connectors(), rotated)
		s.brought(ctx, s.Deployment("v2"), batch("b")...)
		Expect(mirror()).To(HaveLen(2*each), "as many as a repository can have")
		s.brought(ctx, s.Deployment("v3"))
		names := mirror()
		Expect(names).To(HaveLen(bundle.MaxConnectors))
		Expect(names).To(ContainElement("dev.a00"))
		for i := range each {
			Expect(names).To(ContainElement(fmt.Sprintf("dev.b%02d", i)), "the connectors that were retired last")
		}
	})

	It("keep only the fields that users may change, until the next activation", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		c := s.object(ctx, "dev.orders")
		c.Spec.Enabled, c.Spec.SecretVersion = ptr.To(false), 2
		c.Spec.Webhook.TimeoutSeconds, c.Spec.DisplayName = ptr.To(int32(5)), "Mine"
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		healed, row := s.object(ctx, "dev.orders"), s.route(ctx, "dev.orders").Connector
		Expect(healed.Spec.Webhook.TimeoutSeconds).To(HaveValue(BeEquivalentTo(60)))
		Expect(healed.Title()).To(Equal("Orders"))
		Expect(healed.IsEnabled()).To(BeFalse())
		Expect(healed.SecretVersion()).To(BeEquivalentTo(2))
		Expect(row.Enabled).To(BeFalse())
		Expect(row.SecretVersion).To(BeEquivalentTo(2))
		s.brought(ctx, s.Deployment("v2"), file("orders", ordersFile))
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeTrue(), "as the file says")
		Expect(s.route(ctx, "dev.orders").Connector.SecretVersion).To(BeEquivalentTo(2))
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").IsEnabled()).To(BeTrue())
	})

	It("are mirrored although this release cannot read one of their files", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile), file("nightly", cronFile))
		s.mirrored(ctx)
		_, err := s.Store.Database.ExecContext(ctx, `UPDATE deployments SET connector_files = replace(connector_files, 'name: Orders', 'of_another_release: 1')`)
		Expect(err).NotTo(HaveOccurred())
		s.ExpectDeleted(ctx, s.connectors(), s.object(ctx, "dev.nightly"))
		s.Events.Sent()
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.nightly"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeTrue())
		Expect(s.Events.Sent()).To(ContainElement(And(HavePrefix("Warning ConnectorUnread"), ContainSubstring(`orders of Deployment "v1"`), ContainSubstring("of_another_release"))))

		By("another activation with it, and changes of users")
		d := s.brought(ctx, s.Deployment("v2", func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }),
			file("orders", "of_another_release: 1\n"+ordersFile), file("nightly", cronFile))
		Expect(s.live(ctx)).To(Equal("v2"), Message(d))
		c := s.object(ctx, "dev.orders")
		s.mirrored(ctx)
		s.ExpectExists(ctx, c)
		c.Spec.Enabled = ptr.To(false)
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"), Message(c))
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeFalse())
	})

	It("are created again after a user deletes their mirror", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		c := s.object(ctx, "dev.orders")
		leaked := s.route(ctx, "dev.orders").Connector.SecretDigest
		c.Spec.SecretVersion, c.Spec.SecretGracePeriodSeconds = 3, ptr.To(int32(0))
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		was := s.route(ctx, "dev.orders")
		Expect(was.Connector.SecretDigest).NotTo(Equal(leaked))

		By("serving it all the time, with the secret in effect")
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}}
		s.ExpectDeleted(ctx, of, s.object(ctx, "dev.orders"))
		gone := s.route(ctx, "dev.orders")
		Expect(gone.Connector.Version).To(Equal(was.Connector.Version))
		Expect(gone.Links).To(HaveLen(1))
		collected := func() { s.ExpectGone(ctx, s.Secret("dev.orders-connector", nil)) } // there is no garbage collector here
		collected()
		s.mirrored(ctx)
		Expect(s.route(ctx, "dev.orders").Connector.Version).To(Equal(was.Connector.Version))
		again := s.object(ctx, "dev.orders")
		Expect(State(again)).To(Equal("Ready=True/Succeeded observed"), Message(again))
		Expect(again.SecretVersion()).To(BeEquivalentTo(3))
		Expect(again.SecretGracePeriod()).To(BeZero())

		By("in another cluster with an adopted store")
		Expect(s.Admin.Delete(ctx, again)).To(Succeed())
		collected()
		_, err := s.Store.Database.ExecContext(ctx, `UPDATE object_ids SET object_uid = '', adopted = TRUE WHERE name = 'dev.orders'`)
		Expect(err).NotTo(HaveOccurred())
		s.mirrored(ctx)
		again = s.object(ctx, "dev.orders")
		Expect(State(again)).To(Equal("Ready=True/Succeeded observed"), Message(again))
		Expect(s.route(ctx, "dev.orders").Connector.SecretDigest).To(Equal(was.Connector.SecretDigest))
	})

	It("keep the grace period of the last rotation over activations", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		rotate := func(version int32, grace time.Duration) {
			GinkgoHelper()
			c := s.object(ctx, "dev.orders")
			c.RotateSecret(version, ptr.To(int32(grace.Seconds())))
			s.ExpectApplied(ctx, c)
			s.mirrored(ctx)
			Expect(s.route(ctx, "dev.orders").Connector.SecretGracePeriod).To(Equal(grace))
		}
		rotate(2, 7*24*time.Hour)
		was := s.route(ctx, "dev.orders").Connector
		Expect(was.Secrets).To(HaveLen(2))
		s.brought(ctx, s.Deployment("v2"), file("orders", ordersFile))
		Expect(s.route(ctx, "dev.orders").Connector.Secrets).To(Equal(was.Secrets))
		s.mirrored(ctx)
		Expect(s.route(ctx, "dev.orders").Connector.Secrets).To(Equal(was.Secrets))

		for _, grace := range []time.Duration{30 * 24 * time.Hour, 0} {
			By(fmt.Sprintf("re-created after a rotation with %v", grace))
			rotate(s.object(ctx, "dev.orders").SecretVersion()+1, grace)
			was := s.route(ctx, "dev.orders").Connector
			s.ExpectDeleted(ctx, s.connectors(), s.object(ctx, "dev.orders"))
			s.ExpectGone(ctx, s.Secret("dev.orders-connector", nil)) // there is no garbage collector here
			s.mirrored(ctx)
			again := s.object(ctx, "dev.orders")
			Expect(again.SecretGracePeriod()).To(Equal(grace))
			Expect(s.route(ctx, "dev.orders").Connector.Secrets).To(Equal(was.Secrets))
			again.RotateSecret(again.SecretVersion()+1, nil)
			Expect(again.SecretGracePeriod()).To(Equal(v1alpha1.DefaultSecretGracePeriod), "of the rotations after it")
		}
	})

	It("fail a deployment that changes their mode, and stay in effect", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		was := s.route(ctx, "dev.orders")
		inbound := file("orders", "type: webhook\nmode: inbound\nagents: [hello]\n")
		d := s.brought(ctx, s.Deployment("v2"), inbound, file("more", cronFile))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureConnectors), Message(d))
		Expect(d.Status.Message).To(ContainSubstring("connector orders: type and mode of a connector cannot change from sync webhook to inbound webhook"))
		Expect(State(d)).To(ContainSubstring("ConnectorsFailed"))
		Expect(s.actions(ctx, d)).To(ContainSubstring(`{"connector":"more","action":"skipped","error":"not applied, because another connector failed"}`))
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(s.route(ctx, "dev.orders")).To(Equal(was))

		By("unless it may skip failed connectors")
		anyway := s.brought(ctx, s.Deployment("v3", func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }), inbound, file("more", cronFile))
		Expect(anyway.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(anyway))
		Expect(anyway.Status.Condition(v1alpha1.ConditionConnectorsApplied).Status).To(Equal(metav1.ConditionFalse))
		Expect(s.live(ctx)).To(Equal("v3"))
		s.ExpectAtRest(ctx, s.r, anyway)
		Expect(s.route(ctx, "dev.orders").Connector.Version).To(Equal(was.Connector.Version), "it stays as it was")
		Expect(s.route(ctx, "dev.more").Connector.Enabled).To(BeTrue())
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.route(ctx, "dev.orders").Connector.Mode).To(Equal("sync"))
		Expect(s.route(ctx, "dev.orders").Links).To(HaveLen(1))
	})

	It("stop an activation, unless it is forced", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.brought(ctx, s.Deployment("v2"))
		s.mirrored(ctx)
		s.ExpectApplied(ctx, s.Connector("mine", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Orders" }))
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationConnectorsFailed))
		Expect(first.Status.Activation.Message).To(ContainSubstring(`the name "Orders" belongs to Connector "mine"`))
		Expect(s.live(ctx)).To(Equal("v2"))
		first.Spec.Activation = &v1alpha1.DeploymentActivation{Force: true, RequestedAt: metav1.NewTime(s.Clock.Now().Add(time.Minute).Truncate(time.Second))}
		s.reconciled(ctx, first)
		Expect(first.Status.Activation.Result).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeTrue(), "it stays as it was")
	})

	It("stay unchanged, whatever their mirrors contain", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile), file("gone", cronFile))
		s.mirrored(ctx)
		s.brought(ctx, s.Deployment("v2"), file("gone", cronFile))
		s.mirrored(ctx)
		c := s.object(ctx, "dev.gone")
		c.Spec.Enabled = ptr.To(false)
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		s.activate(ctx, first, 0) // it is live again with both enabled, and a quota rejects the mirrors
		retires := s.brought(ctx, s.Deployment("v3"), file("orders", ordersFile))
		Expect(s.live(ctx)).To(Equal("v3"), Message(retires))
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeFalse())
		Expect(s.object(ctx, "dev.orders").Retired()).To(BeTrue())
		Expect(s.object(ctx, "dev.gone").Retired()).To(BeFalse())
		was := s.route(ctx, "dev.orders").Connector
		inbound := file("orders", "type: webhook\nmode: inbound\nagents: [hello]\n")
		d := s.brought(ctx, s.Deployment("v4", func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }),
			inbound, file("gone", "type: webhook\nmode: inbound\nagents: [hello]\n"))
		Expect(s.live(ctx)).To(Equal("v4"), Message(d))
		s.mirrored(ctx)
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").Retired()).To(BeFalse())
		Expect(s.object(ctx, "dev.orders").Activation()).To(Equal(s.environmentRow(ctx).LiveRank))
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"), Message(s.object(ctx, "dev.orders")))
		Expect(s.object(ctx, "dev.orders").Spec.Webhook.TimeoutSeconds).To(HaveValue(BeEquivalentTo(60)))
		now := s.route(ctx, "dev.orders").Connector
		Expect(now.Enabled).To(BeTrue())
		Expect(now.Version).To(Equal(was.Version), "it is the same row")
		Expect(s.route(ctx, "dev.orders").Links).To(HaveLen(1))
		Expect(s.object(ctx, "dev.gone").Retired()).To(BeTrue())
		Expect(s.route(ctx, "dev.gone").Connector.Retired).To(BeTrue())

		By("allowing users' changes")
		c = s.object(ctx, "dev.orders")
		c.Spec.Enabled = ptr.To(false)
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").IsEnabled()).To(BeFalse())
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeFalse())

		By("keeping them in the next activation")
		s.brought(ctx, s.Deployment("v5", func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }), inbound)
		Expect(s.live(ctx)).To(Equal("v5"))
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.orders").IsEnabled()).To(BeFalse())
		Expect(s.route(ctx, "dev.orders").Connector.Enabled).To(BeFalse())
	})

	It("are retired according to the store", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile), file("nightly", cronFile))
		second := s.brought(ctx, s.Deployment("v2"), file("nightly", cronFile)) // the first one has no mirrors
		Expect(s.route(ctx, "dev.orders").Connector.Retired).To(BeTrue())
		Expect(s.actions(ctx, second)).To(MatchJSON(`[{"connector":"nightly","action":"updated","error":null},{"connector":"orders","action":"retired","error":null}]`))
		s.mirrored(ctx)
		_, err := s.Store.Database.ExecContext(ctx, `DELETE FROM connectors WHERE name = 'nightly'`)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.object(ctx, "dev.nightly").Retired()).To(BeFalse())
		Expect(s.actions(ctx, s.brought(ctx, s.Deployment("v3")))).To(BeEmpty(), "its row was gone already")
	})

	It("are not written by a mirror of an earlier activation", func(ctx SpecContext) {
		s := newScene(ctx)
		s.brought(ctx, s.Deployment("v1"), file("orders", ordersFile))
		s.mirrored(ctx)
		s.brought(ctx, s.Deployment("v2"), file("orders", "type: webhook\nmode: sync\nname: New\nagents: [other]\n"))
		of := &connector.Reconciler{Base: s.Base, Store: s.Store, Keys: s.Keys, Damper: &connector.ReportDamper{}}
		late := s.object(ctx, "dev.orders")
		s.ExpectReconciled(ctx, of, late)
		Expect(State(late)).To(ContainSubstring("Progressing"))
		Expect(s.route(ctx, "dev.orders").Connector.Name).To(Equal("New"))
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.orders"))).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.route(ctx, "dev.orders").Links).To(HaveLen(1))
		Expect(s.route(ctx, "dev.orders").Links[0].AgentName).To(Equal("other"))
		links := &v1alpha1.ConnectorLinkList{}
		Expect(s.Admin.List(ctx, links, client.InNamespace(s.Namespace))).To(Succeed())
		Expect(links.Items).To(HaveLen(1), "the link that the code has no more is gone")
	})

	It("have the values of variables, and follow their changes", func(ctx SpecContext) {
		s := newScene(ctx)
		named := file("nightly", "type: cron\nconfig: {schedule: '${WHEN}', prompt: 'Hi $${WHO}', payload: {to: '${WHO}'}}\n")
		d := s.brought(ctx, s.Deployment("v1"), named)
		Expect(d.Status.Message).To(ContainSubstring(`Environment "dev" has no variables WHEN and WHO`))
		s.ExpectExists(ctx, s.environment)
		s.configured(ctx)
		s.environment.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "WHEN", Value: ptr.To("@hourly")}, {Name: "WHO", Value: ptr.To("all")}}
		s.ExpectApplied(ctx, s.environment)
		d = s.brought(ctx, s.Deployment("v2"), named)
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.nightly").Spec.Cron.Schedule).To(Equal("${WHEN}"))
		Expect(s.route(ctx, "dev.nightly").Connector.Config).To(MatchJSON(`{"schedule":"@hourly","timezone":"UTC","missed_ticks":"skip","prompt":"Hi ${WHO}","payload":{"to":"all"}}`))
		s.ExpectExists(ctx, s.environment)
		s.environment.Spec.Variables[0].Value = ptr.To("@weekly")
		s.ExpectApplied(ctx, s.environment)
		s.mirrored(ctx)
		Expect(s.route(ctx, "dev.nightly").Connector.Config).To(ContainSubstring("@weekly"))
	})
})
