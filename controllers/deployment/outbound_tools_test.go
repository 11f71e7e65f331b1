// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

const erpFile = "type: webhook\nmode: outbound\nconfig: {url: 'https://${HOST}/invoices', headers: {Authorization: 'Bearer ${TOKEN}'}}\n" +
	"links: [{agent: hello, outbound: {source_connectors: [orders]}}, {agent: other, outbound: {mode: agent_tool, action_name: tell}}]\n"

// variables sets the variables of "dev": a readable host, and a token from a Secret.
func (s *scene) variables(ctx context.Context, host string) {
	GinkgoHelper()
	s.ExpectExists(ctx, s.environment)
	s.environment.Spec.Variables = []v1alpha1.EnvironmentVariable{
		{Name: "HOST", Value: ptr.To(host)}, {Name: "TOKEN", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "erp", Key: "token"}},
	}
	s.ExpectApplied(ctx, s.environment)
}

// sends returns the credentials of a connector that the gateway decrypts.
func (s *scene) sends(ctx context.Context, name string) (out secrets.Credentials) {
	GinkgoHelper()
	row := s.route(ctx, name).Connector
	Expect(string(row.Config)).NotTo(ContainSubstring("CANARY"))
	plain, err := s.Keys.Open(secrets.CredentialsField(row.ProjectID, row.ID), row.Sealed)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(plain, &out)).To(Succeed())
	return out
}

// rowReads is a store that counts reads of a connector's row.
type rowReads struct {
	*Store
	rows int
}

func (s *rowReads) Connector(ctx context.Context, key store.Key) (store.Connector, error) {
	s.rows++
	return s.Store.Connector(ctx, key)
}

