// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/deployment"
	"github.com/agentplatform/agentplatform/store"
)

func notFound(resource string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "a")
}

// runner adds a runner of "dev" with these bundles.
func (s *scene) runner(ctx context.Context, digests ...string) {
	GinkgoHelper()
	_, err := s.Store.Claim(ctx, store.Claim{Environment: s.Key(s.environment), RunnerID: fmt.Sprint(digests), Digests: digests, Lease: time.Minute})
	Expect(err).NotTo(HaveOccurred())
}

// activate requests an activation at a time relative to now, and returns the response.
func (s *scene) activate(ctx context.Context, d *v1alpha1.Deployment, at time.Duration) v1alpha1.ActivationResult {
	GinkgoHelper()
	s.ExpectExists(ctx, d)
	d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(s.Clock.Now().Add(at).Truncate(time.Second))}
	s.reconciled(ctx, d)
	Expect(d.Status.Activation).NotTo(BeNil())
	Expect(d.Status.Activation.RequestedAt.Equal(&d.Spec.Activation.RequestedAt)).To(BeTrue())
	return d.Status.Activation.Result
}

var _ = Describe("The activation of a Deployment", func() {
	It("waits a bounded time for a runner with the bundle", func(ctx SpecContext) {
		s := newScene(ctx)
		s.runner(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		digest := s.ExpectBuilt(ctx, s.Key(d), "hello")
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(Equal(look))
		Expect(State(d)).To(Equal("Ready=Unknown/Connecting Reconciling"))
		row, err := s.Store.Environment(ctx, s.Key(s.environment))
		Expect(err).NotTo(HaveOccurred())
		Expect(row.WantedBundleDigest).To(Equal(digest), "runners are asked to fetch it")
		since := d.Status.Condition(v1alpha1.ConditionConnectorsApplied).LastTransitionTime
		s.Clock.SetTime(since.Add(29 * time.Second))
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(BeEmpty())
		s.Clock.SetTime(since.Add(30 * time.Second))
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(Equal("v1"))
	})

	It("happens as soon as a runner has the bundle", func(ctx SpecContext) {
		s := newScene(ctx)
		s.runner(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		digest := s.ExpectBuilt(ctx, s.Key(d), "hello")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(BeEmpty())
		s.runner(ctx, digest)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(Equal("v1"))
	})

	It("activates an earlier one once on request", func(ctx SpecContext) {
		s := newScene(ctx)
		first, second := s.deployed(ctx, s.Deployment("v1")), s.deployed(ctx, s.Deployment("v2"))
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(first.Status.Live).To(BeTrue())
		s.ExpectAtRest(ctx, s.r, first)
		Expect(s.activate(ctx, second, time.Second)).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.live(ctx)).To(Equal("v2"))

		By("not repeating a handled request after its response was lost")
		s.ExpectExists(ctx, first)
		first.Status.Activation = nil
		s.ExpectStatus(ctx, first)
		s.ExpectReconciled(ctx, s.r, first)
		Expect(s.live(ctx)).To(Equal("v2"))
		Expect(first.Status.Activation).NotTo(BeNil())
	})

	It("is carried out for a re-created object, whatever the clock of the requester", func(ctx SpecContext) {
		s := newScene(ctx)
		first, second := s.deployed(ctx, s.Deployment("v1")), s.deployed(ctx, s.Deployment("v2"))
		Expect(s.live(ctx)).To(Equal("v2"))
		again := func(change func(*v1alpha1.Deployment)) *v1alpha1.Deployment {
			GinkgoHelper()
			s.ExpectGone(ctx, first)
			Expect(s.Store.Remove(ctx, s.Key(first).ProjectID, s.Ref(first))).To(Succeed())
			first = s.Deployment("v1", change)
			s.ExpectApplied(ctx, first)
			return first
		}
		asked := func(ahead time.Duration) *v1alpha1.DeploymentActivation {
			GinkgoHelper()
			row, err := s.Store.Environment(ctx, s.Key(s.environment))
			Expect(err).NotTo(HaveOccurred())
			return &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(row.LiveActivatedAt.Add(ahead).Truncate(time.Second))}
		}
		for i, ahead := range []time.Duration{-10 * time.Minute, 4 * time.Minute} { // a time further ahead is rejected
			d := again(func(*v1alpha1.Deployment) {})
			d.Spec.Activation = asked(ahead)
			s.ExpectApplied(ctx, d)
			s.ExpectReconciled(ctx, s.r, d)
			Expect(d.Status.Activation.Result).To(Equal(v1alpha1.ActivationActivated))
			Expect(s.live(ctx)).To(Equal("v1"), "asked %s ahead of the store", ahead)
			Expect(s.activate(ctx, second, time.Duration(i)*time.Second)).To(Equal(v1alpha1.ActivationActivated))
			Expect(s.live(ctx)).To(Equal("v2"))
		}

		By("ignoring an old request of a restored object")
		before := asked(-time.Minute)
		d := again(func(d *v1alpha1.Deployment) { d.Spec.Activation = before })
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Activation.Message).To(ContainSubstring("before this object was restored"))
		Expect(s.live(ctx)).To(Equal("v2"))
	})

	It("is superseded by a later request", func(ctx SpecContext) {
		s := newScene(ctx)
		first, second := s.deployed(ctx, s.Deployment("v1")), s.deployed(ctx, s.Deployment("v2"))
		second.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(s.Clock.Now().Truncate(time.Second))}
		s.ExpectApplied(ctx, second) // and waits
		Expect(s.activate(ctx, first, -time.Minute)).To(Equal(v1alpha1.ActivationSuperseded))
		Expect(first.Status.Activation.Message).To(ContainSubstring(`"v2"`))
		Expect(s.live(ctx)).To(Equal("v2"))
	})

	It("is rejected if its time is in the future, and does not block later requests", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.deployed(ctx, s.Deployment("v1"))
		second := s.deployed(ctx, s.Deployment("v2"))
		Expect(s.activate(ctx, first, 6*time.Minute)).To(Equal(v1alpha1.ActivationFailed))
		Expect(first.Status.Activation.Message).To(ContainSubstring("remove spec.activation"))
		Expect(s.live(ctx)).To(Equal("v2"))
		first.Spec.Activation = nil
		s.ExpectApplied(ctx, first)
		first.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))}
		s.reconciled(ctx, first)
		Expect(first.Status.Activation.Result).To(Equal(v1alpha1.ActivationFailed))
		Expect(s.live(ctx)).To(Equal("v2"))
		first.Spec.Activation = nil
		s.ExpectApplied(ctx, first)
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationActivated))
		Expect(s.activate(ctx, second, time.Second)).To(Equal(v1alpha1.ActivationActivated))
	})

	It("is rejected for a deployment that was not deployed", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1", func(d *v1alpha1.Deployment) { d.Spec.Cancel = true }))
		Expect(State(d)).To(Equal("Ready=True/Cancelled observed"))
		Expect(s.activate(ctx, d, 0)).To(Equal(v1alpha1.ActivationNotDeployed))
		Expect(s.live(ctx)).To(BeEmpty())
	})

	It("is restored with its environment", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.deployed(ctx, s.Deployment("v1"))
		s.ExpectGone(ctx, s.environment)
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Live).To(BeFalse())
		s.environment = s.ExpectEnvironment(ctx, "dev")
		Expect(s.live(ctx)).To(BeEmpty())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(Equal("v1"))
		Expect(State(d)).To(Equal("Ready=True/Succeeded observed"))
	})
})

