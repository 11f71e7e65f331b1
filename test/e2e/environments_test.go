// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// restEnvironment is an environment in the REST API.
type restEnvironment struct {
	ID        string
	Name      string
	Slug      string
	IsDefault bool `json:"is_default"`
}

// rest calls the REST API below the project, and returns the answer, which has that status.
func (t *team) rest(ctx context.Context, method, path, body string, want int) []byte {
	GinkgoHelper()
	status, answer := call(ctx, method, cluster.api+"/v1/projects/"+t.project.String()+path, http.Header{"Authorization": {"Bearer " + t.key}}, []byte(body))
	Expect(status).To(Equal(want), "%s %s: %s", method, path, answer)
	return answer
}

var _ = Describe("An environment that is made through the REST API", func() {
	It("has runners, is renamed, becomes the default, and is deleted with its queued runs", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		environment := func(answer []byte) (e restEnvironment) {
			GinkgoHelper()
			Expect(json.Unmarshal(answer, &e)).To(Succeed())
			return e
		}

		made := environment(t.rest(ctx, http.MethodPost, "/environments", `{"name":"Quality","settings":{"runner":{"concurrency":2}}}`, http.StatusCreated))
		Eventually(ctx, func() string {
			return environment(t.rest(ctx, http.MethodGet, "/environments/"+made.ID, "", http.StatusOK)).Slug
		}).WithTimeout(patience).WithPolling(interval).Should(Equal("quality"), "the platform has taken it up")
		Expect(made.IsDefault).To(BeFalse(), "dev was there before")
		object := &v1alpha1.Environment{}
		var list v1alpha1.EnvironmentList
		Expect(cluster.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingFields{"status.id": made.ID})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		object.ObjectMeta = t.at(list.Items[0].Name)
		eventually(ctx, object, ready(object))
		Expect(object.Status.Runner.ReadyReplicas).To(BeEquivalentTo(1))
		t.rest(ctx, http.MethodPost, "/environments", `{"name":"quality!"}`, http.StatusBadRequest)

		t.rest(ctx, http.MethodPatch, "/environments/"+made.ID, `{"name":"Acceptance"}`, http.StatusOK)
		Eventually(ctx, func() string {
			return environment(t.rest(ctx, http.MethodGet, "/environments/"+made.ID, "", http.StatusOK)).Slug
		}).WithTimeout(patience).WithPolling(interval).Should(Equal("acceptance"), "the platform has taken the new name up")
		t.rest(ctx, http.MethodPost, "/environments/"+made.ID+"/set-default", "", http.StatusOK)
		Expect(environment(t.rest(ctx, http.MethodGet, "/environments/"+made.ID, "", http.StatusOK)).IsDefault).To(BeTrue())
		t.rest(ctx, http.MethodDelete, "/environments/"+made.ID, "", http.StatusBadRequest)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		t.rest(ctx, http.MethodPost, "/environments/"+dev.Status.ID+"/set-default", "", http.StatusOK)

		tickets := &hook{team: t}
		var connector struct{ ID, Secret string }
		Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, "/connectors?agent_name=support&environment_id="+made.ID,
			`{"name":"Tickets","type":"webhook","config":{}}`, http.StatusCreated), &connector)).To(Succeed())
		tickets.id, tickets.secret = connector.ID, connector.Secret
		var waits reply
		Eventually(ctx, func() int {
			waits = tickets.post(ctx, cluster.gateway, `{}`)
			return waits.Started
		}).WithTimeout(patience).WithPolling(interval).Should(Equal(1), "its link has come into effect")

		t.rest(ctx, http.MethodDelete, "/environments/"+made.ID, "", http.StatusOK)
		Expect(t.ends(ctx, waits.RunIDs[0]).Status).To(Equal("cancelled"))
		t.rest(ctx, http.MethodGet, "/environments/"+made.ID, "", http.StatusNotFound)
		Eventually(ctx, func() int {
			var pools appsv1.DeploymentList
			Expect(cluster.List(ctx, &pools, client.InNamespace(t.namespace), client.MatchingLabels{v1alpha1.LabelEnvironment: object.Name})).To(Succeed())
			return len(pools.Items)
		}).WithTimeout(patience).WithPolling(interval).Should(BeZero(), "its runners go too")
	})
})