var _ = Describe("Outbound connectors of a Deployment's code", func() {
	It("send the values of sensitive variables, which are stored only sealed, and follow their changes", func(ctx SpecContext) {
		s := newScene(ctx)
		s.configured(ctx)
		files := []store.ConnectorFile{file("erp", erpFile), file("orders", ordersFile)}
		s.variables(ctx, "erp.example.com")
		d := s.brought(ctx, s.Deployment("v1"), files...)
		Expect(d.Status.Message).To(ContainSubstring(`connector erp: the variable TOKEN has no value: Secret "erp" does not exist`))
		secret := s.Secret("erp", map[string]string{"token": "CANARY"})
		s.ExpectApplied(ctx, secret)
		d = s.brought(ctx, s.Deployment("v2"), files...)
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
		was := s.route(ctx, "dev.erp")
		Expect(s.sends(ctx, "dev.erp")).To(And(
			HaveField("URL", "https://erp.example.com/invoices"), HaveField("Headers", map[string]string{"Authorization": "Bearer CANARY"})))
		Expect(was.Links).To(HaveLen(2))
		Expect(was.Links[0].Outbound.SourceConnectorIDs).To(Equal([]uuid.UUID{s.route(ctx, "dev.orders").Connector.ID}))
		Expect(was.Links[1].Outbound.ActionName).To(Equal("tell"))

		s.mirrored(ctx)
		c := s.object(ctx, "dev.erp")
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"), Message(c))
		Expect(c.Spec.Webhook.URL).To(Equal("https://${HOST}/invoices"))
		Expect(c.Spec.Webhook.Headers).To(Equal(map[string]string{"Authorization": "Bearer ${TOKEN}"}))
		now := s.route(ctx, "dev.erp")
		Expect(now.Connector.Version).To(Equal(was.Connector.Version), "the mirror is the same row")
		Expect(now.Links[0].Outbound).To(Equal(was.Links[0].Outbound))
		s.Cluster.Writes() // discard earlier calls
		s.mirrored(ctx)
		Expect(s.Cluster.Writes()).To(BeEmpty(), "nothing is written twice")

		By("rotating the token, and moving the host")
		secret.Data = map[string][]byte{"token": []byte("CANARY2")}
		s.ExpectApplied(ctx, secret)
		s.mirrored(ctx)
		Expect(s.sends(ctx, "dev.erp").Headers).To(Equal(map[string]string{"Authorization": "Bearer CANARY2"}))
		s.variables(ctx, "new.example.com")
		s.mirrored(ctx)
		Expect(s.sends(ctx, "dev.erp").URL).To(Equal("https://new.example.com/invoices"))

		By("losing the token: the last valid values stay")
		s.ExpectGone(ctx, secret)
		s.mirrored(ctx)
		c = s.object(ctx, "dev.erp")
		Expect(State(c)).To(HavePrefix("Ready=False/InvalidSpec"))
		Expect(Message(c)).To(And(ContainSubstring(`the variable TOKEN has no value`), Not(ContainSubstring("CANARY"))))
		Expect(s.sends(ctx, "dev.erp").Headers).To(Equal(map[string]string{"Authorization": "Bearer CANARY2"}))
	})

	It("do not reveal the values to users who can write the mirrors", func(ctx SpecContext) {
		s := newScene(ctx)
		s.configured(ctx)
		s.variables(ctx, "erp.example.com")
		s.ExpectApplied(ctx, s.Secret("erp", map[string]string{"token": "CANARY"}))
		s.brought(ctx, s.Deployment("v1"), file("erp", erpFile), file("orders", ordersFile))
		s.mirrored(ctx)
		of, reads := s.connectors(), &rowReads{Store: s.Store}
		of.Store = reads
		c := s.object(ctx, "dev.erp")
		c.Spec.Webhook.URL = "https://elsewhere.example.com/${HOST}"
		s.ExpectApplied(ctx, c)
		s.ExpectReconciled(ctx, of, c)
		Expect(reads.rows).To(Equal(1), "whose it is and what it says is one row")
		Expect(Message(c)).To(ContainSubstring("differ from the project's code"))
		Expect(s.sends(ctx, "dev.erp").URL).To(Equal("https://erp.example.com/invoices"))
		s.mirrored(ctx)
		Expect(State(s.object(ctx, "dev.erp"))).To(Equal("Ready=True/Succeeded observed"), "it is healed")

		By("creating a user's own object in its place")
		forged := s.object(ctx, "dev.erp")
		s.ExpectDeleted(ctx, of, forged)
		forged = &v1alpha1.Connector{ObjectMeta: s.At("dev.erp"), Spec: forged.Spec}
		rank := s.environmentRow(ctx).LiveRank
		mirror := s.object(ctx, "dev.orders")
		Expect(mirror.Activation()).To(Equal(rank))
		forged.Labels = mirror.Labels
		forged.Spec.Webhook.Headers["X-Copy"] = "${TOKEN}"
		s.ExpectApplied(ctx, forged)
		s.ExpectReconciled(ctx, of, forged)
		Expect(Message(forged)).To(ContainSubstring("differ from the project's code"))
		Expect(s.sends(ctx, "dev.erp").Headers).To(Equal(map[string]string{"Authorization": "Bearer CANARY"}))
		s.mirrored(ctx)
		Expect(s.sends(ctx, "dev.erp").Headers).To(Equal(map[string]string{"Authorization": "Bearer CANARY"}), "it is back as the code has it")

		By("creating the same object in another environment, where the variables have other values")
		was := s.object(ctx, "dev.erp")
		s.ExpectDeleted(ctx, of, was)
		s.ExpectEnvironment(ctx, "prod")
		moved := &v1alpha1.Connector{ObjectMeta: s.At("dev.erp"), Spec: was.Spec}
		moved.Labels, moved.Spec.Environment = was.Labels, "prod"
		s.ExpectApplied(ctx, moved)
		s.ExpectReconciled(ctx, of, moved)
		Expect(State(moved)).To(ContainSubstring("NameCollision"))
		Expect(s.route(ctx, "dev.erp").Connector.EnvironmentID).To(Equal(s.environmentRow(ctx).ID))
	})

	It("are retired, paused and restored like others, with the same signing secret", func(ctx SpecContext) {
		s := newScene(ctx)
		s.configured(ctx)
		s.variables(ctx, "erp.example.com")
		s.ExpectApplied(ctx, s.Secret("erp", map[string]string{"token": "CANARY"}))
		first := s.brought(ctx, s.Deployment("v1"), file("erp", erpFile), file("orders", ordersFile))
		s.mirrored(ctx)
		was := s.route(ctx, "dev.erp").Connector
		c := s.object(ctx, "dev.erp")
		c.Spec.Enabled = ptr.To(false)
		s.ExpectApplied(ctx, c)
		s.mirrored(ctx)
		Expect(s.route(ctx, "dev.erp").Connector.Enabled).To(BeFalse())

		moved := file("erp2", erpFile)
		second := s.brought(ctx, s.Deployment("v2"), moved, file("orders", ordersFile))
		Expect(second.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(second))
		Expect(s.actions(ctx, second)).To(MatchJSON(`[{"connector":"erp","action":"retired","error":null},{"connector":"erp2","action":"created","error":null},{"connector":"orders","action":"unchanged","error":null}]`))
		s.mirrored(ctx)
		Expect(s.object(ctx, "dev.erp").Status.Retired).To(BeTrue())
		Expect(s.route(ctx, "dev.erp").Connector.Retired).To(BeTrue())
		for _, link := range []string{"dev.erp.other", "dev.erp2.other"} {
			l := s.Link(link, "", "")
			s.ExpectExists(ctx, l)
			Expect(v1alpha1.IsStalled(l)).To(BeFalse(), "%s: %s", link, Message(l))
		}

		By("rolling back")
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationActivated), first.Status.Activation)
		s.mirrored(ctx)
		now := s.route(ctx, "dev.erp")
		Expect(now.Connector.Enabled).To(BeTrue())
		Expect(now.Connector.SecretDigest).To(Equal(was.SecretDigest))
		Expect(now.Links).To(HaveLen(2))
		Expect(s.sends(ctx, "dev.erp").URL).To(Equal("https://erp.example.com/invoices"))
		Expect(s.route(ctx, "dev.erp2").Connector.Retired).To(BeTrue())
	})

	It("fail a deployment with a duplicate tool of an agent", func(ctx SpecContext) {
		s := newScene(ctx)
		s.configured(ctx)
		s.variables(ctx, "erp.example.com")
		s.ExpectApplied(ctx, s.Secret("erp", map[string]string{"token": "CANARY"}))
		s.brought(ctx, s.Deployment("v1"))
		s.ExpectConnector(ctx, s.Connector("mine", func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com"
		}))
		s.ExpectApplied(ctx, s.Link("mine", "mine", "other", func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: "tell"}
		}))
		d := s.brought(ctx, s.Deployment("v2"), file("erp", erpFile), file("orders", ordersFile))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureConnectors), Message(d))
		Expect(d.Status.Message).To(ContainSubstring(`connector erp: agent "other" already has a tool "tell" from Connector "mine"`))
		Expect(s.live(ctx)).To(Equal("v1"))
	})
})
