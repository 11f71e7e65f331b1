// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// sweepScene is a store of the test's cluster, and a namespace, without a manager.
type sweepScene struct {
	client     client.Client
	db         store.Store
	path       string
	platformID uuid.UUID
	namespace  string
}

func newSweepScene(ctx context.Context) sweepScene {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	s := sweepScene{
		client: plane.Client, path: filepath.Join(GinkgoT().TempDir(), "test.db"), platformID: uuid.New(), namespace: plane.Namespace(GinkgoTB()),
	}
	var err error
	s.db, err = sqlite.Open(ctx, sqlite.Options{Path: s.path})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(s.db.Close()).To(Succeed()) })
	Expect(s.db.Migrate(ctx)).To(Succeed())
	Expect(s.db.HoldCluster(ctx, "here", s.platformID)).To(Succeed())
	return s
}

// claim puts count objects of a kind into the store.
func (s sweepScene) claim(ctx context.Context, namespace, kind string, count int) {
	GinkgoHelper()
	for i := range count {
		ref := store.ObjectRef{Namespace: namespace, Kind: kind, Name: fmt.Sprintf("o%d", i), ObjectUID: uuid.NewString(), Generation: 1}
		key := store.Key{ProjectID: v1alpha1.ProjectID(s.platformID, namespace), ID: uuid.New()}
		Expect(s.db.ClaimID(ctx, key, ref)).To(Succeed())
	}
}

// create creates count Connectors with the names of claim.
func (s sweepScene) create(ctx context.Context, count int) {
	GinkgoHelper()
	for i := range count {
		Expect(s.client.Create(ctx, &v1alpha1.Connector{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("o%d", i)},
			Spec:       v1alpha1.ConnectorSpec{Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{}},
		})).To(Succeed())
	}
}

// left counts the rows by kind.
func (s sweepScene) left(ctx context.Context) map[string]int {
	GinkgoHelper()
	rows, err := s.db.ListProjected(ctx)
	Expect(err).NotTo(HaveOccurred())
	left := map[string]int{}
	for _, row := range rows {
		left[row.Ref.Kind]++
	}
	return left
}

// leftByTheSweep returns the metric of a kind.
func leftByTheSweep(kind string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "agentplatform_sweep_refused_objects" && metric.GetLabel()[0].GetValue() == kind {
				return metric.GetGauge().GetValue()
			}
		}
	}
	Fail("no such metric of " + kind)
	return 0
}

