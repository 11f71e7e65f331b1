// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// executedBy returns the runs of a team that a variant has executed, each with its variant in the REST API. An empty variant
// stands for all variants.
func (t *team) executedBy(ctx context.Context, variant string) map[string]string {
	GinkgoHelper()
	var page struct {
		Items []struct {
			ID       string
			Agent    string  `json:"agent_name"`
			TestName *string `json:"test_name"`
		}
	}
	query := url.Values{"agent_name": {"offer"}, "limit": {"100"}}
	if variant != "" {
		query.Set("test_name", variant)
	}
	Expect(json.Unmarshal(t.rest(ctx, http.MethodGet, "/runs?"+query.Encode(), "", http.StatusOK), &page)).To(Succeed())
	of := map[string]string{}
	for _, r := range page.Items {
		of[r.ID] = ptr.Deref(r.TestName, "")
	}
	return of
}

var _ = Describe("An agent with two A/B variants", func() {
	It("has each input executed by the same one of them, and its runs tell which", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		offer := func(name, variants string) *string {
			return ptr.To(fmt.Sprintf("name: %s\nmodel: scripted/%s\nsystem_prompt: Offer it.\n%s", name, name, variants))
		}
		says := func(what string) *string { return ptr.To("steps:\n  - text: " + what + "\n") }
		files := map[string]*string{
			"agents/offer.yaml": offer("offer", "variants: {short: 50, long: 50}\n"), "models/offer.yaml": says("base"),
			"agents/offer-test-short.yaml": offer("offer-short", ""), "models/offer-short.yaml": says("short"),
			"agents/offer-test-long.yaml": offer("offer-long", ""), "models/offer-long.yaml": says("long"),
		}
		d := t.deployFiles(ctx, "variants", files, func(*v1alpha1.DeploymentSpec) {})
		gone := map[string]*string{}
		for path := range files {
			gone[path] = nil
		}
		DeferCleanup(func(ctx SpecContext) { commit(ctx, "Remove variants", gone) })
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), d.Status.Message)
		eventually(ctx, d, func() bool { return d.Status.Live })
		offers := t.hook(ctx, "offers", v1alpha1.ModeSync, "offer")

		by, count := map[string]string{}, map[string]int{} // runs
		for customer := range 16 {
			var first string
			for again := range 2 {
				answer := offers.post(ctx, cluster.gateway, fmt.Sprintf(`{"customer":%d}`, customer))
				Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
				variant := answer.Result.Output
				if again == 0 {
					first = variant
				}
				Expect(variant).To(Equal(first), "the same input")
				by[answer.Result.RunID] = variant
				count[variant]++
			}
		}
		Expect(count).To(And(HaveKey("short"), HaveKey("long"), HaveLen(2)), "the base has no share")
		say("%d runs by short, %d by long", count["short"], count["long"])

		Expect(t.executedBy(ctx, "")).To(Equal(by))
		for variant, runs := range count {
			Expect(t.executedBy(ctx, variant)).To(And(HaveLen(runs), HaveEach(variant)))
		}
		Expect(t.executedBy(ctx, "__base__")).To(BeEmpty())
	}, SpecTimeout(5*time.Minute))
})
