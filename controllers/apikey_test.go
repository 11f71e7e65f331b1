// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("An API key", func() {
	It("reports unknown permissions, and the expiry of a key with groups", func(ctx SpecContext) {
		t := start().team(ctx)
		key := func(name string) *v1alpha1.APIKey {
			return &v1alpha1.APIKey{ObjectMeta: t.at(name), Spec: v1alpha1.APIKeySpec{
				Hash: strings.Repeat("0a", 32), KeyID: "Ab3dEf7h", Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
			}}
		}
		misspelt, member := key("misspelt"), key("member")
		misspelt.Spec.Access = v1alpha1.AccessSelected
		misspelt.Spec.Permissions = []v1alpha1.Permission{"environments.view", "environment.veiw"}
		member.Spec.Owner.Groups = []string{"dev", "system:masters"}
		for _, k := range []*v1alpha1.APIKey{misspelt, member} {
			Expect(t.client.Create(ctx, k)).To(Succeed())
		}
		t.eventually(ctx, misspelt, stalled(misspelt))
		ready := misspelt.Status.Condition(v1alpha1.ConditionReady)
		Expect(ready.Reason).To(Equal(v1alpha1.ReasonPermissionUnknown))
		Expect(ready.Message).To(ContainSubstring("environment.veiw"))

		t.eventually(ctx, member, func() bool { return v1alpha1.IsReady(member) })
		end := member.CreationTimestamp.Add(365 * 24 * time.Hour).UTC().Format(time.RFC3339)
		Expect(member.Status.Condition(v1alpha1.ConditionReady).Message).To(And(ContainSubstring(end), ContainSubstring("system:masters")))
	}, SpecTimeout(time.Minute))
})
