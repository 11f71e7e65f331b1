// SPDX-License-Identifier: Apache-2.0

package runnerpool_test

import (
	"encoding/base64"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// variables returns the variables of the runners of "dev", and the digest in their pods.
func (s *scene) variables(ctx SpecContext, e *v1alpha1.Environment) (runnerconfig.Variables, string) {
	GinkgoHelper()
	config := &corev1.Secret{ObjectMeta: s.At(e.Name + "-runner-config")}
	s.ExpectExists(ctx, config)
	variables, err := runnerconfig.ParseVariables(config.Data[runnerconfig.VariablesFile])
	Expect(err).NotTo(HaveOccurred())
	return variables, s.Pool(ctx, e).Spec.Template.Annotations["agentplatform.dev/config"]
}

// sealed returns a value as the facade seals it for a variable of an environment.
func (s *scene) sealed(e *v1alpha1.Environment, name, value string) string {
	GinkgoHelper()
	key := s.Key(e)
	raw, _, err := s.Keys.Seal(secrets.VariableField(key.ProjectID, key.ID, name), []byte(value))
	Expect(err).NotTo(HaveOccurred())
	return base64.StdEncoding.EncodeToString(raw)
}

var _ = Describe("The variables of an Environment", func() {
	It("reach its runners, and a change replaces the pods", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.Environment("dev", func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{
				{Name: "REGION", Value: ptr.To("eu")}, {Name: "EMPTY", Value: ptr.To("")},
				{Name: "TOKEN", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}},
			}
		})
		e.Spec.Variables = append(e.Spec.Variables, v1alpha1.EnvironmentVariable{Name: "PASSWORD", SealedValue: s.sealed(e, "PASSWORD", "hush")})
		secret := s.Secret("crm", map[string]string{"token": "first"})
		s.ExpectApplied(ctx, secret)
		s.ExpectReady(ctx, e)
		found, first := s.variables(ctx, e)
		Expect(found.Variables).To(Equal([]runnerconfig.Variable{
			{Name: "EMPTY"}, {Name: "PASSWORD", Value: "hush", Sensitive: true}, {Name: "REGION", Value: "eu"}, {Name: "TOKEN", Value: "first", Sensitive: true},
		}))

		By("another order, and a value that is sealed again")
		slices.Reverse(e.Spec.Variables)
		e.Variable("PASSWORD").SealedValue = s.sealed(e, "PASSWORD", "hush")
		s.ApplyAndReconcile(ctx, e)
		_, same := s.variables(ctx, e)
		Expect(same).To(Equal(first), "nothing has changed for the runners")
		s.ExpectAtRest(ctx, s.R, e)

		By("another value in the Secret")
		secret.StringData = map[string]string{"token": "second"}
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.R, e)
		found, second := s.variables(ctx, e)
		Expect(found.Variables).To(ContainElement(runnerconfig.Variable{Name: "TOKEN", Value: "second", Sensitive: true}))
		Expect(second).NotTo(Equal(first))
		Expect(State(e)).To(ContainSubstring("RunnersStarting"), "in effect once the new pods are ready")

		By("another value in the object")
		e.Variable("REGION").Value = ptr.To("us")
		s.ApplyAndReconcile(ctx, e)
		_, third := s.variables(ctx, e)
		Expect([]string{first, second}).NotTo(ContainElement(third))
	})

	It("keep their values if one of them is unavailable", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev", func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REGION", Value: ptr.To("eu")}}
		}))
		before, digest := s.variables(ctx, e)
		crm := s.Secret("crm", nil)
		crm.Data = map[string][]byte{"binary": {0xff}, "long": []byte(strings.Repeat("x", runnerconfig.MaxVariable+1))}
		s.ExpectApplied(ctx, crm)
		other := s.Environment("other")
		ref := func(name, key string) v1alpha1.EnvironmentVariable {
			return v1alpha1.EnvironmentVariable{Name: "TOKEN", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: v1alpha1.Name(name), Key: key}}
		}
		for _, c := range []struct {
			variable       v1alpha1.EnvironmentVariable
			state, message string
		}{
			{ref("nobody", "token"), "Ready=False/SecretMissing Reconciling", `"nobody"`},
			{ref("crm", "token"), "Ready=False/SecretInvalid Reconciling", `it has no key "token"`},
			{ref("crm", "binary"), "Ready=False/SecretInvalid Reconciling", "is not UTF-8 text"},
			{ref("dev-runner-config", "variables.json"), "Ready=False/InvalidSpec Stalled observed", `names Secret "dev-runner-config", which the platform creates`},
			{ref("crm", "long"), "Ready=False/InvalidSpec Stalled observed", `"TOKEN" has a value of more than 8192 bytes`},
			{v1alpha1.EnvironmentVariable{Name: "TOKEN", SealedValue: "nonsense!"}, "Ready=False/InvalidSpec Stalled observed", "cannot be decrypted"},
			{v1alpha1.EnvironmentVariable{Name: "TOKEN", SealedValue: s.sealed(other, "TOKEN", "x")}, "Ready=False/InvalidSpec Stalled observed", "cannot be decrypted"},
			{v1alpha1.EnvironmentVariable{Name: "TOKEN", SealedValue: s.sealed(e, "ANOTHER", "x")}, "Ready=False/InvalidSpec Stalled observed", "cannot be decrypted"},
		} {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{c.variable}
			s.ApplyAndReconcile(ctx, e)
			Expect(State(e)).To(Equal(c.state))
			Expect(Message(e)).To(ContainSubstring(c.message))
			after, same := s.variables(ctx, e)
			Expect(after).To(Equal(before))
			Expect(same).To(Equal(digest))
		}
		e.Spec.Variables = nil
		s.ApplyAndReconcile(ctx, e)
		after, _ := s.variables(ctx, e)
		Expect(after.Variables).To(BeEmpty())
	})
})
