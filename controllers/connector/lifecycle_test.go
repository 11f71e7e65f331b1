// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("A Connector", func() {
	It("goes from created to ready when its dependencies exist", func(ctx SpecContext) {
		s := bare()
		c := s.Connector("ask")
		s.ExpectApplied(ctx, c)
		Expect(s.ExpectReconciled(ctx, s.r, c).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(c)).To(Equal("Ready=False/ProjectMissing Reconciling"))
		Expect(c.Status.ID).NotTo(BeEmpty(), "the id is claimed first")

		s.ExpectProject(ctx)
		Expect(s.ExpectReconciled(ctx, s.r, c).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(c)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(Message(c)).To(ContainSubstring(`Environment "dev"`))

		environment := s.Environment("dev")
		s.ExpectApplied(ctx, environment)
		Expect(s.ExpectReconciled(ctx, s.r, c).RequeueAfter).To(Equal(2*time.Second), "it is there, and comes into effect")
		Expect(State(c)).To(Equal("Ready=Unknown/Progressing Reconciling"))
		s.ExpectGone(ctx, environment)

		s.ExpectEnvironment(ctx, "dev")
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(c.Status.IsTrue(v1alpha1.ConditionSecretReady)).To(BeTrue())
		Expect(c.Status.IsTrue(v1alpha1.ConditionRoutesReady)).To(BeTrue())
		Expect(c.Status.URL).To(Equal("https://hooks.example.com/hooks/" + s.Key(c).String()))
		Expect(s.row(ctx, c).Secrets[0].SHA256).To(Equal(secrets.Digest(s.shown(ctx, c))))
		Expect(s.Children(ctx, c.UID)).To(ConsistOf("Secret ask-connector"))
		Expect(s.ExpectAtRest(ctx, s.r, c).RequeueAfter).To(BeZero())

		By("staying ready while the store is unavailable")
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded Reconciling observed"))
		s.Store.ComeBack()

		By("being disabled")
		c.Spec.Enabled = ptr.To(false)
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(Message(c)).To(ContainSubstring("disabled"))
		Expect(s.row(ctx, c).Enabled).To(BeFalse())

		By("losing its environment")
		environment = s.Environment("dev")
		s.ExpectGone(ctx, environment)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=False/ReferenceMissing Reconciling observed"))
		Expect(c.Status.IsTrue(v1alpha1.ConditionRoutesReady)).To(BeFalse())
	})

	It("is not served before the project is in the store", func(ctx SpecContext) {
		s := bare()
		project := s.Project()
		s.ExpectApplied(ctx, project)
		s.ExpectEnvironment(ctx, "dev")
		c := s.reconciled(ctx, s.Connector("ask"))
		Expect(State(c)).To(Equal("Ready=Unknown/Progressing Reconciling"))
		Expect(Message(c)).To(ContainSubstring("Project"))
		Expect(c.Status.URL).To(BeEmpty())
	})

	It("is stalled if only a user can fix it", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask" }))
		Expect(v1alpha1.IsReady(first)).To(BeTrue())

		second := s.Connector("other", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask" })
		s.ExpectApplied(ctx, second)
		Expect(s.ExpectReconciled(ctx, s.r, second).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(second)).To(Equal("Ready=False/NameTaken Stalled observed"))
		Expect(Message(second)).To(ContainSubstring(s.Namespace + "/ask"))
		Expect(s.Children(ctx, second.UID)).To(BeEmpty(), "a connector that is not served has no Secret")

		s.ExpectDeleted(ctx, s.r, first)
		s.ExpectReconciled(ctx, s.r, second)
		Expect(State(second)).To(Equal("Ready=True/Succeeded observed"), "the name is free")

		By("requesting the ID of another one")
		id := v1alpha1.UUID(uuid.NewString())
		holder := s.reconciled(ctx, s.Connector("holder", func(c *v1alpha1.Connector) { c.Spec.ID = id }))
		thief := s.reconciled(ctx, s.Connector("thief", func(c *v1alpha1.Connector) { c.Spec.ID = id }))
		Expect(State(thief)).To(Equal("Ready=False/IDTaken Stalled observed"))
		Expect(thief.Status.ID).To(BeEmpty())
		s.ExpectReconciled(ctx, s.r, holder)
		Expect(State(holder)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.row(ctx, holder).Name).To(Equal("holder"))
	})

	It("keeps the version of the secret in effect", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask"))
		before := s.shown(ctx, c)
		c.Spec.SecretVersion = 3
		s.reconciled(ctx, c)
		after := s.shown(ctx, c)
		Expect(after).NotTo(Equal(before))
		accepted := s.row(ctx, c).Secrets
		Expect(accepted).To(HaveLen(2), "the secret before has its time of grace")
		Expect(accepted[0].NotAfter).To(BeNil())
		Expect(accepted[1].SHA256).To(Equal(secrets.Digest(before)))

		c.Spec.SecretVersion = 2
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=False/SecretVersionWentBack Stalled observed"))
		Expect(s.row(ctx, c).Secrets[0].SHA256).To(Equal(secrets.Digest(after)))
		c.Spec.SecretVersion = 3
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.shown(ctx, c)).To(Equal(after))
	})

	It("reports the version of the secret in effect, even if it cannot publish the secret", func(ctx SpecContext) {
		s := newScene(ctx)
		s.ExpectApplied(ctx, s.Secret("ask-connector", map[string]string{"theirs": "x"}))
		c := s.reconciled(ctx, s.Connector("ask"))
		Expect(State(c)).To(ContainSubstring("NameCollision"))
		Expect(c.Status.SecretVersion).To(BeEquivalentTo(1))
		c.Spec.SecretVersion = 2
		s.reconciled(ctx, c)
		Expect(s.row(ctx, c).SecretVersion).To(BeEquivalentTo(2))
		Expect(c.Status.SecretVersion).To(BeEquivalentTo(2))
	})

	It("is disabled despite other problems", func(ctx SpecContext) {
		off := false
		for name, spoil := range map[string]func(s *scene, own *corev1.Secret){
			"Secret deleted":      func(s *scene, own *corev1.Secret) { s.ExpectGone(ctx, own) },
			"environment deleted": func(s *scene, _ *corev1.Secret) { s.ExpectGone(ctx, s.Environment("dev")) },
			"project with an unsupported field": func(s *scene, _ *corev1.Secret) {
				project := &v1alpha1.Project{ObjectMeta: s.At(v1alpha1.ProjectName)}
				s.ExpectExists(ctx, project)
				project.Spec.ModelProviders = []v1alpha1.ModelProvider{{Prefix: "a", Type: v1alpha1.ModelProviderAnthropic}}
				s.ExpectApplied(ctx, project)
			},
		} {
			By(name)
			s := newScene(ctx)
			own := s.Secret("own", map[string]string{secrets.PurposeSecret: "a-secret-of-mine"})
			s.ExpectApplied(ctx, own)
			c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"} }))
			Expect(s.row(ctx, c).Enabled).To(BeTrue())
			spoil(s, own)
			c.Spec.Enabled = &off
			s.reconciled(ctx, c)
			Expect(s.row(ctx, c).Enabled).To(BeFalse(), name)
			Expect(c.TakesEvents()).To(BeFalse(), name)
		}
	})

	It("follows its spec, whatever its labels", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask"))
		for _, labels := range []map[string]string{
			{v1alpha1.LabelDefinedInCode: "true"},
			{v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelRetired: "true", v1alpha1.LabelActivation: "7"},
		} {
			c.Labels = labels
			c.Spec.Enabled = ptr.To(true)
			c.Spec.SecretVersion++
			s.reconciled(ctx, c)
			Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
			Expect(s.row(ctx, c).SecretVersion).To(BeEquivalentTo(c.Spec.SecretVersion))
			Expect(s.row(ctx, c).DefinedInCode).To(BeFalse())
			Expect(c.Status.DefinedInCode).To(BeFalse())
			s.ExpectAtRest(ctx, s.r, c)
			c.Spec.Enabled = ptr.To(false)
			s.reconciled(ctx, c)
			Expect(s.row(ctx, c).Enabled).To(BeFalse())
		}
	})

	It("uses the user's own secret, and its changes", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"} }))
		Expect(State(c)).To(Equal("Ready=False/SecretMissing Reconciling"))
		own := s.Secret("own", map[string]string{"else": "x"})
		s.ExpectApplied(ctx, own)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=False/SecretInvalid Reconciling"))
		own.StringData = map[string]string{secrets.PurposeSecret: ""}
		s.ExpectApplied(ctx, own)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(State(c)).To(Equal("Ready=False/SecretInvalid Reconciling"), "nothing is no secret")
		for _, value := range []string{"a-secret-of-mine", "another-of-mine"} {
			own.StringData = map[string]string{secrets.PurposeSecret: value}
			s.ExpectApplied(ctx, own)
			s.ExpectReconciled(ctx, s.r, c)
			Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
			Expect(s.row(ctx, c).Secrets[0].SHA256).To(Equal(secrets.Digest(value)))
			Expect(s.row(ctx, c).SecretKey).To(BeEmpty())
		}
		Expect(c.Status.SecretName).To(Equal("own"))
		c.Spec.SecretVersion = 7
		s.reconciled(ctx, c)
		Expect(c.Status.Condition(v1alpha1.ConditionSecretReady).Message).To(Equal(`the project's own, in Secret "own"`), "no version rotates that")
		Expect(s.Children(ctx, c.UID)).To(BeEmpty(), "the user's Secret is not copied")
		s.ExpectAtRest(ctx, s.r, c)
	})

	It("has no secret without authentication", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.Authentication = v1alpha1.UUID(uuid.NewString()), v1alpha1.AuthenticationNone
		}))
		withNone := func() {
			GinkgoHelper()
			Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
			Expect(c.Status.Condition(v1alpha1.ConditionSecretReady)).To(BeNil())
			Expect(c.Status.SecretName).To(BeEmpty())
			Expect(s.row(ctx, c).Secrets).To(BeEmpty())
		}
		withNone()
		Expect(s.Children(ctx, c.UID)).To(BeEmpty())
		s.ExpectAtRest(ctx, s.r, c)

		c.Spec.Webhook.Authentication, c.Spec.SecretVersion = v1alpha1.AuthenticationSecret, 2
		s.reconciled(ctx, c)
		Expect(s.row(ctx, c).Secrets[0].SHA256).To(Equal(secrets.Digest(s.shown(ctx, c))))
		secret := s.shown(ctx, c)

		c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone
		s.reconciled(ctx, c)
		withNone()
		Expect(c.Status.SecretVersion).To(BeEquivalentTo(2), "which never goes back")
		c.Spec.Webhook.Authentication = v1alpha1.AuthenticationSecret
		s.reconciled(ctx, c)
		Expect(s.shown(ctx, c)).To(Equal(secret))
	})

	It("is removed from the store, and is re-created with the same ID, URL and secret", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask"))
		secret := s.shown(ctx, c)
		s.ExpectDeleted(ctx, s.r, c)
		_, err := s.Store.Connector(ctx, s.Key(c))
		Expect(err).To(MatchError(store.ErrNotFound))
		s.ExpectGone(ctx, &corev1.Secret{ObjectMeta: s.At("ask-connector")}) // like the garbage collector

		again := s.reconciled(ctx, s.Connector("ask"))
		Expect(again.Status.URL).To(Equal(c.Status.URL))
		Expect(s.shown(ctx, again)).To(Equal(secret))
	})

	It("restores its Secret", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.reconciled(ctx, s.Connector("ask"))
		value := s.shown(ctx, c)
		shown := &corev1.Secret{ObjectMeta: s.At("ask-connector")}
		s.ExpectExists(ctx, shown)
		shown.Data, shown.Labels = map[string][]byte{secrets.PurposeSecret: []byte("edited")}, nil
		s.ExpectApplied(ctx, shown)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.shown(ctx, c)).To(Equal(value))
		s.ExpectExists(ctx, shown)
		Expect(shown.Labels).To(HaveKeyWithValue(base.LabelManagedBy, base.ManagedBy))
		s.ExpectGone(ctx, shown)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.shown(ctx, c)).To(Equal(value))
		s.ExpectAtRest(ctx, s.r, c)
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene(ctx)
			c := s.Connector("ask")
			s.ExpectApplied(ctx, c)
			s.ExpectSurvives(ctx, fault, s.r, c, "Secret ask-connector")
			Expect(v1alpha1.IsReady(c)).To(BeTrue())
		})
	}
})
