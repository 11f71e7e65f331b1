// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("The way of a webhook", func() {
	It("goes from a commit to an answer", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")

		answer := ask.post(ctx, cluster.gateway, `{"name": "Ada"}`)
		Expect(answer.Status).To(Equal(http.StatusOK), "%s", answer.Body)
		Expect(answer.Result.Output).To(Equal("hello from v1"))

		accepted := events.post(ctx, cluster.gateway, `{"name": "Ada"}`)
		Expect(accepted.Status).To(Equal(http.StatusOK), "%s", accepted.Body)
		Expect(accepted.RunIDs).To(HaveLen(1))
		ended := t.ends(ctx, accepted.RunIDs[0])
		Expect(ended.Status).To(Equal("completed"))
		Expect(*ended.Output).To(Equal("hello from v1"))
	}, SpecTimeout(5*time.Minute))

	It("works as soon as Ready turns true", perInstallation, func(ctx SpecContext) {
		const connectors = 100
		t := newTeam(ctx, 0)
		project := &v1alpha1.Project{ObjectMeta: t.at("project")}
		eventually(ctx, project, ready(project))
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, environment, func() bool { return environment.Status.ID != "" })
		events, err := cluster.Watch(ctx, &v1alpha1.ConnectorList{}, client.InNamespace(t.namespace))
		Expect(err).NotTo(HaveOccurred())
		defer events.Stop()
		go t.openConnectors(ctx, connectors)

		accepted, seen := 0, map[string]bool{}
		for len(seen) < connectors {
			var event watch.Event
			Eventually(ctx, events.ResultChan()).WithTimeout(patience).Should(Receive(&event))
			c, isConnector := event.Object.(*v1alpha1.Connector)
			if !isConnector || !v1alpha1.IsReady(c) || seen[c.Name] {
				continue
			}
			seen[c.Name] = true
			if answer := (&hook{team: t, id: c.Status.ID}).post(ctx, cluster.gateway, `{}`); answer.Status == http.StatusOK {
				accepted++
			} else {
				say("%s: %d %s", c.Name, answer.Status, answer.Body)
			}
		}
		say("accepted in the instant of Ready: %d of %d", accepted, connectors)
		Expect(accepted).To(Equal(connectors))
	}, SpecTimeout(5*time.Minute))
})

// openConnectors creates connectors without a secret other than their URL.
func (t *team) openConnectors(ctx context.Context, n int) {
	defer GinkgoRecover()
	for i := range n {
		t.create(ctx, &v1alpha1.Connector{ObjectMeta: t.at(fmt.Sprintf("open-%d", i)), Spec: v1alpha1.ConnectorSpec{
			ID: v1alpha1.UUID(uuid.NewString()), Environment: "dev", Mode: v1alpha1.ModeInbound,
			Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone},
		}})
	}
}

var _ = Describe("A new version", func() {
	It("goes live and is rolled back under load", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 2)
		first := t.live(ctx, "v1")
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		traffic := startLoad(ctx, cluster.gateway, 20, ask, events)
		pause(ctx, 10*time.Second)
		second := t.live(ctx, "v2")
		Eventually(ctx, func() string { return ask.post(ctx, cluster.gateway, `{}`).Result.Output }).
			WithTimeout(patience).Should(Equal("hello from v2"))
		pause(ctx, 5*time.Second)

		begin := time.Now()
		before := first.DeepCopy()
		first.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.Now()}
		Expect(cluster.Patch(ctx, first, client.MergeFrom(before))).To(Succeed())
		for ask.post(ctx, cluster.gateway, `{}`).Result.Output != "hello from v1" {
			Expect(ctx.Err()).NotTo(HaveOccurred())
		}
		say("rolled back under 20 requests/s: %d ms from the patch to the first answer of the version before", time.Since(begin).Milliseconds())
		eventually(ctx, first, func() bool { return first.Status.Live && first.Status.Activation != nil })
		eventually(ctx, second, func() bool { return !second.Status.Live })
		pause(ctx, 10*time.Second)
		t.judge(ctx, traffic.end(), "hello from v1", "hello from v2")
	}, SpecTimeout(10*time.Minute))
})

// judge checks that all requests of a load succeeded with the wanted answers, and that every accepted run completed.
func (t *team) judge(ctx context.Context, replies []reply, want ...string) {
	GinkgoHelper()
	outputs, runs := map[string]int{}, []string{}
	for _, r := range replies {
		Expect(r.Status).To(Equal(http.StatusOK), "%s", r.Body)
		runs = append(runs, r.RunIDs...)
		if r.Result.RunID != "" {
			runs = append(runs, r.Result.RunID)
			outputs[r.Result.Output]++
		}
	}
	Expect(slices.Sorted(maps.Keys(outputs))).To(Equal(want))
	Expect(runs).To(HaveLen(len(replies)))
	t.complete(ctx, runs)
	say("load: %d requests, all 2xx; sync answers %v; %d of %d runs completed", len(replies), outputs, len(runs), len(runs))
}

// all calls f once for each item at the same time.
func all[T any](items []T, f func(T)) {
	var group sync.WaitGroup
	for _, item := range items {
		group.Go(func() {
			defer GinkgoRecover()
			f(item)
		})
	}
	group.Wait()
}
