// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

var _ = Describe("A Connector of a provider that signs requests", func() {
	It("has a generated secret in the format of its provider, and seals nothing", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.Connector("ask", func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationGitHub })
		s.reconciled(ctx, c)
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		row := s.row(ctx, c)
		Expect(row.Config).To(MatchJSON(`{"require_authentication":true,"authentication":"github"}`))
		Expect(row.Sealed).To(BeNil())
		Expect(s.shown(ctx, c)).To(HavePrefix("whs_"))
		Expect(row.SecretDigest).To(Equal(secrets.Digest(s.shown(ctx, c))))
		s.ExpectAtRest(ctx, s.r, c)

		By("signing in the format of Standard Webhooks")
		c.Spec.Webhook.Authentication = v1alpha1.AuthenticationStandardWebhooks
		s.reconciled(ctx, c)
		Expect(s.row(ctx, c).Config).To(MatchJSON(`{"require_authentication":true,"authentication":"standard_webhooks"}`))
		Expect(s.shown(ctx, c)).To(HavePrefix("whsec_"))
		Expect(s.row(ctx, c).SecretDigest).To(Equal(secrets.Digest(s.shown(ctx, c))))
	})

	It("seals the user's own secrets while they are accepted", func(ctx SpecContext) {
		s := newScene(ctx)
		own := s.Secret("own", map[string]string{"secret": "first"})
		s.ExpectApplied(ctx, own)
		c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) {
			c.Spec.Webhook.Authentication, c.Spec.SecretRef = v1alpha1.AuthenticationSlack, &v1alpha1.SecretReference{Name: "own"}
		}))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.sealed(ctx, c)).To(Equal(`{"secrets":["first"]}`))
		Expect(string(s.row(ctx, c).Sealed)).NotTo(ContainSubstring("first"))
		s.ExpectAtRest(ctx, s.r, c)
		before := s.row(ctx, c)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.row(ctx, c)).To(Equal(before), "sealed once")

		By("replacing it, with the previous one in its grace period")
		own.StringData = map[string]string{"secret": "second"}
		s.ExpectApplied(ctx, own)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.sealed(ctx, c)).To(Equal(`{"secrets":["second","first"]}`))
		before = s.row(ctx, c)
		s.ExpectReconciled(ctx, s.r, c)
		Expect(s.row(ctx, c)).To(Equal(before))

		By("generating one, while earlier ones are still accepted")
		c.Spec.SecretRef = nil
		s.reconciled(ctx, c)
		Expect(s.sealed(ctx, c)).To(Equal(`{"secrets":["second","first"]}`))

		By("ending the grace period")
		c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0))
		s.reconciled(ctx, c)
		Expect(s.row(ctx, c).Sealed).To(BeNil())
		s.ExpectAtRest(ctx, s.r, c)
	})

	It("decrypts the secret that the REST API has sealed for it", func(ctx SpecContext) {
		const id = "7b0c7a52-6c1f-4c3e-9a55-eeeeeeeeeeee"
		s := newScene(ctx)
		sealed, _, err := s.Keys.Seal(secrets.SecretField(s.ProjectID(s.Namespace), uuid.MustParse(id)), []byte("mine"))
		Expect(err).NotTo(HaveOccurred())
		c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.Authentication, c.Spec.Webhook.SealedSecret = id, v1alpha1.AuthenticationSlack, base64.StdEncoding.EncodeToString(sealed)
		}))
		Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.sealed(ctx, c)).To(Equal(`{"secrets":["mine"]}`))
		Expect(s.row(ctx, c).SecretKey).To(BeEmpty())
		Expect(c.Status.SecretName).To(BeEmpty())
		Expect(s.Children(ctx, c.UID)).To(BeEmpty(), "the user's Secret is not copied")
		s.ExpectAtRest(ctx, s.r, c)

		By("rejecting a secret of another connector, and an unsealed one")
		for _, wrong := range []string{base64.StdEncoding.EncodeToString(sealed), "?"} {
			other := s.reconciled(ctx, s.Connector("other-"+strconv.Itoa(len(wrong)), func(c *v1alpha1.Connector) { c.Spec.Webhook.SealedSecret = wrong }))
			Expect(State(other)).To(ContainSubstring("InvalidSpec"))
		}
	})

	It("needs no plain secret if the digest is enough", func(ctx SpecContext) {
		s := newScene(ctx)
		s.ExpectApplied(ctx, s.Secret("own", map[string]string{"secret": "mine"}))
		for _, a := range []v1alpha1.WebhookAuthentication{v1alpha1.AuthenticationSecret, v1alpha1.AuthenticationGitLab} {
			c := s.reconciled(ctx, s.Connector("ask-"+strings.ToLower(string(a)), func(c *v1alpha1.Connector) {
				c.Spec.Webhook.Authentication, c.Spec.SecretRef = a, &v1alpha1.SecretReference{Name: "own"}
			}))
			Expect(State(c)).To(Equal("Ready=True/Succeeded observed"))
			Expect(s.row(ctx, c).Sealed).To(BeNil())
			Expect(s.row(ctx, c).SecretDigest).To(Equal(secrets.Digest("mine")))
		}
	})

	It("rejects a secret that is too large", func(ctx SpecContext) {
		s := newScene(ctx)
		s.ExpectApplied(ctx, s.Secret("own", map[string]string{"secret": strings.Repeat("x", 4097)}))
		c := s.reconciled(ctx, s.Connector("ask", func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"} }))
		Expect(State(c)).To(Equal("Ready=False/SecretInvalid Reconciling"))
	})
})
