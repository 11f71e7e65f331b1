// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/store"
)

// lost puts projects into a store whose objects no cluster has.
func lost(count int) func(context.Context, store.Store, uuid.UUID) {
	return func(ctx context.Context, db store.Store, platformID uuid.UUID) {
		for i := range count {
			namespace := fmt.Sprintf("lost-%d", i)
			Expect(db.PutProject(ctx, store.Project{ID: v1alpha1.ProjectID(platformID, namespace), DisplayName: "lost", Ref: store.ObjectRef{
				Namespace: namespace, Kind: store.KindProject, Name: v1alpha1.ProjectName, ObjectUID: uuid.NewString(), Generation: 1,
			}})).To(Succeed())
		}
	}
}

var _ = Describe("The sweep at the start", func() {
	It("removes what was deleted while no manager looked", func(ctx SpecContext) {
		p := startOn(lost(3))
		Eventually(func() ([]store.ProjectedObject, error) {
			return p.lostOf(ctx)
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("leaves all where most would go", func(ctx SpecContext) {
		p := startOn(lost(40))
		t := p.team(ctx)
		project := &v1alpha1.Project{ObjectMeta: t.at("project")}
		p.eventually(ctx, project, project.IsReady)
		_, err := controllers.Sweep(ctx, p.client, p.store)
		Expect(err).To(MatchError(store.ErrSweepRefused))
		rows, err := p.lostOf(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rows).To(HaveLen(40))
	}, SpecTimeout(time.Minute))
})

// lostOf are the rows of projects that lost made.
func (p *platform) lostOf(ctx context.Context) ([]store.ProjectedObject, error) {
	rows, err := p.store.ListProjected(ctx)
	var out []store.ProjectedObject
	for _, row := range rows {
		if len(row.Ref.Namespace) > 5 && row.Ref.Namespace[:5] == "lost-" {
			out = append(out, row)
		}
	}
	return out, err
}
