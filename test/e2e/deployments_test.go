// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// restDeployment is a deployment in the REST API.
type restDeployment struct {
	ID         string
	Status     string
	IsLive     bool `json:"is_live"`
	Source     struct{ Commit string }
	RedeployOf *string `json:"redeploy_of"`
}

// asks sends a POST and returns the deployment in the response.
func (t *team) asks(ctx context.Context, path, body string, want int) (d restDeployment) {
	GinkgoHelper()
	Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, path, body, want), &d)).To(Succeed())
	return d
}

// deployment returns the current state of a deployment.
func (t *team) deployment(ctx context.Context, id string) (d restDeployment) {
	GinkgoHelper()
	Expect(json.Unmarshal(t.rest(ctx, http.MethodGet, "/deployments/"+id, "", http.StatusOK), &d)).To(Succeed())
	return d
}

// ok sends a POST and returns the ok field of the response.
func (t *team) ok(ctx context.Context, path string) bool {
	GinkgoHelper()
	var done struct{ OK bool }
	Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, path, "", http.StatusOK), &done)).To(Succeed())
	return done.OK
}

// follows reads the log of a deployment until its end.
func (t *team) follows(ctx context.Context, id string) string {
	GinkgoHelper()
	return string(t.rest(ctx, http.MethodGet, "/deployments/"+id+"/logs", "", http.StatusOK))
}

var _ = Describe("Deployments by the REST API", func() {
	It("are created, followed, rolled back, deployed again and cancelled", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		create := "/deployments?environment_id=" + dev.Status.ID
		greeting := t.hook(ctx, "greeting", v1alpha1.ModeSync, "hello")
		greets := func(version string) {
			GinkgoHelper()
			Eventually(ctx, func() string { return greeting.post(ctx, cluster.gateway, `{}`).Result.Output }).
				WithTimeout(patience).WithPolling(interval).Should(ContainSubstring("hello from " + version))
		}

		By("deploying the head of a branch")
		hash := push(ctx, "v1")
		first := t.asks(ctx, create, `{"branch":"main"}`, http.StatusCreated)
		log := t.follows(ctx, first.ID)
		Expect(log).To(ContainSubstring(`event: log`))
		Expect(strings.TrimSpace(log)).To(HaveSuffix(`data: {"status":"deployed"}`))
		is := t.deployment(ctx, first.ID)
		Expect(is.IsLive).To(BeTrue())
		Expect(is.Source.Commit).To(Equal(hash))
		greets("v1")

		By("deploying a commit, and rolling back")
		second := t.asks(ctx, create, `{"commit":"`+push(ctx, "v2")+`"}`, http.StatusCreated)
		t.follows(ctx, second.ID)
		greets("v2")
		Expect(t.ok(ctx, "/deployments/"+first.ID+"/activate")).To(BeTrue())
		Expect(t.deployment(ctx, first.ID).IsLive).To(BeTrue())
		greets("v1")
		Expect(t.ok(ctx, "/deployments/"+second.ID+"/activate")).To(BeTrue())

		By("rolling back to one whose object is gone")
		var list v1alpha1.DeploymentList
		Expect(cluster.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingFields{"status.id": first.ID})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(cluster.Delete(ctx, &list.Items[0])).To(Succeed())
		Eventually(ctx, func() bool { return t.ok(ctx, "/deployments/"+first.ID+"/activate") }).
			WithTimeout(patience).WithPolling(interval).Should(BeTrue())
		again := &v1alpha1.Deployment{ObjectMeta: t.at(list.Items[0].Name)}
		eventually(ctx, again, func() bool { return again.Status.Live && again.UID != list.Items[0].UID })
		greets("v1")

		By("deploying the same commit again, whatever the branch has become")
		push(ctx, "v3")
		third := t.asks(ctx, "/deployments/"+first.ID+"/redeploy", "", http.StatusOK)
		Expect(*third.RedeployOf).To(Equal(first.ID))
		t.follows(ctx, third.ID)
		Expect(t.deployment(ctx, third.ID).Source.Commit).To(Equal(hash))
		t.rest(ctx, http.MethodPost, "/deployments/"+third.ID+"/deploy-anyway", "", http.StatusBadRequest)
		t.rest(ctx, http.MethodGet, "/deployments/"+third.ID+"/test-runs", "", http.StatusOK)

		var all []struct{ ID string }
		Expect(json.Unmarshal(t.rest(ctx, http.MethodGet, create, "", http.StatusOK), &all)).To(Succeed())
		Expect(all).To(HaveLen(3))
		Expect(all[0].ID).To(Equal(third.ID), "the newest comes first")

		By("cancelling")
		Expect(t.ok(ctx, "/deployments/"+third.ID+"/cancel")).To(BeFalse(), "it is deployed")
		fourth := t.asks(ctx, create, "", http.StatusCreated)
		Expect(t.ok(ctx, "/deployments/"+fourth.ID+"/cancel")).To(BeTrue())
		Expect(strings.TrimSpace(t.follows(ctx, fourth.ID))).To(HaveSuffix(`data: {"status":"cancelled"}`))
		Expect(t.deployment(ctx, third.ID).IsLive).To(BeTrue())
		t.rest(ctx, http.MethodPost, "/deployments/"+fourth.ID+"/activate", "", http.StatusConflict)

		By("naming a branch that is not there")
		fifth := t.asks(ctx, create, `{"branch":"no-such"}`, http.StatusCreated)
		t.follows(ctx, fifth.ID)
		say("%s", t.rest(ctx, http.MethodGet, "/deployments/"+fifth.ID, "", http.StatusOK))
		Expect(t.deployment(ctx, fifth.ID).Status).To(Equal("failed"))
	}, SpecTimeout(8*time.Minute))
})
