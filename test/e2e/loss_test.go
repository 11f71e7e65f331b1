// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// start starts a run with a fresh key in its input. It returns the key and the ID of the run.
func (h *hook) start(ctx context.Context) (key, id string) {
	GinkgoHelper()
	key = "key-" + uuid.NewString()
	accepted := h.post(ctx, cluster.gateway, fmt.Sprintf(`{"key": %q}`, key))
	Expect(accepted.Status).To(Equal(http.StatusOK), "%s", accepted.Body)
	Expect(accepted.RunIDs).To(HaveLen(1))
	return key, accepted.RunIDs[0]
}

// asked waits for n requests for a turn and returns the runner's pod that sent the last one.
func (t *team) asked(ctx context.Context, key string, turn, n int) corev1.Pod {
	GinkgoHelper()
	var from string
	Eventually(ctx, func() int {
		var times int
		times, from = cluster.model.asked(key, turn)
		return times
	}).WithTimeout(patience).WithPolling(interval).Should(Equal(n), "turn %d of %s", turn, key)
	for _, pod := range pods(ctx, t.namespace, client.MatchingLabels{"app.kubernetes.io/component": "runner"}) {
		if pod.Status.PodIP == from {
			return pod
		}
	}
	return corev1.Pod{}
}

var _ = Describe("A run whose runner is lost", func() {
	var t *team
	BeforeEach(func(ctx SpecContext) {
		t = newTeam(ctx, 2)
		t.live(ctx, "v1")
		t.running(ctx, 2)
	})

	DescribeTable("resumes from its journal on another", func(ctx SpecContext, lose func(context.Context, corev1.Pod)) {
		key, id := t.hook(ctx, "events", v1alpha1.ModeInbound, "resume").start(ctx)
		runner := t.asked(ctx, key, 3, 1)
		Expect(runner.Name).NotTo(BeEmpty())
		pause(ctx, time.Second) // answers of the last 250 ms may be asked again
		begin := time.Now()
		lose(ctx, runner)
		t.asked(ctx, key, 3, 2)
		say("asked again by another runner after %.1f s", time.Since(begin).Seconds())
		cluster.model.release(key)
		ended := t.ends(ctx, id)
		Expect(ended.Status).To(Equal("completed"), "%v", ended.Error)
		Expect(*ended.Output).To(Equal("All done."))
		for turn := 1; turn <= 2; turn++ {
			times, _ := cluster.model.asked(key, turn)
			Expect(times).To(Equal(1), "turn %d was answered once and is in the journal", turn)
		}
		say("attempt %d completed; turns 1 and 2 asked once, the unanswered turn 3 again", ended.Attempt)
	},
		Entry("after a graceful deletion", func(ctx context.Context, runner corev1.Pod) {
			Expect(cluster.Delete(ctx, &runner)).To(Succeed())
		}, SpecTimeout(6*time.Minute)),
		Entry("after SIGKILL", perInstallation, func(ctx context.Context, runner corev1.Pod) {
			signal(ctx, syscall.SIGKILL, runner)
		}, SpecTimeout(6*time.Minute)),
	)

	It("fails when a tool was at work that must not be called twice", func(ctx SpecContext) {
		key, id := t.hook(ctx, "events", v1alpha1.ModeInbound, "book").start(ctx)
		runner := t.asked(ctx, key, toolTurn, 1)
		Expect(runner.Name).NotTo(BeEmpty())
		signal(ctx, syscall.SIGKILL, runner)
		ended := t.ends(ctx, id)
		Expect(ended.Status).To(Equal("failed"))
		Expect(ended.ErrorCode).To(HaveValue(Equal("tool_interrupted")))
		times, _ := cluster.model.asked(key, toolTurn)
		Expect(times).To(Equal(1), "the tool is not called again")
		say("failed, %s: %s", *ended.ErrorCode, *ended.Error)
		cluster.model.release(key)
	}, SpecTimeout(6*time.Minute))

	It("loses nothing by a stop of the gateway that outlasts its lease", Serial, perInstallation, func(ctx SpecContext) {
		events := t.hook(ctx, "events", v1alpha1.ModeInbound, "resume")
		key, id := events.start(ctx)
		t.asked(ctx, key, 3, 1)
		stopped := gatewayPods(ctx)
		signal(ctx, syscall.SIGSTOP, stopped...)
		DeferCleanup(func(ctx SpecContext) { signal(ctx, syscall.SIGCONT, stopped...) })
		pause(ctx, 40*time.Second)
		signal(ctx, syscall.SIGCONT, stopped...)
		pause(ctx, 15*time.Second) // a sweep that came too early would show
		cluster.model.release(key)
		ended := t.ends(ctx, id)
		Expect(ended.Status).To(Equal("completed"), "%v", ended.Error)
		Expect(ended.Attempt).To(Equal(1))
		say("the gateway stood still for 40 s; the run completed in attempt 1")
	}, SpecTimeout(6*time.Minute))
})
