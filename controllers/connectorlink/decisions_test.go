// SPDX-License-Identifier: Apache-2.0

package connectorlink

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

func link(namespace, name, connector string, mark func(*v1alpha1.ConnectorLink)) *v1alpha1.ConnectorLink {
	l := &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ConnectorLinkSpec{Connector: v1alpha1.ConnectorName(connector), Agent: "hello"},
	}
	mark(l)
	return l
}

func asIs(*v1alpha1.ConnectorLink) {}

// twins returns stalled links of the same connector, and of the same agent if the deleted link was a
// tool.
func TestTwins_FindStalledLinks(t *testing.T) {
	t.Parallel()
	duplicate := func(l *v1alpha1.ConnectorLink) { l.MarkDuplicate("x") }
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		link("team", "gone", "ask", duplicate), link("team", "twin", "ask", duplicate), link("team", "more", "ask", func(l *v1alpha1.ConnectorLink) { l.MarkTooMany(1) }),
		link("team", "fine", "ask", asIs), link("team", "elsewhere", "other", duplicate), link("other", "twin", "ask", duplicate),
	)}}
	require.ElementsMatch(t, []string{"twin", "more"}, controllertest.Names(r.waitingLinks(t.Context(), link("team", "gone", "ask", asIs))))
	tool := link("team", "gone", "ask", func(l *v1alpha1.ConnectorLink) {
		l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool}
	})
	require.ElementsMatch(t, []string{"twin", "more", "elsewhere"}, controllertest.Names(r.waitingLinks(t.Context(), tool)), "a tool's name is free")
	tool.Spec.Agent = "another"
	require.ElementsMatch(t, []string{"twin", "more"}, controllertest.Names(r.waitingLinks(t.Context(), tool)))
}

// linksOfEnvironment returns the links of all connectors of an environment.
func TestLinksOfEnvironment_FindsLinksOfAllConnectors(t *testing.T) {
	t.Parallel()
	connector := func(namespace, name, environment string) *v1alpha1.Connector {
		return &v1alpha1.Connector{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.ConnectorSpec{Environment: v1alpha1.EnvironmentName(environment)},
		}
	}
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		connector("team", "a", "dev"), connector("team", "b", "dev"), connector("team", "c", "prod"), connector("other", "a", "dev"),
		link("team", "a1", "a", asIs), link("team", "a2", "a", asIs), link("team", "b1", "b", asIs), link("team", "c1", "c", asIs), link("other", "a3", "a", asIs),
	)}}
	dev := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "dev"}}
	require.ElementsMatch(t, []string{"a1", "a2", "b1"}, controllertest.Names(r.linksOfEnvironment(t.Context(), dev)))
}

// Links are reconciled when the connector's state or name changes.
func TestIsInEffect_SelectsConnectorChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Connector)
		enqueued bool
	}{
		"its ID":                          {func(c *v1alpha1.Connector) { c.Status.ID = "b" }, true},
		"its name conflict":               {func(c *v1alpha1.Connector) { c.MarkNameTaken("x") }, true},
		"its display name":                {func(c *v1alpha1.Connector) { c.Spec.DisplayName = "b" }, true},
		"its routes condition, unchanged": {func(c *v1alpha1.Connector) { c.MarkRoutesReady() }, false},
		"its spec":                        {func(c *v1alpha1.Connector) { c.Generation++ }, false},
		"its secret":                      {func(c *v1alpha1.Connector) { c.MarkSecretReady("s", 2) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Connector{}
			before.Status.ID = "a"
			before.MarkRoutesReady()
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(connectorState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
}

// Links are reconciled when the live deployment changes, and not when the runners' state does, because
// there may be thousands of links.
func TestWhatRuns_SelectsEnvironmentChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Environment)
		enqueued bool
	}{
		"another is live":        {func(e *v1alpha1.Environment) { e.Status.LiveDeploymentID = "a" }, true},
		"its ID":                 {func(e *v1alpha1.Environment) { e.Status.ID = "a" }, true},
		"its runners":            {func(e *v1alpha1.Environment) { e.Status.Runner.ReadyReplicas = 3 }, false},
		"its spec":               {func(e *v1alpha1.Environment) { e.Generation++ }, false},
		"its progress condition": {func(e *v1alpha1.Environment) { e.MarkRunnersStarting(0, 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Environment{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(liveState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	changed := link("team", "l", "other", asIs)
	require.False(t, base.Changed(noFields).Update(event.UpdateEvent{ObjectOld: link("team", "l", "ask", asIs), ObjectNew: changed}))
	require.True(t, base.Changed(noFields).Delete(event.DeleteEvent{Object: changed}))
}

// scripts is a store with the agents whose middleware sends.
type scripts struct {
	Store
	sending map[string]bool
}

func (s scripts) SendsByMiddleware(_ context.Context, _ store.Key, agent string) (bool, error) {
	return s.sending[agent], nil
}

// Only a link in the mode Middleware waits for a script that sends.
func TestFindMiddleware_RequiresSendingScript(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  v1alpha1.LinkMode
		sends bool
		ready bool
	}{
		"middleware with a sending script":    {v1alpha1.LinkMiddleware, true, true},
		"middleware without a sending script": {v1alpha1.LinkMiddleware, false, false},
		"agent tool without a script":         {v1alpha1.LinkAgentTool, false, true},
		"automatic link without a script":     {v1alpha1.LinkAutomatic, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := link("team", "a", "crm", func(l *v1alpha1.ConnectorLink) { l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: c.mode} })
			r := &Reconciler{Store: scripts{sending: map[string]bool{"hello": c.sends}}}
			require.NoError(t, r.findMiddleware(t.Context(), l, store.Key{}))
			require.Equal(t, c.ready, v1alpha1.IsReady(l))
			if !c.ready {
				require.Equal(t, v1alpha1.ReasonMiddlewareMissing, l.Status.Condition(v1alpha1.ConditionReady).Reason)
			}
		})
	}
}
