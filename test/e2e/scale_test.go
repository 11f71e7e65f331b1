// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A pool that scales", func() {
	It("answers a sync webhook from zero, has two pods for a burst, and none a while later", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, environment, ready(environment))
		ask := func(change func(*v1alpha1.RunnerPool)) {
			GinkgoHelper()
			before := environment.DeepCopy()
			change(&environment.Spec.Runner)
			Expect(cluster.Patch(ctx, environment, client.MergeFrom(before))).To(Succeed())
		}
		toZero := func() {
			GinkgoHelper()
			pool := &appsv1.Deployment{ObjectMeta: t.at("dev-runner")}
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
				g.Expect(*pool.Spec.Replicas).To(BeZero())
				g.Expect(cluster.Get(ctx, client.ObjectKeyFromObject(environment), environment)).To(Succeed())
				g.Expect(environment.Status.Runner.Replicas).To(BeZero())
				g.Expect(v1alpha1.IsReady(environment)).To(BeTrue())
				g.Expect(environment.Status.IsTrue(v1alpha1.ConditionRunnersReady)).To(BeTrue())
			}).WithTimeout(patience).WithPolling(5 * interval).Should(Succeed())
		}
		t.live(ctx, "v1")
		question, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		ask(func(r *v1alpha1.RunnerPool) { r.MinReplicas, r.Concurrency = ptr.To(int32(0)), 1 })
		toZero() // at once, for it does not scale yet
		ask(func(r *v1alpha1.RunnerPool) { r.MaxReplicas = ptr.To(int32(2)) })

		begin := time.Now()
		answer := question.post(ctx, cluster.gateway, `{}`)
		Expect(answer.Status).To(Equal(200), "%s", answer.Body)
		Expect(answer.Result.Output).To(Equal("hello from v1"))
		took := time.Since(begin)

		// Two runs each hold a slot until the test releases them. Otherwise one pod could finish the burst before the test sees
		// it.
		slow := t.hook(ctx, "slow", v1alpha1.ModeInbound, "resume")
		first, firstRun := slow.start(ctx)
		second, secondRun := slow.start(ctx)
		var (
			all   sync.WaitGroup
			mutex sync.Mutex
			runs  []string
		)
		for range 60 {
			all.Go(func() {
				r := events.post(ctx, cluster.gateway, `{"name": "burst"}`)
				mutex.Lock()
				defer mutex.Unlock()
				runs = append(runs, r.RunIDs...)
			})
		}
		all.Wait()
		Expect(runs).To(HaveLen(60))
		eventually(ctx, environment, func() bool { return environment.Status.Runner.ReadyReplicas == 2 })
		cluster.model.release(first)
		cluster.model.release(second)
		t.complete(ctx, append(runs, firstRun, secondRun))
		Expect(v1alpha1.IsReady(environment)).To(BeTrue())

		toZero()
		Expect(question.post(ctx, cluster.gateway, `{}`).Result.Output).To(Equal("hello from v1"), "and back")
		say("the first answer from zero took %.1f s", took.Seconds())
	}, SpecTimeout(20*time.Minute))
})
