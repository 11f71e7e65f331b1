// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

var _ = Describe("A child that a user deletes", func() {
	var t *team
	BeforeEach(func(ctx SpecContext) {
		t = start().team(ctx)
		DeferCleanup(t.clear)
		Expect(t.client.Create(ctx, &v1alpha1.Connector{ObjectMeta: t.at("ask"), Spec: v1alpha1.ConnectorSpec{
			Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}})).To(Succeed())
		t.deploy(ctx, "v1", "main")
		for _, row := range children {
			child := foreign(row.kind, t.at(row.child))
			t.eventually(ctx, child, func() bool { return metav1.GetControllerOf(child) != nil })
		}
	}, NodeTimeout(2*time.Minute))

	It("is re-created without a change of its owner, because it is watched", func(ctx SpecContext) {
		for _, row := range children {
			By(row.kind + " " + row.child)
			child := foreign(row.kind, t.at(row.child))
			Expect(t.client.Get(ctx, client.ObjectKeyFromObject(child), child)).To(Succeed())
			before := child.GetUID()
			Expect(t.client.Delete(ctx, child, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			if row.child == buildJob {
				token := foreign("Secret", t.at(buildJob+"-token")) // owned by the Job, which no garbage collector handles here
				Expect(t.client.Delete(ctx, token)).To(Succeed())
			}
			// Sooner than the periodic reconcile.
			Eventually(ctx, func() bool {
				err := t.client.Get(ctx, client.ObjectKeyFromObject(child), child)
				return err == nil && child.GetUID() != before && metav1.GetControllerOf(child) != nil
			}).WithTimeout(15 * time.Second).WithPolling(50 * time.Millisecond).Should(BeTrue())
		}
	}, SpecTimeout(2*time.Minute))

	It("gets the label of the cache back", func(ctx SpecContext) {
		for _, row := range children {
			By(row.kind + " " + row.child)
			child := foreign(row.kind, t.at(row.child))
			Expect(t.client.Get(ctx, client.ObjectKeyFromObject(child), child)).To(Succeed())
			before := child.GetUID()
			strip := `{"metadata":{"labels":{"` + base.LabelManagedBy + `":null}}}`
			Expect(t.client.Patch(ctx, child, client.RawPatch(types.MergePatchType, []byte(strip)))).To(Succeed())
			Eventually(ctx, func() bool {
				err := t.client.Get(ctx, client.ObjectKeyFromObject(child), child)
				return err == nil && child.GetUID() == before && base.IsLabelled(child)
			}).WithTimeout(15 * time.Second).WithPolling(50 * time.Millisecond).Should(BeTrue())
		}
	}, SpecTimeout(2*time.Minute))
})
