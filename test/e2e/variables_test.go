// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// setVariables replaces the variables of an environment by the REST API, and waits until all its runners have them.
func (t *team) setVariables(ctx context.Context, e *v1alpha1.Environment, variables string) {
	GinkgoHelper()
	t.rest(ctx, http.MethodPut, "/environments/"+e.Status.ID+"/variables", variables, http.StatusOK)
	t.applied(ctx, e)
}

// applied waits until all runners of an environment have its variables.
func (t *team) applied(ctx context.Context, e *v1alpha1.Environment) {
	GinkgoHelper()
	Expect(cluster.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
	generation := e.Generation
	eventually(ctx, e, func() bool { return ready(e)() && e.Status.ObservedGeneration >= generation })
}

// configured returns the content of a file in an environment's runners.
func (t *team) configured(ctx context.Context, environment, file string) string {
	GinkgoHelper()
	config := &corev1.Secret{}
	Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: environment + "-runner-config"}, config)).To(Succeed())
	return string(config.Data[file])
}

var _ = Describe("The variables of an environment", func() {
	It("reach prompts, change without losing a run, and are copied", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.live(ctx, "v1")
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		where := t.hook(ctx, "where", v1alpha1.ModeSync, "where")
		says := func() string {
			GinkgoHelper()
			return where.post(ctx, cluster.gateway, `{}`).Result.Output
		}
		missing := where.post(ctx, cluster.gateway, `{}`)
		Expect(missing.Result.Status).To(Equal("failed"))
		Expect(string(missing.Body)).To(ContainSubstring("REGION"))

		t.setVariables(ctx, dev, `[{"name":"REGION","value":"eu","sensitive":false},{"name":"TOKEN","value":"hush","sensitive":true}]`)
		// A runner that is shutting down may claim one more run with the old values.
		Eventually(ctx, says).WithTimeout(patience).WithPolling(interval).Should(ContainSubstring("Somewhere in eu."))
		Expect(t.configured(ctx, "dev", "variables.json")).To(ContainSubstring(`"hush"`))
		shown := string(t.rest(ctx, http.MethodGet, "/environments/"+dev.Status.ID+"/variables", "", http.StatusOK))
		Expect(shown).To(And(ContainSubstring(`"eu"`), ContainSubstring("********"), Not(ContainSubstring("hush"))))
		object, err := json.Marshal(dev.Spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(object)).NotTo(ContainSubstring("hush"), "it lies sealed there")

		By("changing one while a run waits for its model")
		slow, key := t.hook(ctx, "slow", v1alpha1.ModeInbound, "resume"), "key-"+uuid.NewString()
		started := slow.post(ctx, cluster.gateway, fmt.Sprintf(`{"key":%q}`, key))
		Expect(started.Started).To(Equal(1), "%s", started.Body)
		Eventually(ctx, func() int { asked, _ := cluster.model.asked(key, 3); return asked }).WithTimeout(patience).WithPolling(interval).Should(Equal(1))
		t.setVariables(ctx, dev, `[{"name":"REGION","value":"us","sensitive":false},{"name":"TOKEN","sensitive":true}]`)
		cluster.model.release(key)
		Expect(t.ends(ctx, started.RunIDs[0]).Status).To(Equal("completed"))
		Eventually(ctx, says).WithTimeout(patience).WithPolling(interval).Should(ContainSubstring("Somewhere in us."))
		Expect(t.configured(ctx, "dev", "variables.json")).To(ContainSubstring(`"hush"`), "omitted variables keep their values")

		By("copying them")
		var copied restEnvironment
		Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, "/environments", `{"name":"Copy","copy_from_environment_id":"`+dev.Status.ID+`"}`, http.StatusCreated), &copied)).To(Succeed())
		var list v1alpha1.EnvironmentList
		Expect(cluster.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingFields{"status.id": copied.ID})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		other := &v1alpha1.Environment{ObjectMeta: t.at(list.Items[0].Name)}
		eventually(ctx, other, ready(other))
		Expect(t.configured(ctx, other.Name, "variables.json")).To(Equal(t.configured(ctx, "dev", "variables.json")))
	})
})

var _ = Describe("A test environment", func() {
	It("stays while somebody tests in it", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		var tests restEnvironment
		Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, "/environments", `{"name":"Tests","kind":"test"}`, http.StatusCreated), &tests)).To(Succeed())
		path := "/environments/" + tests.ID
		t.rest(ctx, http.MethodPut, path+"/session", `{"holder":"anna","ttl_seconds":600}`, http.StatusOK)
		t.rest(ctx, http.MethodPut, path+"/session", `{"holder":"berta"}`, http.StatusConflict)
		t.rest(ctx, http.MethodDelete, path, "", http.StatusConflict)
		t.rest(ctx, http.MethodDelete, path+"/session?holder=anna", "", http.StatusOK)
		t.rest(ctx, http.MethodDelete, path, "", http.StatusOK)
	})
})
