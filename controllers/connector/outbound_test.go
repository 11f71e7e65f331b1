// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/connector"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/store"
)

func sends(c *v1alpha1.Connector) {
	c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com/results"
}

// sealed returns the credentials that the gateway decrypts.
func (s *scene) sealed(ctx context.Context, c *v1alpha1.Connector) string {
	GinkgoHelper()
	row := s.row(ctx, c)
	plain, err := s.Keys.Open(secrets.CredentialsField(row.ProjectID, row.ID), row.Sealed)
	Expect(err).NotTo(HaveOccurred())
	return string(plain)
}

// sealedHeader returns a header value, sealed as by the facade for this ID.
func (s *scene) sealedHeader(id, name, value string) string {
	GinkgoHelper()
	sealed, _, err := s.Keys.Seal(secrets.HeaderField(s.ProjectID(s.Namespace), uuid.MustParse(id), name), []byte(value))
	Expect(err).NotTo(HaveOccurred())
	return base64.StdEncoding.EncodeToString(sealed)
}

var _ = Describe("An outbound Connector", func() {
	It("publishes its signing secret, and has no URL of its own", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("results", sends))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(c.Status.URL).To(BeEmpty())
		Expect(c.Status.IsTrue(v1alpha1.ConditionDelivering)).To(BeTrue())
		row := s.row(ctx, c)
		Expect(string(row.Config)).To(Equal(`{"url":"https://example.com/results"}`))
		Expect(row.Sealed).To(BeNil())
		secret := &corev1.Secret{ObjectMeta: s.At("results-connector")}
		s.ExpectExists(ctx, secret)
		signing, err := s.Keys.SigningSecret(row.SecretKey, secrets.Generated{ProjectID: row.ProjectID, ConnectorID: row.ID, Version: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(secret.Data).To(Equal(map[string][]byte{"signing_secret": []byte(signing)}))
		s.ExpectAtRest(ctx, s.r, c)

		By("rotating it: the previous one signs too, for a while")
		c.Spec.SecretVersion = 2
		s.reconciled(ctx, c)
		Expect(s.row(ctx, c).Secrets).To(ConsistOf(
			And(HaveField("Version", BeEquivalentTo(2)), HaveField("NotAfter", BeNil())),
			And(HaveField("Version", BeEquivalentTo(1)), HaveField("NotAfter", Not(BeNil())), HaveField("Key", row.SecretKey)),
		))
	})

	It("sends headers of a Secret, signs with the user's own secret, and seals both once", func(ctx SpecContext) {
		s := newScene(ctx)
		headers, own := s.Secret("headers", map[string]string{"Authorization": "Bearer CANARY"}), s.Secret("own", map[string]string{"signing_secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="})
		s.ExpectApplied(ctx, headers, own)
		c := s.reconciled(ctx, s.Connector("results", sends, func(c *v1alpha1.Connector) {
			c.Spec.HeadersSecretRef, c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "headers"}, &v1alpha1.SecretReference{Name: "own"}
		}))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.sealed(ctx, c)).To(MatchJSON(`{"headers":{"Authorization":"Bearer CANARY"},"signing_secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZg==","secrets":["whsec_MDEyMzQ1Njc4OWFiY2RlZg=="]}`))
		Expect(string(s.row(ctx, c).Config)).NotTo(ContainSubstring("CANARY"))
		Expect(s.row(ctx, c).SealedKey).To(Equal(s.Keys.SealingKey()))
		version := s.row(ctx, c).Version
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.row(ctx, c).Version).To(Equal(version), "nothing is sealed again that is the same")

		By("changing the Secret")
		headers.Data = map[string][]byte{"X-Team": []byte("payments")}
		s.ExpectApplied(ctx, headers)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.sealed(ctx, c)).To(MatchJSON(`{"headers":{"X-Team":"payments"},"signing_secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZg==","secrets":["whsec_MDEyMzQ1Njc4OWFiY2RlZg=="]}`))

		By("a header that the platform sets")
		headers.Data = map[string][]byte{"X-Service-Signature": []byte("CANARY")}
		s.ExpectApplied(ctx, headers)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(HavePrefix("Ready=False/SecretInvalid"))
		Expect(Message(c)).To(And(ContainSubstring("X-Service-Signature"), Not(ContainSubstring("CANARY"))))
		Expect(s.sealed(ctx, c)).To(ContainSubstring("payments"), "the last valid values stay in effect")
	})

	It("decrypts only headers that were sealed for it", func(ctx SpecContext) {
		s := newScene(ctx)
		id, other := uuid.NewString(), uuid.NewString()
		c := s.reconciled(ctx, s.Connector("results", sends, func(c *v1alpha1.Connector) {
			c.Spec.ID = v1alpha1.UUID(id)
			c.Spec.Webhook.SealedHeaders = map[string]string{"X-Key": s.sealedHeader(id, "x-key", "CANARY")}
		}))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.sealed(ctx, c)).To(MatchJSON(`{"headers":{"X-Key":"CANARY"}}`))
		for problem, header := range map[string]map[string]string{
			"sealed for another connector": {"X-Key": s.sealedHeader(other, "X-Key", "CANARY")},
			"sealed for another header":    {"X-Other": s.sealedHeader(id, "X-Key", "CANARY")},
			"not sealed":                   {"X-Key": base64.StdEncoding.EncodeToString([]byte("CANARY"))},
			"not base64":                   {"X-Key": "CANARY!"},
			"reserved header":              {"Host": s.sealedHeader(id, "Host", "CANARY")},
		} {
			c.Spec.Webhook.SealedHeaders = header
			s.reconciled(ctx, c)
			Expect(State(c)).To(Equal("Ready=False/InvalidSpec Stalled observed"), problem)
			Expect(Message(c)).To(And(ContainSubstring("spec.webhook.sealedHeaders"), Not(ContainSubstring("CANARY"))), problem)
			Expect(s.sealed(ctx, c)).To(MatchJSON(`{"headers":{"X-Key":"CANARY"}}`), "the last valid values stay in effect")
		}
	})

	It("reports failures, pauses and recovery of its destination", func(ctx SpecContext) {
		s := newScene(ctx)
		registry := prometheus.NewRegistry()
		s.r.Metrics = metrics.NewManager(registry)
		changes := func(to string) float64 {
			return metrictest.Of(GinkgoTB(), registry).Value(GinkgoTB(), "agentplatform_connector_destination_changes_total", "to", to)
		}
		changed := make(chan event.GenericEvent, 10)
		clock := time.Unix(1_000_000, 0)
		look := &connector.Destinations{
			Store: s.Store, Changed: changed, Namespaces: namespaces.Set{s.Namespace}, Logger: slog.New(slog.DiscardHandler),
			Damper: s.r.Damper,
		}
		s.r.Damper.Now = func() time.Time { return clock }
		notified := func() (names []string) {
			GinkgoHelper()
			Expect(look.CheckAll(ctx)).To(Succeed())
			for len(changed) > 0 {
				names = append(names, (<-changed).Object.GetName())
			}
			return names
		}
		c := s.reconciled(ctx, s.Connector("results", sends))
		Expect(notified()).To(BeEmpty())

		database := func(statement string, args ...any) {
			GinkgoHelper()
			_, err := s.Store.Database.ExecContext(ctx, statement, args...)
			Expect(err).NotTo(HaveOccurred())
		}
		key := s.Key(c)
		database(`INSERT INTO destinations (project_id, connector_id, failures, paused_reason) VALUES (?, ?, ?, '')`, key.ProjectID.String(), key.ID.String(), store.BreakAfter)
		Expect(notified()).To(ConsistOf("results"))
		Expect(notified()).To(BeEmpty(), "nothing is new")
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Reason).To(Equal(v1alpha1.ReasonDestinationFailing))
		Expect(s.Events.Sent()).To(ContainElement(ContainSubstring(v1alpha1.ReasonDestinationFailing)))

		database(`UPDATE destinations SET paused_generation = ?, paused_reason = 'it answered 410 Gone'`, c.Generation)
		Expect(notified()).To(ConsistOf("results"))
		s.ExpectReconciled(ctx, s.r, c)
		Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Reason).To(Equal(v1alpha1.ReasonPaused))
		Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Message).To(ContainSubstring("410 Gone"))

		Expect(s.Store.ResumeDestination(ctx, key)).To(Succeed())
		Expect(notified()).To(ConsistOf("results"))
		s.ExpectReconciled(ctx, s.r, c)
		Expect(c.Status.IsTrue(v1alpha1.ConditionDelivering)).To(BeTrue())
		Expect(s.Events.Sent()).To(ContainElement(ContainSubstring("deliveries succeed again")))
		Expect([]float64{changes("failing"), changes("paused"), changes("resumed")}).To(Equal([]float64{1, 1, 1}))
		s.ExpectReconciled(ctx, s.r, c)
		Expect(changes("resumed")).To(BeEquivalentTo(1), "once")

		By("accepting some deliveries and rejecting others")
		for range 3 {
			database(`UPDATE destinations SET rejected = 1, rejected_reason = ?`, clock.String())
			notified()
			database(`UPDATE destinations SET rejected = 0, rejected_reason = ''`)
			clock = clock.Add(time.Minute)
			Expect(notified()).To(BeEmpty(), "it is not calm yet")
			s.ExpectReconciled(ctx, s.r, c)
			Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Reason).To(Equal(v1alpha1.ReasonDeliveriesFailing), "whoever reconciles it")
		}
		clock = clock.Add(9 * time.Minute)
		Expect(notified()).To(ConsistOf("results"))
		Expect(notified()).To(BeEmpty())
		s.ExpectReconciled(ctx, s.r, c)
		Expect(c.Status.IsTrue(v1alpha1.ConditionDelivering)).To(BeTrue())

		By("being disabled")
		c.Spec.Enabled = ptr.To(false)
		s.reconciled(ctx, c)
		Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Reason).To(Equal(v1alpha1.ReasonDisabled))

		By("losing its project")
		s.ExpectGone(ctx, s.Project())
		s.ExpectReconciled(ctx, s.r, c)
		Expect(c.Status.Condition(v1alpha1.ConditionDelivering).Reason).NotTo(Equal(v1alpha1.ReasonSucceeded))
	})
})
