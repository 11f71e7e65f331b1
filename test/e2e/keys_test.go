// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("The platform's keys", Serial, func() {
	It("are rotated and revoked under load without refusing anybody", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		ask, events := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		traffic := startLoad(ctx, cluster.gateway, 20, ask, events)

		By("rotating")
		before := derivationKeys(ctx)["current"]
		Expect(before).NotTo(BeEmpty())
		agentctl(ctx, "keys", "rotate", "--derivation")
		Eventually(ctx, func() string { return derivationKeys(ctx)["current"] }).
			WithTimeout(4 * time.Minute).WithPolling(4 * interval).ShouldNot(Or(Equal(before), BeEmpty()))
		Expect(t.shown(ctx, "ask")).To(Equal(ask.secret), "a rotation changes nobody's secret")

		By("revoking the key that the secrets derive from")
		agentctl(ctx, "keys", "revoke", before, "--within", "24h")
		anew := *ask
		Eventually(ctx, func() string {
			anew.secret = t.shown(ctx, "ask")
			return anew.secret
		}).WithTimeout(2 * time.Minute).WithPolling(2 * interval).ShouldNot(Equal(ask.secret))
		Expect(anew.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK), "the new secret")

		replies := traffic.end()
		for _, r := range replies {
			Expect(r.Status).To(Equal(http.StatusOK), "%s", r.Body)
		}
		say("a key rotated and revoked under 20 requests/s with secrets of the old one: %d requests, all 2xx", len(replies))

		By("ending what derives from it at once")
		agentctl(ctx, "keys", "revoke", before, "--within", "0s")
		Eventually(ctx, func() int { return ask.post(ctx, cluster.gateway, `{}`).Status }).
			WithTimeout(2 * time.Minute).WithPolling(2 * interval).Should(Equal(http.StatusUnauthorized))
		Expect(anew.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK))
	}, SpecTimeout(10*time.Minute))

	It("of the REST API end when they are revoked", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		get := func() int {
			status, _ := call(ctx, http.MethodGet, cluster.api+"/v1/projects/"+t.project.String()+"/runs",
				http.Header{"Authorization": {"Bearer " + t.key}}, nil)
			return status
		}
		Expect(get()).To(Equal(http.StatusOK))
		key := &v1alpha1.APIKey{ObjectMeta: t.at("e2e")}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(key), key)).To(Succeed())
		before := key.DeepCopy()
		key.Spec.Revoked = true
		Expect(cluster.Patch(ctx, key, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, get).WithTimeout(patience).WithPolling(interval).Should(Equal(http.StatusUnauthorized))
		Expect(cluster.Delete(ctx, key)).To(Succeed()) // the key is unknown from here on, and the facade has to look it up
		Consistently(ctx, get).WithTimeout(2 * interval).WithPolling(interval).Should(Equal(http.StatusUnauthorized))
	}, SpecTimeout(3*time.Minute))
})

// shown returns the secret in a connector's Secret.
func (t *team) shown(ctx context.Context, name string) string {
	GinkgoHelper()
	c := &v1alpha1.Connector{ObjectMeta: t.at(name)}
	Expect(cluster.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
	return t.known(ctx, c).secret
}

// agentctl runs the command line with the cluster's kubeconfig.
func agentctl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "../../bin/agentctl", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return string(out)
}

// derivationKeys returns the ID of the newest derivation key in each state.
func derivationKeys(ctx context.Context) map[string]string {
	GinkgoHelper()
	keys := map[string]string{}
	for line := range strings.Lines(agentctl(ctx, "keys", "status")) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && strings.HasPrefix(fields[0], "derivation-") && slices.Contains([]string{"current", "new"}, fields[1]) {
			keys[fields[1]] = fields[0]
		}
	}
	return keys
}
