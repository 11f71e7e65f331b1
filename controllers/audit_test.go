// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("The audit log", func() {
	It("records the creation and revocation of a key by any client", func(ctx SpecContext) {
		p := start()
		ns := p.plane.Namespace(GinkgoTB())
		at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		made := keys.Generate()
		key := &v1alpha1.APIKey{ObjectMeta: at("ci"), Spec: v1alpha1.APIKeySpec{
			Hash: made.Hash(), KeyID: made.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
		}}
		project := &v1alpha1.Project{ObjectMeta: at("project")}
		Expect(p.client.Create(ctx, key, client.FieldOwner("agentctl"))).To(Succeed(), "before its project")
		Expect(p.client.Create(ctx, project)).To(Succeed())
		p.eventually(ctx, key, ready(key))
		p.eventually(ctx, project, ready(project))
		entries := func() []store.AuditEntry {
			list, err := p.store.ListAudit(ctx, store.AuditQuery{ProjectID: uuid.MustParse(project.Status.ID), Limit: 10})
			Expect(err).NotTo(HaveOccurred())
			return list
		}
		Expect(entries()).To(HaveLen(1))
		first := entries()[0]
		Expect(first.Operation).To(Equal("createAPIKey"))
		Expect(first.Actor).To(Equal(store.AuditActor{Kind: store.AuditWriter, Name: "agentctl"}))
		Expect(first.Object).To(Equal(store.AuditObject{Kind: "api_key", ID: key.Status.ID, Name: "ci"}))
		Expect(string(first.Outcome.After)).To(ContainSubstring("anna"))

		before := key.DeepCopy()
		key.Spec.Revoked = true
		Expect(p.client.Patch(ctx, key, client.MergeFrom(before), client.FieldOwner("kubectl-edit"))).To(Succeed())
		p.eventually(ctx, key, func() bool {
			ready := key.Status.Condition(v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonRevoked
		})
		Expect(entries()).To(HaveLen(2))
		Expect(entries()[0].Operation).To(Equal("revokeAPIKey"))
		Expect(entries()[0].Actor.Name).To(Equal("kubectl-edit"))
	})
})
