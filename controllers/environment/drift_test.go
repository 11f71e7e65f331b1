// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

// driftReader is a store that has the given drift.
type driftReader struct {
	environment.Store
	drift []store.MCPDrift
}

// Drift implements store.DriftReader.
func (r *driftReader) Drift(context.Context, store.Key) ([]store.MCPDrift, error) {
	return r.drift, nil
}

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
		Expect(e.Status.Condition(v1alpha1.ConditionToolsDrifted).Message).To(
			HaveSuffix(fmt.Sprintf(`agent "hello", server "crm": "tool-14", "tool-13", "tool-12" and %d more`, store.MaxDriftTools-3)))

		By("a new deployment")
		s.ExpectLive(ctx, e, "v2", "hello")
		Expect(queued()).To(Equal([]string{"dev"}))
		s.ExpectReconciled(ctx, s.R, e)
		Expect(e.Status.Condition(v1alpha1.ConditionToolsDrifted)).To(BeNil())
		Expect(s.Events.Sent()).To(BeEmpty())
		s.ExpectAtRest(ctx, s.R, e)
	})

	It("is an event if a tool is added, also one that the message does not name, and none if it shrinks", func(ctx SpecContext) {
		s := environmenttest.NewWithProject(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		s.ExpectLive(ctx, e, "v1", "hello")
		reader := &driftReader{Store: s.R.Store}
		s.R.Store = reader
		long := strings.Repeat(`"`, store.MaxDriftTool)
		agent, now := strings.Repeat("a", store.MaxAgentName), s.Clock.Now()
		server := func(i int, at time.Time) (d store.MCPDrift) {
			d.Agent, d.Server = agent, fmt.Sprintf("server-%02d-%s", i, strings.Repeat("s", 30))
			for j := range store.MaxDriftTools {
				d.Tools = append(d.Tools, store.DriftedTool{Name: fmt.Sprint(j, long[2:]), Since: at, ReportedAt: at})
			}
			return d
		}
		show := func() string {
			GinkgoHelper()
			s.Clock.Step(time.Hour) // events are limited to one a minute
			s.ExpectReconciled(ctx, s.R, e)
			return e.Status.Condition(v1alpha1.ConditionToolsDrifted).Message
		}
		for i := range store.MaxDrift - 1 {
			reader.drift = append(reader.drift, server(i, now))
		}
		s.Events.Sent()
		message := show()
		Expect(message).To(HaveSuffix("; other servers: 60"))
		Expect(s.Events.Sent()).To(Equal([]string{"Warning ToolsChanged: " + message}), "the message is not cut")

		By("a server that is last by name")
		reader.drift = append(reader.drift, server(99, now.Add(time.Second)))
		message = show()
		Expect(message).To(ContainSubstring("server-99"))
		Expect(s.Events.Sent()).To(HaveLen(1))

		By("a tool of a server that the message names already, beyond the named tools")
		reader.drift[0].Tools[0].Since = now.Add(2 * time.Second)
		show()
		Expect(s.Events.Sent()).To(HaveLen(1))
		show()
		Expect(s.Events.Sent()).To(BeEmpty())

		By("drift that shrinks")
		reader.drift = reader.drift[1:3]
		Expect(show()).NotTo(Equal(message))
		Expect(s.Events.Sent()).To(BeEmpty())
	})
})
