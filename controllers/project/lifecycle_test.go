// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// allow writes the operator's plan to the Namespace.
func (s *scene) allow(ctx context.Context, text string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	s.ExpectExists(ctx, namespace)
	namespace.Annotations = map[string]string{plan.Annotation: text}
	s.ExpectApplied(ctx, namespace)
}

// ready applies the certificate and a project, and reconciles it until it is ready.
func (s *scene) ready(ctx context.Context, changes ...func(*v1alpha1.Project)) *v1alpha1.Project {
	GinkgoHelper()
	p := s.Project(changes...)
	s.ExpectApplied(ctx, s.Secret(certificate, map[string]string{base.DispatchCAKey: "authorities"}), p)
	s.ExpectReconciled(ctx, s.r, p)
	Expect(State(p)).To(Equal("Ready=True/Succeeded observed"))
	return p
}

// blind is a store that accepts writes and finds no environment.
type blind struct{ *Store }

var errBlind = errors.New("the store went away")

func (blind) DefaultEnvironment(context.Context, uuid.UUID) (uuid.UUID, error) {
	return uuid.Nil, errBlind
}

func (blind) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{}, errBlind
}

var _ = Describe("A Project", func() {
	It("goes from created to ready when the certificate exists", func(ctx SpecContext) {
		s := newScene()
		p := s.Project()
		s.ExpectApplied(ctx, p)
		Expect(State(p)).To(Equal(""), "nobody has looked at it")
		Expect(p.Status.ObservedGeneration).To(BeEquivalentTo(-1))

		first := s.ExpectReconciled(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=False/Progressing Reconciling"))
		Expect(Message(p)).To(ContainSubstring("certificate of the platform's dispatch port"))
		Expect(first.RequeueAfter).To(Equal(2*time.Second), "it is most likely on its way")
		Expect(p.Status.ID).To(Equal(s.ProjectID(s.Namespace).String()))
		Expect(v1alpha1.IsReady(p)).To(BeFalse())
		Expect(p.Status.IsTrue(v1alpha1.ConditionNetworkReady)).To(BeFalse(), "pods would trust nobody")

		s.Clock.Step(time.Hour)
		Expect(s.ExpectReconciled(ctx, s.r, p).RequeueAfter).To(Equal(base.MaxRetryInterval), "it has been so for long")

		s.ExpectApplied(ctx, s.Secret(certificate, map[string]string{base.DispatchCAKey: "authorities"}))
		s.ExpectReconciled(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=True/Succeeded observed"))
		Expect(p.Status.IsTrue(v1alpha1.ConditionNetworkReady)).To(BeTrue())
		Expect(s.Children(ctx, s.Controller(ctx, p))).To(ConsistOf(children))
		Expect(s.ExpectAtRest(ctx, s.r, p).RequeueAfter).To(BeZero(), "what it depends on is watched")

		By("keeping its state while the store is unavailable")
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=True/Succeeded Reconciling observed"))
		Expect(p.Status.Condition(v1alpha1.ConditionReconciling).Reason).To(Equal(v1alpha1.ReasonStoreUnavailable))
		s.Store.ComeBack()
		s.ExpectReconciled(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=True/Succeeded observed"))

		By("an unsupported spec")
		p.Spec.ModelProviders = []v1alpha1.ModelProvider{{Prefix: "claude", Type: v1alpha1.ModelProviderAnthropic}}
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(State(p)).To(Equal("Ready=False/NotSupported Stalled observed"))
	})

	It("is removed from the store with its object, and gets the same ID when it is re-created", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		key := s.Key(p)
		holder, err := s.Store.Holder(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(holder.ObjectUID).To(Equal(string(p.UID)))

		By("retrying while the store is unavailable")
		Expect(s.Admin.Delete(ctx, p)).To(Succeed())
		s.Store.GoAway()
		s.ExpectDeletionFails(ctx, s.r, p)
		s.Store.ComeBack()
		_, err = s.r.Reconcile(ctx, s.Request(p))
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Store.Holder(ctx, key)
		Expect(err).To(MatchError(store.ErrNotFound))

		again := s.Project()
		s.ExpectApplied(ctx, again)
		s.ExpectReconciled(ctx, s.r, again)
		Expect(again.Status.ID).To(Equal(p.Status.ID))
	})

	It("shows the URL of its push webhook while it has a repository", func(ctx SpecContext) {
		s := newScene()
		p := s.Project()
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.GitWebhookURL).To(Equal("https://hooks.example.com/git/" + p.Status.ID))
		p.Spec.Git = nil
		Expect(s.Admin.Update(ctx, p)).To(Succeed())
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.GitWebhookURL).To(BeEmpty())
	})

	It("shows the plan in effect, and reports its errors once", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		limit := func() int32 {
			GinkgoHelper()
			s.ExpectReconciled(ctx, s.r, p)
			return ptr.Deref(p.Status.Limits.Environments, 0)
		}
		Expect(limit()).To(Equal(plan.Default().Environments))
		s.allow(ctx, "environments: 3")
		Expect(limit()).To(BeEquivalentTo(3))
		p.Spec.Limits.Environments = ptr.To(int32(2))
		s.ExpectApplied(ctx, p)
		Expect(limit()).To(BeEquivalentTo(2), "the project lowers it")
		p.Spec.Limits.Environments = ptr.To(int32(9))
		s.ExpectApplied(ctx, p)
		Expect(limit()).To(BeEquivalentTo(3), "and never raises it")
		Expect(p.Status.Retention).To(BeNil())
		p.Spec.Retention = &v1alpha1.ProjectRetention{RunsSeconds: 7 * 24 * 3600}
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.Retention.RunsSeconds).To(BeEquivalentTo(7 * 24 * 3600))

		s.Events.Sent()
		s.allow(ctx, "environments: many")
		Expect(limit()).To(BeEquivalentTo(9), "the platform's plan holds, lowered by the project")
		Expect(State(p)).To(Equal("Ready=True/Succeeded observed"), "the members cannot mend it")
		Expect(p.Status.IsTrue(v1alpha1.ConditionPlanInvalid)).To(BeTrue())
		Expect(s.Events.Sent()).To(ConsistOf(HavePrefix("Warning InvalidPlan: ")))
		s.Clock.Step(time.Hour)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(s.Events.Sent()).To(BeEmpty(), "however long it is so")

		s.allow(ctx, "environments: 4")
		Expect(limit()).To(BeEquivalentTo(4))
		Expect(p.Status.Condition(v1alpha1.ConditionPlanInvalid)).To(BeNil())
	})

	It("shows the default environment: the named one, or the first created one", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		Expect(p.Status.DefaultEnvironment).To(BeEmpty())
		s.ExpectEnvironment(ctx, "dev")
		s.ExpectEnvironment(ctx, "prod")
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("dev"))
		p.Spec.DefaultEnvironment = "later"
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("dev"), "a project with environments has a default")
		Expect(v1alpha1.IsReady(p)).To(BeTrue(), "its environments may be applied after it")
		Expect(p.Status.Condition(v1alpha1.ConditionReady).Message).To(Equal(
			`spec.defaultEnvironment: Environment "later" does not exist; until then, Environment "dev" is the default`))
		held := s.Environment("later")
		s.ExpectApplied(ctx, held)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("dev"))
		Expect(p.Status.Condition(v1alpha1.ConditionReady).Message).To(Equal(
			`spec.defaultEnvironment: Environment "later" is not in effect; see its conditions; until then, Environment "dev" is the default`))
		s.ExpectGone(ctx, held)
		later := s.ExpectEnvironment(ctx, "later")
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("later"))
		Expect(p.Status.Condition(v1alpha1.ConditionReady).Message).To(Equal("in effect"))
		s.ExpectGone(ctx, later)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("dev"), "somebody moves up for one that is deleted")
		p.Spec.DefaultEnvironment = "prod"
		s.ExpectApplied(ctx, p)
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("prod"))
		s.ExpectAtRest(ctx, s.r, p)
	})

	It("shows the next default environment after the store removed the previous one", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		first := s.ExpectEnvironment(ctx, "dev")
		s.ExpectEnvironment(ctx, "prod")
		Expect(s.ExpectReconciled(ctx, s.r, p).RequeueAfter).To(BeZero())
		Expect(p.Status.DefaultEnvironment).To(Equal("dev"))
		s.ExpectGone(ctx, first)
		Expect(s.ExpectReconciled(ctx, s.r, p).RequeueAfter).To(Equal(base.MaxRetryInterval), "nothing tells of it when the store does")
		Expect(s.Store.Remove(ctx, s.ProjectID(s.Namespace), s.Ref(first))).To(Succeed())
		Expect(s.ExpectReconciled(ctx, s.r, p).RequeueAfter).To(BeZero())
		Expect(p.Status.DefaultEnvironment).To(Equal("prod"))
	})

	It("keeps the default environment in its status while it cannot be read", func(ctx SpecContext) {
		s := newScene()
		p := s.ready(ctx)
		s.ExpectEnvironment(ctx, "dev")
		s.ExpectEnvironment(ctx, "prod")
		s.ExpectReconciled(ctx, s.r, p)
		s.Base.Store, s.r.Store = blind{s.Store}, blind{s.Store}
		for _, asked := range []v1alpha1.EnvironmentName{"", "prod"} {
			p.Spec.DefaultEnvironment = asked
			s.ExpectApplied(ctx, p)
			s.ExpectReconcileFails(ctx, s.r, p)
			Expect(p.Status.DefaultEnvironment).To(Equal("dev"), "asked for %q", asked)
		}
		s.Base.Store, s.r.Store = s.Store, s.Store
		s.ExpectReconciled(ctx, s.r, p)
		Expect(p.Status.DefaultEnvironment).To(Equal("prod"))
	})

	It("polls plans that it may not watch", func(ctx SpecContext) {
		s := newScene()
		s.Namespaces = []string{s.Namespace}
		p := s.ready(ctx)
		Expect(s.ExpectAtRest(ctx, s.r, p).RequeueAfter).To(Equal(30 * time.Second))
	})
})
