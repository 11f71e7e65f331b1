// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A mistake", func() {
	var t *team
	BeforeEach(func(ctx SpecContext) { t = newTeam(ctx, 0) })

	It("of a second Project is refused by name", func(ctx SpecContext) {
		err := cluster.Create(ctx, &v1alpha1.Project{ObjectMeta: t.at("another")})
		Expect(err).To(MatchError(ContainSubstring(`must be named "project"`)))
		say("%v", err)
	}, SpecTimeout(time.Minute))

	It("of an ID claim names the holder, but never an object of another project", func(ctx SpecContext) {
		other := newTeam(ctx, 0)
		taken := &v1alpha1.Connector{ObjectMeta: t.at("taken"), Spec: v1alpha1.ConnectorSpec{
			ID: "3f6b5c60-3a65-4f4c-9b7e-0d7d3c7e0a01", Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}}
		again, elsewhere := taken.DeepCopy(), taken.DeepCopy()
		again.Name, elsewhere.Namespace = "again", other.namespace
		t.create(ctx, taken)
		eventually(ctx, taken, ready(taken))
		other.create(ctx, elsewhere)
		eventually(ctx, elsewhere, ready(elsewhere))
		Expect(elsewhere.Status.URL).NotTo(Equal(taken.Status.URL))
		Expect(other.known(ctx, elsewhere).secret).NotTo(Equal(t.known(ctx, taken).secret))
		t.create(ctx, again)
		eventually(ctx, again, stalled(again))
		text, _ := kubectl(ctx, "-n", t.namespace, "get", "conn", "again", "-o", "wide")
		described, _ := kubectl(ctx, "-n", t.namespace, "describe", "conn", "again")
		Expect(text).To(ContainSubstring(t.namespace + "/taken"))
		Expect(described).To(And(ContainSubstring("IDTaken"), ContainSubstring(t.namespace+"/taken"), ContainSubstring("spec.id")))
		say("%s", again.Status.Condition(v1alpha1.ConditionReady).Message)
	}, SpecTimeout(3*time.Minute))

	It("in the repository is shown with file and line, one in its address with the address", func(ctx SpecContext) {
		hash := push(ctx, "v1")
		broken := commit(ctx, "broken", map[string]*string{"agents/hello.yaml": ptr.To("version: \"1.0\"\nname: hello\ntype: llm\nmodel: scripted/hello\ncolour: red\n")})
		d := t.deploy(ctx, "broken", broken)
		eventually(ctx, d, func() bool { return d.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(d.Status.Message).To(And(ContainSubstring("agents/hello.yaml:5:1"), ContainSubstring("colour")))
		described, _ := kubectl(ctx, "-n", t.namespace, "describe", "adep", "broken")
		Expect(described).To(ContainSubstring("agents/hello.yaml:5:1"))
		say("%s", d.Status.Message)

		absent := t.deploy(ctx, "absent", "0123456789012345678901234567890123456789")
		eventually(ctx, absent, func() bool { return absent.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(absent.Status.Message).To(ContainSubstring("0123456789012345678901234567890123456789"))
		say("%s", absent.Status.Message)

		t.fetch(ctx, "http://no-such-server.demo-git.svc/agents.git", "")
		lost := t.deploy(ctx, "lost", hash)
		eventually(ctx, lost, func() bool { return lost.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(lost.Status.Message).To(ContainSubstring("no-such-server"))
		say("%s", lost.Status.Message)
		push(ctx, "repaired")
	}, SpecTimeout(6*time.Minute))

	It("of an agent's name or a secret says which and what to do", func(ctx SpecContext) {
		t.live(ctx, "v1")
		h := t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
		l := &v1alpha1.ConnectorLink{ObjectMeta: t.at("unknown"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "helo"}}
		t.create(ctx, l)
		eventually(ctx, l, func() bool {
			ready := l.Status.Condition(v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonAgentUnknown
		})
		described, _ := kubectl(ctx, "-n", t.namespace, "describe", "clink", "unknown")
		Expect(described).To(And(ContainSubstring("helo"), ContainSubstring("hello")))
		say("%s", l.Status.Condition(v1alpha1.ConditionReady).Message)

		h.secret = "wrong"
		got := h.post(ctx, cluster.gateway, `{}`)
		Expect(got.Status).To(Equal(http.StatusUnauthorized))
		Expect(got.Detail).To(ContainSubstring("X-Service-Secret"))
		say("%d %s", got.Status, got.Detail)
	}, SpecTimeout(6*time.Minute))
})
