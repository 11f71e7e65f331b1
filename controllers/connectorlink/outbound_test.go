// SPDX-License-Identifier: Apache-2.0

package connectorlink_test

import (
	"fmt"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("A ConnectorLink to an outbound connector", func() {
	It("selects the results to send", func(ctx SpecContext) {
		s := newScene(ctx)
		results := s.Connector("results", func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com"
		})
		s.ExpectConnector(ctx, results)
		policy := func() *store.OutboundPolicy {
			GinkgoHelper()
			route, err := s.Store.Route(ctx, s.Key(results))
			Expect(err).NotTo(HaveOccurred())
			Expect(route.Links).To(HaveLen(1))
			return route.Links[0].Outbound
		}
		l := s.Link("one", "results", "hello")
		s.ExpectApplied(ctx, l)
		s.ExpectReconciled(ctx, s.r, l)
		Expect(v1alpha1.IsReady(l)).To(BeTrue())
		Expect(policy()).To(Equal(&store.OutboundPolicy{Mode: store.LinkAutomatic}), "results of all completed runs")

		l.Spec.Outbound = &v1alpha1.OutboundLink{
			SourceConnectors: []v1alpha1.ConnectorName{"ask", "later"}, Statuses: []v1alpha1.LinkStatus{v1alpha1.LinkCompleted, v1alpha1.LinkFailed},
		}
		s.ExpectApplied(ctx, l)
		Expect(s.ExpectReconciled(ctx, s.r, l).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(l)).To(HavePrefix("Ready=False/ReferenceMissing Reconciling"))
		Expect(Message(l)).To(ContainSubstring(`"later"`))
		Expect(policy().Statuses).To(BeEmpty(), "the last valid policy stays in effect")

		later := s.Connector("later")
		s.ExpectConnector(ctx, later)
		s.ExpectReconciled(ctx, s.r, l)
		Expect(v1alpha1.IsReady(l)).To(BeTrue(), Message(l))
		Expect(policy()).To(Equal(&store.OutboundPolicy{
			Mode: store.LinkAutomatic, SourceConnectorIDs: []uuid.UUID{s.Key(s.connector).ID, s.Key(later).ID},
			Statuses: []store.RunStatus{store.RunCompleted, store.RunFailed},
		}))
		s.ExpectAtRest(ctx, s.r, l)
	})

	It("gives its agent a tool with a unique name", func(ctx SpecContext) {
		s := newScene(ctx)
		sends := func(name string) *v1alpha1.Connector {
			return s.Connector(name, func(c *v1alpha1.Connector) {
				c.Spec.Mode, c.Spec.DisplayName, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, v1alpha1.DisplayName("The "+name), "https://example.com"
			})
		}
		one, two := sends("one"), sends("two")
		s.ExpectConnector(ctx, one)
		s.ExpectConnector(ctx, two)
		tool := func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool}
		}
		first, second := s.Link("first", "one", "hello", tool), s.Link("second", "two", "hello", tool)
		second.Spec.Outbound.ActionName = "send_to_the_one"
		s.ExpectApplied(ctx, first, second)
		s.ExpectReconciled(ctx, s.r, first)
		Expect(v1alpha1.IsReady(first)).To(BeTrue(), Message(first))
		Expect(s.ExpectReconciled(ctx, s.r, second).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(second)).To(Equal("Ready=False/ActionNameTaken Stalled observed"))
		Expect(Message(second)).To(ContainSubstring(s.Namespace + "/first"))
		tools := func() (names []string) {
			GinkgoHelper()
			key := s.Key(one)
			actions, err := s.Store.Actions(ctx, store.Key{ProjectID: key.ProjectID, ID: s.Key(s.environment).ID}, []string{"hello"})
			Expect(err).NotTo(HaveOccurred())
			for _, a := range actions {
				names = append(names, a.Name+" "+a.Connector)
			}
			return names
		}
		Expect(tools()).To(Equal([]string{"send_to_the_one The one"}))

		second.Spec.Outbound.ActionName = ""
		s.ExpectApplied(ctx, second)
		s.ExpectReconciled(ctx, s.r, second)
		Expect(v1alpha1.IsReady(second)).To(BeTrue(), Message(second))
		Expect(tools()).To(ConsistOf("send_to_the_one The one", "send_to_the_two The two"))
	})

	It("is stalled by the limit of outbound links per agent", func(ctx SpecContext) {
		s := newScene(ctx)
		results := s.Connector("results", func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com"
		})
		s.ExpectConnector(ctx, results)
		stored, err := s.Store.Connector(ctx, s.Key(results))
		Expect(err).NotTo(HaveOccurred())
		var first store.Link
		for i := range store.MaxOutboundLinks {
			c := s.Connector(fmt.Sprintf("c-%d", i))
			stored.Ref, stored.ID, stored.Name = s.Ref(c), s.Key(c).ID, c.Name
			Expect(s.Store.PutConnector(ctx, stored)).To(Succeed())
			other := s.Link(fmt.Sprintf("l-%d", i), c.Name, "hello")
			first = store.Link{
				Ref: s.Ref(other), ID: s.Key(other).ID, ProjectID: stored.ProjectID, ConnectorID: stored.ID, AgentName: "hello",
				Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic},
			}
			Expect(s.Store.PutLink(ctx, first)).To(Succeed())
		}
		link := s.Link("more", "results", "hello")
		s.ExpectApplied(ctx, link)
		Expect(s.ExpectReconciled(ctx, s.r, link).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(link)).To(Equal("Ready=False/LimitReached Stalled observed"))
		Expect(Message(link)).To(ContainSubstring("32 links to outbound connectors"))
		Expect(s.Store.Remove(ctx, stored.ProjectID, first.Ref)).To(Succeed())
		s.ExpectReconciled(ctx, s.r, link)
		Expect(v1alpha1.IsReady(link)).To(BeTrue(), Message(link))
	})

	It("rejects settings without an effect", func(ctx SpecContext) {
		s := newScene(ctx)
		results := s.Connector("results", func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com"
		})
		s.ExpectConnector(ctx, results)
		s.ExpectEnvironment(ctx, "prod")
		s.ExpectConnector(ctx, s.Connector("elsewhere", func(c *v1alpha1.Connector) { c.Spec.Environment = "prod" }))
		for field, l := range map[string]*v1alpha1.ConnectorLink{
			"spec.outbound": s.Link("one", "ask", "hello", func(l *v1alpha1.ConnectorLink) { l.Spec.Outbound = &v1alpha1.OutboundLink{} }),
			"runs come from inbound": s.Link("three", "results", "other", func(l *v1alpha1.ConnectorLink) {
				l.Spec.Outbound = &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"results"}}
			}),
			"same environment": s.Link("four", "results", "another", func(l *v1alpha1.ConnectorLink) {
				l.Spec.Outbound = &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"elsewhere"}}
			}),
			"spec.filesRequired": s.Link("two", "results", "hello", func(l *v1alpha1.ConnectorLink) { l.Spec.FilesRequired = true }),
		} {
			s.ExpectApplied(ctx, l)
			s.ExpectReconciled(ctx, s.r, l)
			Expect(State(l)).To(Equal("Ready=False/InvalidSpec Stalled observed"), field)
			Expect(Message(l)).To(ContainSubstring(field))
		}
		Expect(s.agents(ctx)).To(BeEmpty())
	})
})
