// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"fmt"
	"log/slog"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("The drift of MCP tools", func() {
	It("is an event and a condition of the Environment until a deployment pins the tools again", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		live := s.ExpectLive(ctx, e, "v1", "hello")
		s.ExpectReconciled(ctx, s.R, e)
		s.Events.Sent()
		watch := &environment.DriftWatch{
			Store: s.Store, Changed: s.Changed, Namespaces: namespaces.Set{s.Namespace}, Logger: slog.New(slog.DiscardHandler),
		}
		queued := func() []string {
			GinkgoHelper()
			Expect(watch.CheckAll(ctx)).To(Succeed())
			return s.Queued()
		}
		report := func(tools ...string) {
			GinkgoHelper()
			Expect(s.Store.RecordDrift(ctx, s.Key(e), []store.DriftReport{{DeploymentID: live.ID, Agent: "hello", Server: "crm", Tools: tools}})).To(Succeed())
		}
		Expect(queued()).To(BeEmpty())

		report("get")
		Expect(queued()).To(Equal([]string{"dev"}))
		Expect(queued()).To(BeEmpty(), "nothing is new")
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"), "runs continue with the pinned tools")
		condition := e.Status.Condition(v1alpha1.ConditionToolsDrifted)
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonToolsChanged))
		Expect(condition.Message).To(HaveSuffix(`agent "hello", server "crm": "get"`))
		Expect(s.Events.Sent()).To(Equal([]string{"Warning ToolsChanged: " + condition.Message}))
		s.ExpectAtRest(ctx, s.R, e)
		Expect(s.Events.Sent()).To(BeEmpty())

		By("a server whose list changes with each request")
		for i := range 20 {
			report()
			report(fmt.Sprint("tool-", i))
			s.ExpectReconciled(ctx, s.R, e)
		}
		Expect(s.Events.Sent()).To(BeEmpty(), "at most one a minute")
		Expect(queued()).To(Equal([]string{"dev"}))
		Expect(strings.Count(e.Status.Condition(v1alpha1.ConditionToolsDrifted).Message, "tool-")).To(Equal(store.MaxDriftTools - 1))

		By("a new deployment")
		s.ExpectLive(ctx, e, "v2", "hello")
		Expect(queued()).To(Equal([]string{"dev"}))
		s.ExpectReconciled(ctx, s.R, e)
		Expect(e.Status.Condition(v1alpha1.ConditionToolsDrifted)).To(BeNil())
		Expect(s.Events.Sent()).To(BeEmpty())
		s.ExpectAtRest(ctx, s.R, e)
	})
})