// withoutBundles is a store without the bundles of activated deployments.
type withoutBundles struct{ deployment.Store }

func (withoutBundles) Activate(context.Context, store.Activation) (store.ActivationResult, error) {
	return store.ActivationResult{}, fmt.Errorf("activating: %w", store.ErrBundleGone)
}

var _ = Describe("A Deployment whose bundle was deleted", func() {
	It("is not activated, and the request gets a response", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.deployed(ctx, s.Deployment("v1"))
		s.deployed(ctx, s.Deployment("v2"))
		s.r.Store = withoutBundles{s.r.Store}
		Expect(s.activate(ctx, first, 0)).To(Equal(v1alpha1.ActivationBundleGone))
		Expect(first.Status.Activation.Message).To(ContainSubstring("deploy the same commit again"))
		Expect(s.live(ctx)).To(Equal("v2"))
		Expect(State(first)).To(Equal("Ready=True/Succeeded observed"))
		s.ExpectAtRest(ctx, s.r, first)
	})

	It("reports it when its environment comes back", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.deployed(ctx, s.Deployment("v1"))
		s.ExpectGone(ctx, s.environment)
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		s.environment = s.ExpectEnvironment(ctx, "dev")
		s.r.Store = withoutBundles{s.r.Store}
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.live(ctx)).To(BeEmpty())
		Expect(d.Status.Message).To(ContainSubstring("the bundle was deleted"))
		Expect(State(d)).To(Equal("Ready=True/Succeeded observed"))
		s.ExpectAtRest(ctx, s.r, d)
	})
})

