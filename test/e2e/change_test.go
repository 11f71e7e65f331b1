// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A change of a connector", func() {
	It("holds on every gateway from the next request", func(ctx SpecContext) {
		const requests = 1000
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		h := t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		c := &v1alpha1.Connector{ObjectMeta: t.at("events")}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		gateways := gatewayURLs(ctx)
		links := 1
		var held, sent atomic.Int64
		check := func(what string, secret string, want func(reply) bool) {
			all(gateways, func(gateway string) {
				sent.Add(1)
				if got := (&hook{team: t, id: h.id, secret: secret}).post(ctx, gateway, `{}`); want(got) {
					held.Add(1)
				} else {
					say("%s at %s: %d %s", what, gateway, got.Status, got.Body)
				}
			})
		}
		status := func(code int) func(reply) bool { return func(r reply) bool { return r.Status == code } }
		for i := 0; sent.Load() < requests; i++ {
			switch i % 4 {
			case 0:
				t.change(ctx, c, func() { c.Spec.Enabled = ptr.To(false) })
				check("disabled", h.secret, status(http.StatusConflict))
			case 1:
				t.change(ctx, c, func() { c.Spec.Enabled = ptr.To(true) })
				check("enabled", h.secret, status(http.StatusOK))
			case 2:
				old := h.secret
				t.change(ctx, c, func() {
					c.Spec.SecretVersion++
					c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0))
				})
				h = t.known(ctx, c)
				check("the secret before", old, status(http.StatusUnauthorized))
				check("the new secret", h.secret, status(http.StatusOK))
			case 3:
				links = t.relink(ctx, links, i)
				check("a new link", h.secret, func(r reply) bool { return r.Status == http.StatusOK && r.Started == links })
			}
		}
		say("changes that held from the next request: %d of %d, on %d gateways", held.Load(), sent.Load(), len(gateways))
		Expect(held.Load()).To(Equal(sent.Load()))
	}, SpecTimeout(10*time.Minute))
})

// change patches a connector and waits until the change is Ready.
func (t *team) change(ctx context.Context, c *v1alpha1.Connector, edit func()) {
	GinkgoHelper()
	before := c.DeepCopy()
	edit()
	Expect(cluster.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
	generation := c.Generation
	eventually(ctx, c, func() bool {
		ready := c.Status.Condition(v1alpha1.ConditionReady)
		return ready != nil && ready.ObservedGeneration >= generation && c.Status.SecretVersion == c.Spec.SecretVersion
	})
}

// maxLinks is the maximum number of links of a connector. Each link has another agent.
const maxLinks = 5

// relink adds a link and returns the number of links. At maxLinks it deletes the added links and adds one link again.
func (t *team) relink(ctx context.Context, links, i int) int {
	GinkgoHelper()
	if links >= maxLinks {
		Expect(cluster.DeleteAllOf(ctx, &v1alpha1.ConnectorLink{}, client.InNamespace(t.namespace))).To(Succeed())
		links = 0
		hook := &v1alpha1.Connector{ObjectMeta: t.at("events")}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(hook), hook)).To(Succeed())
		Eventually(ctx, func() int { return t.known(ctx, hook).post(ctx, cluster.gateway, `{}`).Started }).
			WithTimeout(patience).WithPolling(interval).Should(BeZero())
	}
	agent := "hello"
	if links > 0 {
		agent = fmt.Sprintf("hello-%d", links)
	}
	l := &v1alpha1.ConnectorLink{ObjectMeta: t.at(fmt.Sprintf("link-%d", i)), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: "events", Agent: v1alpha1.AgentName(agent),
	}}
	t.create(ctx, l)
	eventually(ctx, l, ready(l))
	return links + 1
}