var _ = Describe("The sweep", func() {
	It("removes objects that were deleted while no manager ran, and all objects of a deleted namespace", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		s.create(ctx, 3)
		s.claim(ctx, s.namespace, store.KindConnector, 5)
		s.claim(ctx, "gone", store.KindConnector, 40)
		removed, err := controllers.Sweep(ctx, s.client, s.db, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(removed).To(Equal(42))
		Expect(s.left(ctx)).To(Equal(map[string]int{store.KindConnector: 3}))
	})

	It("refuses to remove most objects of a kind, until the limit is raised", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		s.create(ctx, 2)
		s.claim(ctx, s.namespace, store.KindConnector, 40)
		s.claim(ctx, s.namespace, store.KindEnvironment, 4)
		s.claim(ctx, "gone", store.KindConnector, 100)
		removed, err := controllers.Sweep(ctx, s.client, s.db, 0)
		Expect(err).To(MatchError(store.ErrSweepRefused))
		Expect(err).To(MatchError(And(ContainSubstring("38 of 40 objects of kind Connector"), ContainSubstring("--sweep-limit"))))
		Expect(removed).To(Equal(104), "all other rows without an object")
		Expect(s.left(ctx)).To(Equal(map[string]int{store.KindConnector: 40}))

		Expect(leftByTheSweep(store.KindConnector)).To(BeEquivalentTo(38))

		_, err = controllers.Sweep(ctx, s.client, s.db, 38)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.left(ctx)).To(Equal(map[string]int{store.KindConnector: 2}))
		Expect(leftByTheSweep(store.KindConnector)).To(BeZero())
	})

	It("stops reporting refused objects after they are gone", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		s.claim(ctx, s.namespace, store.KindEnvironment, 11)
		_, err := controllers.Sweep(ctx, s.client, s.db, 0)
		Expect(err).To(MatchError(store.ErrSweepRefused))
		Expect(leftByTheSweep(store.KindEnvironment)).To(BeEquivalentTo(11))
		rows, err := s.db.ListProjected(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, row := range rows {
			Expect(s.db.Remove(ctx, row.Key.ProjectID, row.Ref)).To(Succeed())
		}
		Expect(controllers.Sweep(ctx, s.client, s.db, 0)).To(BeZero())
		Expect(leftByTheSweep(store.KindEnvironment)).To(BeZero())
	})

	It("skips a namespace without permissions", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		plane := kube.Start(GinkgoTB())
		other := plane.Namespace(GinkgoTB())
		plane.Grant(GinkgoTB(), "narrow", "agentplatform-manager", s.namespace)
		narrow, err := client.New(plane.User(GinkgoTB(), "narrow"), client.Options{Scheme: plane.Scheme})
		Expect(err).NotTo(HaveOccurred())
		s.claim(ctx, s.namespace, store.KindConnector, 2)
		s.claim(ctx, other, store.KindConnector, 3)
		Expect(controllers.Sweep(ctx, narrow, s.db, 0, other, s.namespace)).To(Equal(2))
		Expect(s.left(ctx)).To(Equal(map[string]int{store.KindConnector: 3}))
		Expect(controllers.Sweep(ctx, narrow, s.db, 0, other)).To(BeZero())
	})

	It("finds an adopted object without a UID by its name", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		s.create(ctx, 3)
		s.claim(ctx, s.namespace, store.KindConnector, 4)
		raw, err := sql.Open("sqlite", "file:"+s.path+"?_pragma=busy_timeout(10000)")
		Expect(err).NotTo(HaveOccurred())
		_, err = raw.ExecContext(ctx, "UPDATE cluster_lease SET renewed_at = 0")
		Expect(err).NotTo(HaveOccurred())
		Expect(raw.Close()).To(Succeed())
		Expect(s.db.AdoptCluster(ctx, "there")).To(Equal(4))
		Expect(controllers.Sweep(ctx, s.client, s.db, 0)).To(BeZero(), "not all objects are expected to be there")
		Expect(s.db.FinishAdoption(ctx, "there")).To(Succeed())

		Expect(controllers.Sweep(ctx, s.client, s.db, 0)).To(Equal(1))
		Expect(s.left(ctx)).To(Equal(map[string]int{store.KindConnector: 3}))
	})

	It("runs every hour, sooner after a failure, and warns of refused objects", func(ctx SpecContext) {
		s := newSweepScene(ctx)
		system := s.namespace
		var pauses []time.Duration
		steps := []func(){
			func() { s.claim(ctx, "gone", store.KindConnector, 3) },
			func() {
				Expect(s.left(ctx)).To(BeEmpty())
				s.claim(ctx, s.namespace, store.KindConnector, 11)
			},
			func() { Expect(s.db.Close()).To(Succeed()) },
		}
		Expect(controllers.SweepUntil(ctx, s.client, s.db, system, func(_ context.Context, pause time.Duration) error {
			if pauses = append(pauses, pause); len(pauses) > len(steps) {
				return errors.New("the manager stops")
			}
			steps[len(pauses)-1]()
			return nil
		})).To(Succeed())
		Expect(pauses).To(Equal([]time.Duration{time.Hour, time.Hour, time.Hour, time.Minute}))
		events := &corev1.EventList{}
		Expect(s.client.List(ctx, events, client.InNamespace(system))).To(Succeed())
		Expect(events.Items).To(HaveLen(1))
		Expect(events.Items[0].Reason).To(Equal("SweepRefused"))
		Expect(events.Items[0].Message).To(ContainSubstring("11 of 11 objects of kind Connector"))
	})
})
