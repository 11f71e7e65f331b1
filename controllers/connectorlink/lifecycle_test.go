// SPDX-License-Identifier: Apache-2.0

package connectorlink_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("A ConnectorLink", func() {
	It("goes from created to ready when its dependencies exist", func(ctx SpecContext) {
		s := bare()
		link := s.Link("l", "ask", "hello")
		s.ExpectApplied(ctx, link)
		step := func(state string, wait time.Duration) {
			GinkgoHelper()
			Expect(s.ExpectReconciled(ctx, s.r, link).RequeueAfter).To(Equal(wait))
			Expect(State(link)).To(Equal(state))
		}
		step("Ready=False/ProjectMissing Reconciling", base.MaxRetryInterval)
		s.ExpectProject(ctx)
		step("Ready=False/ReferenceMissing Reconciling", base.MaxRetryInterval)
		Expect(link.Status.Condition(v1alpha1.ConditionReferencesResolved).Reason).To(Equal(v1alpha1.ReasonReferenceMissing))
		s.connector = s.Connector("ask")
		s.ExpectApplied(ctx, s.connector)
		step("Ready=Unknown/Progressing Reconciling", 2*time.Second)
		s.ExpectGone(ctx, s.connector)
		s.environment = s.ExpectEnvironment(ctx, "dev")
		s.connector = s.Connector("ask")
		s.ExpectConnector(ctx, s.connector)

		step("Ready=True/Succeeded observed", 0)
		Expect(Message(link)).To(ContainSubstring("runs wait until"))
		Expect(link.Status.Condition(v1alpha1.ConditionReferencesResolved).Status).To(BeEquivalentTo("Unknown"))
		Expect(link.Status.Environment).To(Equal("dev"))
		Expect(s.agents(ctx)).To(Equal([]string{"hello"}))

		s.ExpectLive(ctx, s.environment, "v1", "bye", "other")
		step("Ready=False/AgentUnknown Reconciling observed", 0)
		Expect(Message(link)).To(ContainSubstring("which has bye, other"))
		Expect(s.agents(ctx)).To(Equal([]string{"hello"}), "a later deployment may have it")
		s.ExpectLive(ctx, s.environment, "v2", "hello")
		step("Ready=True/Succeeded observed", 0)
		Expect(link.Status.IsTrue(v1alpha1.ConditionReferencesResolved)).To(BeTrue())

		By("writing nothing at rest")
		version := s.Store.Version(ctx)
		s.ExpectAtRest(ctx, s.r, link)
		Expect(s.Store.Version(ctx)).To(Equal(version))

		By("keeping its state while the store is unavailable")
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.r, link)
		Expect(State(link)).To(Equal("Ready=True/Succeeded Reconciling observed"))
		s.Store.ComeBack()

		By("losing its connector")
		s.ExpectGone(ctx, s.connector)
		step("Ready=False/ReferenceMissing Reconciling observed", base.MaxRetryInterval)
		Expect(link.Status.IsTrue(v1alpha1.ConditionReferencesResolved)).To(BeFalse())
	})

	It("reports the response of a sync webhook without a live deployment", func(ctx SpecContext) {
		s := newScene(ctx)
		c := s.Connector("wait")
		c.Spec.Mode = v1alpha1.ModeSync
		s.ExpectConnector(ctx, c)
		link := s.Link("l", "wait", "hello")
		s.ExpectApplied(ctx, link)
		s.ExpectReconciled(ctx, s.r, link)
		Expect(State(link)).To(Equal("Ready=True/Succeeded observed"))
		Expect(Message(link)).To(ContainSubstring("returns 409 no_live_deployment"))
		Expect(Message(link)).NotTo(ContainSubstring("runs wait"))
	})

	It("waits for the name of its connector, and works as soon as the connector does", func(ctx SpecContext) {
		s := newScene(ctx)
		s.ExpectLive(ctx, s.environment, "v1", "hello", "bye")
		link := s.Link("l", "ask", "hello")
		s.ExpectApplied(ctx, link)
		s.ExpectReconciled(ctx, s.r, link)
		Expect(State(link)).To(Equal("Ready=True/Succeeded observed"))
		put := func(c *v1alpha1.Connector, name string) error {
			key := s.Key(c)
			return s.Store.PutConnector(ctx, store.Connector{
				Ref: s.Ref(c), ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: s.Key(s.environment).ID, Name: name,
				Type: string(c.Type()), Mode: c.Spec.Mode.EnumValue(), Enabled: true, Config: []byte("{}"),
			})
		}
		other := s.Connector("other")
		s.ExpectApplied(ctx, other)
		Expect(put(other, "Orders")).To(Succeed())
		Expect(put(s.connector, "Orders")).To(BeAssignableToTypeOf(&store.DuplicateError{}))
		Expect(s.ExpectReconciled(ctx, s.r, link).RequeueAfter).To(BeNumerically(">", 0))
		Expect(State(link)).To(Equal("Ready=Unknown/Progressing Reconciling observed"))
		Expect(Message(link)).To(ContainSubstring(`Connector "ask" is not in effect`))
		version := s.Store.Version(ctx)
		s.ExpectAtRest(ctx, s.r, link)
		Expect(s.Store.Version(ctx)).To(Equal(version))

		By("linking to it meanwhile")
		second := s.Link("l2", "ask", "bye")
		s.ExpectApplied(ctx, second)
		s.ExpectReconciled(ctx, s.r, second)
		Expect(State(second)).To(Equal("Ready=Unknown/Progressing Reconciling"))
		Expect(second.Status.ID).NotTo(BeEmpty())
		Expect(put(s.connector, "Ask")).To(Succeed())
		Expect(s.agents(ctx)).To(ConsistOf("hello", "bye"))
		for _, l := range []*v1alpha1.ConnectorLink{link, second} {
			s.ExpectReconciled(ctx, s.r, l)
			Expect(State(l)).To(Equal("Ready=True/Succeeded observed"))
		}
	})

	It("is not linked to a connector whose ID another object holds", func(ctx SpecContext) {
		s := bare()
		s.ExpectProject(ctx)
		s.ExpectEnvironment(ctx, "dev")
		same := func(c *v1alpha1.Connector) { c.Spec.ID = "7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10" }
		s.connector = s.Connector("ask", same)
		s.ExpectConnector(ctx, s.connector)
		intruder := s.Connector("intruder", same)
		link := s.Link("l", "intruder", "hello")
		s.ExpectApplied(ctx, intruder, link)
		s.ExpectReconciled(ctx, s.r, link)
		Expect(State(link)).To(Equal("Ready=Unknown/Progressing Reconciling"))
		Expect(s.agents(ctx)).To(BeEmpty())
	})

	It("lists only some of many agents", func(ctx SpecContext) {
		s := newScene(ctx)
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprintf("agent-%02d", i))
		}
		s.ExpectLive(ctx, s.environment, "v1", names...)
		link := s.Link("l", "ask", "hello")
		s.ExpectApplied(ctx, link)
		s.ExpectReconciled(ctx, s.r, link)
		Expect(Message(link)).To(And(ContainSubstring("agent-09 and others"), Not(ContainSubstring("agent-10"))))
	})

	It("is stalled as a duplicate until the other link is deleted", func(ctx SpecContext) {
		s := newScene(ctx)
		first, second := s.Link("a", "ask", "hello"), s.Link("b", "ask", "hello")
		s.ExpectApplied(ctx, first, second)
		s.ExpectReconciled(ctx, s.r, first)
		Expect(s.ExpectReconciled(ctx, s.r, second).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(second)).To(Equal("Ready=False/DuplicateLink Stalled observed"))
		Expect(Message(second)).To(ContainSubstring(s.Namespace + "/a"))
		s.ExpectDeleted(ctx, s.r, first)
		Expect(s.agents(ctx)).To(BeEmpty())
		s.ExpectReconciled(ctx, s.r, second)
		Expect(State(second)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.agents(ctx)).To(Equal([]string{"hello"}))
	})

	It("is stalled by the limit of agents per event", func(ctx SpecContext) {
		s := newScene(ctx)
		key := s.Key(s.connector)
		for i := range store.MaxLinks {
			other := s.Link(fmt.Sprintf("l-%d", i), "ask", fmt.Sprintf("agent-%d", i))
			Expect(s.Store.PutLink(ctx, store.Link{
				Ref: s.Ref(other), ID: s.Key(other).ID, ProjectID: key.ProjectID, ConnectorID: key.ID, AgentName: string(other.Spec.Agent),
			})).To(Succeed())
		}
		link := s.Link("more", "ask", "hello")
		s.ExpectApplied(ctx, link)
		Expect(s.ExpectReconciled(ctx, s.r, link).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(link)).To(Equal("Ready=False/LimitReached Stalled observed"))
		Expect(s.agents(ctx)).To(HaveLen(store.MaxLinks))
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene(ctx)
			link := s.Link("l", "ask", "hello")
			s.ExpectApplied(ctx, link)
			s.ExpectSurvives(ctx, fault, s.r, link)
			Expect(v1alpha1.IsReady(link)).To(BeTrue())
		})
	}
})

func TestConnectorLink_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "connectorlink")
}

// scene is a project with the environment "dev", its connector "ask", and a reconciler of links.
type scene struct {
	*Fixture
	r           *connectorlink.Reconciler
	environment *v1alpha1.Environment
	connector   *v1alpha1.Connector
}

func bare() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &connectorlink.Reconciler{Base: f.Base, Store: f.Store}}
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := bare()
	s.ExpectProject(ctx)
	s.environment = s.ExpectEnvironment(ctx, "dev")
	s.connector = s.Connector("ask")
	s.ExpectConnector(ctx, s.connector)
	return s
}

// agents returns the agents that the gateway starts for an event of "ask".
func (s *scene) agents(ctx context.Context) []string {
	GinkgoHelper()
	route, err := s.Store.Route(ctx, s.Key(s.connector))
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, l := range route.Links {
		names = append(names, l.AgentName)
	}
	return names
}
