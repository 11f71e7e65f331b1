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
func lost(count int, uid *string) func(context.Context, store.Store, string) {
	return func(ctx context.Context, db store.Store, clusterUID string) {
		*uid = clusterUID
		for i := range count {
			Expect(db.PutProject(ctx, store.Project{ID: uuid.New(), DisplayName: "lost", Ref: store.ObjectRef{
				ClusterUID: clusterUID, Namespace: fmt.Sprintf("lost-%d", i), Kind: store.KindProject, Name: v1alpha1.ProjectName,
				ObjectUID: uuid.NewString(), Generation: 1,
			}})).To(Succeed())
		}
	}
}

var _ = Describe("The sweep at the start", func() {
	It("removes what was deleted while no manager looked", func(ctx SpecContext) {
		var uid string
		p := startOn(lost(3, &uid))
		Eventually(func() ([]store.ProjectedObject, error) {
			return p.lostOf(ctx, uid)
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("leaves all where most would go", func(ctx SpecContext) {
		var uid string
		p := startOn(lost(40, &uid))
		t := p.team(ctx)
		project := &v1alpha1.Project{ObjectMeta: t.at("project")}
		p.eventually(ctx, project, project.IsReady)
		_, err := controllers.Sweep(ctx, p.client, p.store, uid)
		Expect(err).To(MatchError(store.ErrSweepRefused))
		rows, err := p.lostOf(ctx, uid)
		Expect(err).NotTo(HaveOccurred())
		Expect(rows).To(HaveLen(40))
	}, SpecTimeout(time.Minute))
})

// lostOf are the rows of projects that lost made.
func (p *platform) lostOf(ctx context.Context, clusterUID string) ([]store.ProjectedObject, error) {
	rows, err := p.store.ListProjected(ctx, clusterUID)
	var out []store.ProjectedObject
	for _, row := range rows {
		if len(row.Ref.Namespace) > 5 && row.Ref.Namespace[:5] == "lost-" {
			out = append(out, row)
		}
	}
	return out, err
}
