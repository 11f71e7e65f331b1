// SPDX-License-Identifier: Apache-2.0

package runnerpool_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/runnerpool"
	"github.com/agentplatform/agentplatform/store"
)

// queue is the demand of an environment's runs. nil means that the store is unavailable.
type queue struct {
	key    store.Key
	demand *store.Demand
	asked  chan struct{}
}

// Demand implements the store method of the Scaler.
func (q *queue) Demand(_ context.Context, environment store.Key, _ int) (store.Demand, error) {
	select {
	case q.asked <- struct{}{}:
	default:
	}
	switch {
	case q.demand == nil:
		return store.Demand{}, errors.New("the store is away")
	case environment != q.key:
		return store.Demand{}, nil
	}
	return *q.demand, nil
}

// scaled is a scene with the environment "dev", whose pool scales.
type scaled struct {
	*scene
	e      *v1alpha1.Environment
	queue  *queue
	scaler *runnerpool.Scaler
}

func newScaled(ctx context.Context, least, most int32) *scaled {
	GinkgoHelper()
	s := &scaled{scene: newScene(ctx), queue: &queue{demand: &store.Demand{}, asked: make(chan struct{}, 1)}}
	s.scaler = &runnerpool.Scaler{
		Store: s.queue, Hints: s.Store, Pools: s.Runners.Pools, Clock: s.Clock, Changed: s.Changed, Logger: slog.New(slog.DiscardHandler),
	}
	s.e = s.Environment("dev", func(e *v1alpha1.Environment) {
		e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(least), ptr.To(most)
	})
	s.ExpectReady(ctx, s.e)
	s.queue.key = s.Key(s.e)
	return s
}

// restart forgets all state, like a restarted manager.
func (s *scaled) restart() {
	s.Runners.Pools = runnerpool.NewPools(0)
	s.scaler.Pools = s.Runners.Pools
}

// look checks the demand with these numbers of runs, and reconciles the environment if necessary. It
// returns the desired number of runners.
func (s *scaled) look(ctx context.Context, waiting, running int) int32 {
	GinkgoHelper()
	s.queue.demand = &store.Demand{Waiting: store.Runs{All: waiting}, Running: store.Runs{All: running}}
	Expect(s.scaler.CheckHinted(ctx)).To(Succeed())
	if slices.Contains(s.Queued(), s.e.Name) {
		s.ExpectReconciled(ctx, s.R, s.e)
	}
	return s.replicas(ctx)
}

// during calls look for some time, and returns the last result.
func (s *scaled) during(ctx context.Context, d time.Duration, waiting, running int) (replicas int32) {
	GinkgoHelper()
	for ; d > 0; d -= runnerpool.PollingInterval {
		s.Clock.Step(min(d, runnerpool.PollingInterval))
		replicas = s.look(ctx, waiting, running)
	}
	return replicas
}

func (s *scaled) replicas(ctx context.Context) int32 {
	GinkgoHelper()
	return *s.Pool(ctx, s.e).Spec.Replicas
}

// settled starts all desired runners.
func (s *scaled) settled(ctx context.Context) {
	GinkgoHelper()
	s.StartRunners(ctx, s.e, s.replicas(ctx))
	s.ExpectReconciled(ctx, s.R, s.e)
}

