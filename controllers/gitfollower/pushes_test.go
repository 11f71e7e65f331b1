// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

// pushed returns a follower that receives pushes, and whose only environment is at the head of its
// branch.
func pushed(ctx SpecContext) (f *follower, polls <-chan event.GenericEvent) {
	GinkgoHelper()
	f = newFollower(ctx)
	f.repository.Commit("main", "agents/a.yaml", "name: a")
	f.branches.Pushes = gitfollower.NewPushes(f.Store, f.Store, namespaces.Set{})
	f.ExpectApplied(ctx, f.Environment("dev", following))
	f.look(ctx)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.branches.Pushes.Start(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
	})
	return f, f.branches.Pushes.Projects()
}

// push records a push like the gateway.
func (f *follower) push(ctx context.Context) {
	GinkgoHelper()
	Expect(f.Store.RequestPolls(ctx, []uuid.UUID{f.ProjectID(f.Namespace)})).To(Succeed())
}

// asked returns the requests in the store.
func (f *follower) asked(ctx context.Context) []store.PollRequest {
	GinkgoHelper()
	requests, err := f.Store.ListPollRequests(ctx, uuid.Nil, 10)
	Expect(err).NotTo(HaveOccurred())
	return requests
}

var _ = Describe("A push that the gateway received", func() {
	It("triggers a poll before the interval ends", func(ctx SpecContext) {
		f, polls := pushed(ctx)
		second := f.repository.Commit("main", "agents/a.yaml", "name: b")
		f.Clock.Step(11 * time.Second)
		f.push(ctx)
		var e event.GenericEvent
		Eventually(ctx, polls).Should(Receive(&e))
		Expect(e.Object.GetNamespace()).To(Equal(f.Namespace))
		Expect(e.Object.GetName()).To(Equal(f.project.Name))
		f.ExpectReconciled(ctx, f.branches, f.project)
		Expect(f.Changed).To(Receive())
		Expect(f.asked(ctx)).To(BeEmpty(), "it is looked at")
		environment := f.Environment("dev", following)
		f.ExpectExists(ctx, environment)
		f.ExpectReconciled(ctx, f.R, environment)
		Expect(f.commits(ctx)).To(ConsistOf(second))
	})

	It("respects the minimum interval of polls", func(ctx SpecContext) {
		f, polls := pushed(ctx)
		f.Clock.Step(9 * time.Second)
		before := f.requests.Load()
		f.push(ctx)
		Eventually(ctx, polls).Should(Receive())
		Expect(f.ExpectReconciled(ctx, f.branches, f.project).RequeueAfter).To(Equal(time.Second))
		Expect(f.requests.Load()).To(Equal(before))
		Expect(f.asked(ctx)).To(HaveLen(1), "it is not looked at yet")
		f.Clock.Step(time.Second)
		f.ExpectReconciled(ctx, f.branches, f.project)
		Expect(f.requests.Load()).To(BeNumerically(">", before))
		Expect(f.asked(ctx)).To(BeEmpty())
	})

	It("is forgotten if no environment follows a branch", func(ctx SpecContext) {
		f, polls := pushed(ctx)
		f.ExpectGone(ctx, f.Environment("dev"))
		f.push(ctx)
		Eventually(ctx, polls).Should(Receive())
		before := f.requests.Load()
		f.ExpectReconciled(ctx, f.branches, f.project)
		Expect(f.requests.Load()).To(Equal(before))
		Expect(f.asked(ctx)).To(BeEmpty())
	})

	It("is kept while the store is unavailable", func(ctx SpecContext) {
		f, polls := pushed(ctx)
		f.Clock.Step(time.Minute)
		f.push(ctx)
		Eventually(ctx, polls).Should(Receive())
		f.Store.GoAway()
		_, err := f.branches.Reconcile(ctx, f.Request(f.project))
		Expect(err).To(HaveOccurred())
		f.Store.ComeBack()
		Expect(f.asked(ctx)).To(HaveLen(1))
		f.ExpectReconciled(ctx, f.branches, f.project)
		Expect(f.asked(ctx)).To(BeEmpty())
	})

	It("is left to the manager of its namespace", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.push(ctx)
		requests := &seen{PollRequestReader: f.Store, read: make(chan struct{}, 1)}
		pushes := gitfollower.NewPushes(requests, f.Store, namespaces.Set{"elsewhere"})
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- pushes.Start(running) }()
		Eventually(ctx, requests.read).Should(Receive())
		stop()
		Expect(<-ended).To(Succeed(), "nobody took what it handed over, if anything")
		Expect(pushes.Projects()).NotTo(Receive())
		Expect(f.asked(ctx)).To(HaveLen(1))
	})
})

// seen is a store that reports reads.
type seen struct {
	store.PollRequestReader
	read chan struct{}
}

func (s *seen) ListPollRequests(ctx context.Context, after uuid.UUID, limit int) ([]store.PollRequest, error) {
	requests, err := s.PollRequestReader.ListPollRequests(ctx, after, limit)
	select {
	case s.read <- struct{}{}:
	default: // it was reported already
	}
	return requests, err
}

func TestGitFollower_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "gitfollower")
}