var _ = Describe("A Deployment that was live before another one", func() {
	It("is not restored with its environment, even if the later one cannot be", func(ctx SpecContext) {
		s := newScene(ctx)
		first, second := s.deployed(ctx, s.Deployment("v1")), s.deployed(ctx, s.Deployment("v2"))
		s.ExpectGone(ctx, s.environment)
		Expect(s.Store.Remove(ctx, s.Key(s.environment).ProjectID, s.Ref(s.environment))).To(Succeed())
		s.environment = s.ExpectEnvironment(ctx, "dev")
		all := s.r.Store
		s.r.Store = withoutBundles{all}
		s.ExpectReconciled(ctx, s.r, second)
		Expect(second.Status.Message).To(ContainSubstring("the bundle was deleted"))
		s.r.Store = all
		s.ExpectReconciled(ctx, s.r, first)
		Expect(s.live(ctx)).To(BeEmpty(), "nobody asked for it")
		s.ExpectReconciled(ctx, s.r, second)
		Expect(s.live(ctx)).To(Equal("v2"))
	})
})

var _ = Describe("Deployments of the platform", func() {
	It("are deleted beyond the newest, except for live ones", func(ctx SpecContext) {
		s := newScene(ctx)
		live := s.deployed(ctx, s.Deployment("a-live", func(d *v1alpha1.Deployment) { d.Labels = base.Labels("deployment", "dev") }))
		ours := func(name string, labels map[string]string) *v1alpha1.Deployment {
			GinkgoHelper()
			d := s.Deployment(name, func(d *v1alpha1.Deployment) { d.Labels = labels })
			s.ExpectApplied(ctx, d)
			d.MarkCancelled("in a test")
			s.ExpectStatus(ctx, d)
			return d
		}
		users := ours("b-user", nil)
		elsewhere := s.Deployment("b-elsewhere", func(d *v1alpha1.Deployment) {
			d.Labels, d.Spec.Environment = base.Labels("deployment", "prod"), "prod"
		})
		s.ExpectApplied(ctx, elsewhere)
		oldest := ours("c-oldest", base.Labels("deployment", "dev"))
		for i := range 20 {
			ours(fmt.Sprintf("d-%02d", i), base.Labels("deployment", "dev"))
		}
		s.ExpectReconciled(ctx, s.r, live)
		s.ExpectNotFound(ctx, oldest)
		s.ExpectExists(ctx, users)
		s.ExpectExists(ctx, elsewhere)
		s.ExpectExists(ctx, live)
		s.ExpectAtRest(ctx, s.r, live)
	})
})

var _ = Describe("A Deployment that is activated twice within a second", func() {
	It("shows another rank, which triggers a reconcile of its connectors", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.deployed(ctx, s.Deployment("v1"))
		at, rank := *d.Status.ActivatedAt, d.Status.ActivationRank
		row, err := s.Store.Environment(ctx, s.Key(s.environment))
		Expect(err).NotTo(HaveOccurred())
		Expect(rank).To(Equal(row.LiveRank))
		_, err = s.Store.Activate(ctx, store.Activation{Deployment: s.Key(d), RequestedAt: &at.Time})
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Store.Database.ExecContext(ctx, `UPDATE environments SET live_activated_at = ?`, at.UnixMicro())
		Expect(err).NotTo(HaveOccurred())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(*d.Status.ActivatedAt).To(Equal(at))
		Expect(d.Status.ActivationRank).To(BeNumerically(">", rank))
	})
})