func (s *scaled) runnersReady() string {
	c := s.e.Status.Condition(v1alpha1.ConditionRunnersReady)
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

var _ = Describe("A pool that scales", func() {
	It("has runners for its runs, none without runs, and is always ready", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.replicas(ctx)).To(BeZero())
		Expect(s.runnersReady()).To(Equal("True Succeeded: runners ready: 0"))
		Expect(s.look(ctx, 0, 0)).To(BeZero())
		s.ExpectAtRest(ctx, s.R, s.e)

		By("a queued run")
		Expect(s.look(ctx, 1, 0)).To(BeEquivalentTo(1))
		Expect(s.Events.Sent()).To(ContainElement(HavePrefix("Normal ScaledUp: scaled from 0 to 1 runners: 1 or more runs wait")))
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		s.StartRunners(ctx, s.e, 0)
		Expect(s.ExpectReconciled(ctx, s.R, s.e).RequeueAfter).To(BeNumerically(">", 0))
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.runnersReady()).To(Equal("False RunnersStarting: 0 of 1 runners ready"))
		s.settled(ctx)
		Expect(s.runnersReady()).To(Equal("True Succeeded: runners ready: 1"))
		Expect(s.e.Status.Runner.Replicas).To(BeEquivalentTo(1))

		By("more runs than the maximum of runners can execute")
		Expect(s.look(ctx, 90, 10)).To(BeEquivalentTo(3))
		s.settled(ctx)
		s.ExpectAtRest(ctx, s.R, s.e)

		By("fewer runs, and later none")
		Expect(s.during(ctx, runnerpool.DefaultStabilizationWindow-time.Second, 0, 12)).To(BeEquivalentTo(3))
		Expect(s.during(ctx, time.Second, 0, 12)).To(BeEquivalentTo(2))
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		s.settled(ctx)
		Expect(s.during(ctx, runnerpool.DefaultStabilizationWindow, 0, 0)).To(BeZero())
		Expect(s.Events.Sent()).To(ContainElement("Normal ScaledDown: scaled from 2 to 0 runners: no run for 5m0s"))
		s.settled(ctx)
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.runnersReady()).To(Equal("True Succeeded: runners ready: 0"))
		Expect(s.e.Status.Runner.Replicas).To(BeZero())
		s.ExpectAtRest(ctx, s.R, s.e)
	})

	It("becomes ready with its minimum of runners", func(ctx SpecContext) {
		s := newScaled(ctx, 2, 4)
		Expect(s.replicas(ctx)).To(BeEquivalentTo(2))
		Expect(s.look(ctx, 40, 0)).To(BeEquivalentTo(4))
		s.StartRunners(ctx, s.e, 2)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.runnersReady()).To(Equal("False RunnersStarting: 2 of 4 runners ready"))
		s.StartRunners(ctx, s.e, 1)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(State(s.e)).To(Equal("Ready=False/RunnersStarting Reconciling observed"))
	})

	It("reports why runners are missing, and is ready with the others", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 4)
		s.look(ctx, 40, 0)
		s.CreatePod(ctx, s.e, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "runner", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
		}}})
		s.StartRunners(ctx, s.e, 0)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(State(s.e)).To(Equal("Ready=False/RunnersFailing Reconciling observed"))
		s.StartRunners(ctx, s.e, 1)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.runnersReady()).To(ContainSubstring("False RunnersFailing"))
		Expect(Message(s.e)).To(ContainSubstring("1 of 4 runners"))
	})

	It("keeps its runners after a restart of the manager until the demand is known", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.look(ctx, 0, 30)).To(BeEquivalentTo(3))
		s.settled(ctx)
		s.restart()
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.replicas(ctx)).To(BeEquivalentTo(3), "it has looked at nothing yet")
		s.queue.demand = nil
		Expect(s.scaler.CheckHinted(ctx)).To(MatchError(ContainSubstring("away")))
		s.Clock.Step(time.Hour)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.replicas(ctx)).To(BeEquivalentTo(3), "nor can it")
		Expect(s.look(ctx, 0, 1)).To(BeEquivalentTo(3))
		Expect(s.during(ctx, runnerpool.DefaultStabilizationWindow, 0, 1)).To(BeEquivalentTo(1))
	})

	It("stays unchanged while the environment is suspended", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.look(ctx, 15, 0)).To(BeEquivalentTo(2))
		s.settled(ctx)
		s.e.Spec.Suspend = true
		s.ExpectApplied(ctx, s.e)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(State(s.e)).To(Equal("Ready=True/Suspended observed"))
		Expect(s.runnersReady()).To(Equal("True Succeeded: runners ready: 2"))
		Expect(s.look(ctx, 30, 0)).To(BeEquivalentTo(2))
		Expect(s.during(ctx, runnerpool.DefaultStabilizationWindow, 0, 0)).To(BeEquivalentTo(2))
		s.ExpectAtRest(ctx, s.R, s.e)

		By("resuming")
		s.e.Spec.Suspend = false
		s.ExpectApplied(ctx, s.e)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.look(ctx, 30, 0)).To(BeEquivalentTo(3))
	})

	It("keeps the replicas that another client has set", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		Expect(s.Admin.SubResource("scale").Update(ctx, s.Pool(ctx, s.e), client.WithSubResourceBody(scale))).To(Succeed())
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.look(ctx, 1, 0)).To(BeEquivalentTo(5))
		Expect(s.Runners.Pools.Len()).To(BeZero())
		s.settled(ctx)
		s.ExpectAtRest(ctx, s.R, s.e)
	})

	It("scales while it waits for the new release, and gets it at once at zero", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.look(ctx, 1, 0)).To(BeEquivalentTo(1))
		s.settled(ctx)
		for i := range runnerpool.MaxRollouts {
			s.ExpectReady(ctx, s.Environment(string(rune('a'+i))+"-other"))
		}
		s.Runners.Pods.Image = "platform:2"
		for i := range runnerpool.MaxRollouts {
			e := s.Environment(string(rune('a'+i)) + "-other")
			s.ExpectExists(ctx, e)
			s.ExpectReconciled(ctx, s.R, e)
		}
		image := func() string { return s.Pool(ctx, s.e).Spec.Template.Spec.Containers[0].Image }
		Expect(s.look(ctx, 20, 10)).To(BeEquivalentTo(3))
		Expect(image()).To(Equal("platform:1"))
		s.settled(ctx)
		Expect(State(s.e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(Message(s.e)).To(ContainSubstring("after the runners of other environments"))
		Expect(s.during(ctx, runnerpool.MaxRolloutTime-runnerpool.PollingInterval, 0, 0)).To(BeEquivalentTo(3))
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(image()).To(Equal("platform:1"))

		By("its rollout starts")
		s.Clock.Step(runnerpool.PollingInterval)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(image()).To(Equal("platform:2"))

		By("another release, at zero")
		s.settled(ctx)
		Expect(s.during(ctx, runnerpool.DefaultStabilizationWindow, 0, 0)).To(BeZero())
		s.settled(ctx)
		s.Runners.Pods.Image = "platform:3"
		for i := range runnerpool.MaxRollouts {
			e := s.Environment(string(rune('a'+i)) + "-other")
			s.ExpectExists(ctx, e)
			s.ExpectReconciled(ctx, s.R, e)
		}
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(image()).To(Equal("platform:3"))
	})

	It("is forgotten with its environment, and when it no longer scales", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.look(ctx, 25, 0)).To(BeEquivalentTo(3))
		s.e.Spec.Runner.MaxReplicas, s.e.Spec.Runner.MinReplicas = nil, ptr.To(int32(1))
		s.ExpectApplied(ctx, s.e)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.replicas(ctx)).To(BeEquivalentTo(1))
		Expect(s.Runners.Pools.Len()).To(BeZero())
		s.e.Spec.Runner.MaxReplicas = ptr.To(int32(2))
		s.ExpectApplied(ctx, s.e)
		s.ExpectReconciled(ctx, s.R, s.e)
		Expect(s.Runners.Pools.Len()).To(Equal(1))
		s.ExpectDeleted(ctx, s.R, s.e)
		Expect(s.Runners.Pools.Len()).To(BeZero())
	})

	It("is checked at once after a notification", func(ctx SpecContext) {
		s := newScaled(ctx, 0, 3)
		Expect(s.look(ctx, 0, 0)).To(BeZero())
		s.queue.demand = &store.Demand{Waiting: store.Runs{All: 1}}
		<-s.queue.asked
		s.scaler.Clock = clock.RealClock{}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.scaler.Start(running) }()
		Eventually(func(g Gomega) {
			// Tokens cause notifications too, like runs.
			g.Expect(s.Store.PutToken(ctx, store.Token{
				SHA256: []byte("another"), Kind: store.TokenRunner, ProjectID: s.queue.key.ProjectID, EnvironmentID: s.queue.key.ID,
			})).To(Succeed())
			g.Expect(s.queue.asked).To(Receive())
		}).WithTimeout(10 * time.Second).Should(Succeed())
		Eventually(s.Changed).WithTimeout(10 * time.Second).Should(Receive())
		stop()
		Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	})
})
