// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("An object of a restored etcd", func() {
	It("is used although the store has a later generation", func(ctx SpecContext) {
		p := start()
		t := p.team(ctx)
		connector := &v1alpha1.Connector{ObjectMeta: t.at("ask"), Spec: v1alpha1.ConnectorSpec{
			Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}}
		Expect(p.client.Create(ctx, connector)).To(Succeed())
		t.eventually(ctx, connector, ready(connector))
		key := store.Key{ProjectID: t.projectID, ID: uuid.MustParse(connector.Status.ID)}
		row, err := p.store.Connector(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		row.Ref.Generation = 99
		Expect(p.store.PutConnector(ctx, row)).To(Succeed())

		before := connector.DeepCopy()
		connector.Spec.Enabled = ptr.To(false)
		Expect(p.client.Patch(ctx, connector, client.MergeFrom(before))).To(Succeed())
		Eventually(func() (bool, error) {
			row, err := p.store.Connector(ctx, key)
			return row.Enabled, err
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(BeFalse())
		t.eventually(ctx, connector, ready(connector))
	}, SpecTimeout(time.Minute))
})
