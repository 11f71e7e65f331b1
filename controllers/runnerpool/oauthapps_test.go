// SPDX-License-Identifier: Apache-2.0

package runnerpool_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

var _ = Describe("The OAuth apps of an Environment", func() {
	It("reach its runners by name in a Secret that is deleted with the Environment, and a change replaces the pods", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.Environment("dev", func(e *v1alpha1.Environment) {
			erp := OAuthApp("erp", "apps", "erp")
			erp.Scopes, erp.Audience = []v1alpha1.OAuthScope{"read", "write"}, "https://erp.example.com"
			e.Spec.OAuthApps = []v1alpha1.OAuthApp{erp, OAuthApp("crm", "apps", "crm")}
		})
		secret := s.Secret("apps", map[string]string{"crm": "first\n", "erp": "hush"})
		s.ExpectApplied(ctx, secret)
		s.ExpectReady(ctx, e)
		found, first := s.variables(ctx, e)
		Expect(found.OAuthApps).To(Equal([]runnerconfig.OAuthApp{
			{Name: "crm", TokenURL: "https://login.example.com/token", ClientID: "agents", ClientSecret: "first"},
			{
				Name: "erp", TokenURL: "https://login.example.com/token", ClientID: "agents", ClientSecret: "hush",
				Scopes: []string{"read", "write"}, Audience: "https://erp.example.com",
			},
		}))
		s.ExpectAtRest(ctx, s.R, e)
		config := &corev1.Secret{ObjectMeta: s.At("dev-runner-config")}
		s.ExpectExists(ctx, config)
		Expect(metav1.IsControlledBy(config, e)).To(BeTrue(), "Kubernetes deletes it with the Environment")

		By("another client secret")
		secret.StringData = map[string]string{"crm": "second"}
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.R, e)
		found, second := s.variables(ctx, e)
		Expect(found.OAuthApps[0].ClientSecret).To(Equal("second"))
		Expect(second).NotTo(Equal(first))
		Expect(State(e)).To(ContainSubstring("RunnersStarting"), "in effect once the new pods are ready")

		By("no apps")
		e.Spec.OAuthApps = nil
		s.ApplyAndReconcile(ctx, e)
		found, _ = s.variables(ctx, e)
		Expect(found.OAuthApps).To(BeEmpty())
	})

	It("keep their values if a client secret is unavailable", func(ctx SpecContext) {
		s := newScene(ctx)
		s.ExpectApplied(ctx, s.Secret("apps", map[string]string{
			"good": "x", "empty": " \n", "lines": "a\nb", "long": strings.Repeat("x", runnerconfig.MaxVariable+1),
		}))
		e := s.ExpectReady(ctx, s.Environment("dev", func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = []v1alpha1.OAuthApp{OAuthApp("crm", "apps", "good")}
		}))
		before, digest := s.variables(ctx, e)
		for _, c := range []struct {
			app            v1alpha1.OAuthApp
			state, message string
		}{
			{OAuthApp("crm", "nobody", "token"), "Ready=False/SecretMissing Reconciling", `"nobody"`},
			{OAuthApp("crm", "apps", "other"), "Ready=False/SecretInvalid Reconciling", `it has no key "other"`},
			{OAuthApp("crm", "apps", "empty"), "Ready=False/SecretInvalid Reconciling", `the OAuth app "crm" needs a client secret`},
			{OAuthApp("crm", "apps", "lines"), "Ready=False/SecretInvalid Reconciling", "contains a line break"},
			{OAuthApp("crm", "apps", "long"), "Ready=False/InvalidSpec Stalled observed", `spec.oauthApps: "crm" has a client secret of more than 8192 bytes`},
			{OAuthApp("crm", "dev-runner-config", "variables.json"), "Ready=False/InvalidSpec Stalled observed", `names Secret "dev-runner-config", which the platform creates`},
		} {
			e.Spec.OAuthApps = []v1alpha1.OAuthApp{c.app}
			s.ApplyAndReconcile(ctx, e)
			Expect(State(e)).To(Equal(c.state))
			Expect(Message(e)).To(ContainSubstring(c.message))
			after, same := s.variables(ctx, e)
			Expect(after).To(Equal(before))
			Expect(same).To(Equal(digest))
		}
	})
})
