// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// test/chaos shows that the runner learns of the cancellation before its next heartbeat, because it can hold heartbeats back.
var _ = Describe("A run that is cancelled through the REST API", func() {
	It("leaves its runner, which breaks the request to the model off", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		key, id := t.hook(ctx, "events", v1alpha1.ModeInbound, "resume").start(ctx)
		t.asked(ctx, key, 3, 1)

		status, answer := call(ctx, http.MethodPost, cluster.api+"/v1/projects/"+t.project.String()+"/runs/"+id+"/cancel",
			http.Header{"Authorization": {"Bearer " + t.key}}, nil)
		began := time.Now()
		Expect(status).To(Equal(http.StatusOK), "%s", answer)
		var cancelled run
		Expect(json.Unmarshal(answer, &cancelled)).To(Succeed())
		Expect(cancelled.Status).To(Equal("cancelled"))
		Expect(cancelled.ErrorCode).To(HaveValue(Equal("cancelled")))
		Eventually(ctx, func() int { return cluster.model.left(key, 3) }).WithTimeout(patience).WithPolling(interval).Should(Equal(1))
		say("the runner broke its request off %.2f s after the answer", time.Since(began).Seconds())

		cluster.model.release(key)
		Expect(t.ends(ctx, id)).To(Equal(cancelled), "and nothing comes of it any more")
		times, _ := cluster.model.asked(key, 3)
		Expect(times).To(Equal(1), "no other runner took it up")
		next, other := t.hook(ctx, "more", v1alpha1.ModeInbound, "resume").start(ctx)
		t.asked(ctx, next, 3, 1)
		cluster.model.release(next)
		Expect(t.ends(ctx, other).Status).To(Equal("completed"), "its runner goes on")
	}, SpecTimeout(6*time.Minute))
})
