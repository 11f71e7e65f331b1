// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newLink() *v1alpha1.ConnectorLink {
	return &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-greeter"},
		Spec:       v1alpha1.ConnectorLinkSpec{Connector: "orders", Agent: "greeter"},
	}
}

func newOutboundLink() *v1alpha1.ConnectorLink {
	l := newLink()
	l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAutomatic, Statuses: []v1alpha1.LinkStatus{v1alpha1.LinkCompleted}}
	return l
}

func newToolLink() *v1alpha1.ConnectorLink {
	l := newLink()
	l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: "tell"}
	return l
}

const automaticMessage = "sourceConnectors and statuses are for the mode Automatic: in other modes the agent or its middleware chooses the payload"

var linkBreaches = []breach[*v1alpha1.ConnectorLink]{
	{
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.ID = "one" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.ID = derivedID },
	}, {
		name: "id set later", path: ".spec", update: true,
		message: "id is immutable: set it when the ConnectorLink is created",
		change:  func(l *v1alpha1.ConnectorLink) { l.Spec.ID = someID },
	}, {
		name: "connector that cannot be", path: ".spec.connector", message: connectorMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Connector = "Orders" },
	}, {
		name: "another connector", path: ".spec", update: true, message: "connector is immutable: create another ConnectorLink",
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Connector = "returns" },
	}, {
		name: "agent that cannot be", path: ".spec.agent", message: agentMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Agent = "the greeter" },
	}, {
		name: "a source that cannot be", path: ".spec.outbound.sourceConnectors[]", message: connectorMessage,
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"Orders"}}
		},
	}, {
		name: "a name without a tool", path: ".spec.outbound", message: "actionName is for the mode AgentTool: other modes have no tool",
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAutomatic, ActionName: "tell"}
		},
	}, {
		name: "a name that no tool can have", path: ".spec.outbound.actionName", message: "must consist of letters, digits, underscores and dashes, and begin with a letter or an underscore, as model services require",
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: "tell me"}
		},
	}, {
		name: "results by a tool", path: ".spec.outbound", message: automaticMessage,
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, Statuses: []v1alpha1.LinkStatus{v1alpha1.LinkFailed}}
		},
	}, {
		name: "sources of a tool", path: ".spec.outbound", message: automaticMessage,
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, SourceConnectors: []v1alpha1.ConnectorName{"orders"}}
		},
	}, {
		name: "another agent", path: ".spec", update: true, message: "agent is immutable: create another ConnectorLink",
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Agent = "farewell" },
	},
}

func TestConnectorLink_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newLink, linkBreaches)
}

func TestConnectorLink_AcceptsValid(t *testing.T) {
	t.Parallel()
	accept(t, newLink, []valid[*v1alpha1.ConnectorLink]{
		{name: "as it is", change: func(*v1alpha1.ConnectorLink) {}},
		{name: "with results", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{
				SourceConnectors: []v1alpha1.ConnectorName{"orders", "production.returns"},
				Statuses:         []v1alpha1.LinkStatus{v1alpha1.LinkCompleted, v1alpha1.LinkFailed, v1alpha1.LinkCancelled, v1alpha1.LinkDeliveryFailed},
			}
		}},
		{name: "with a tool", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool}
		}},
		{name: "with a tool of a name", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: v1alpha1.ActionName("_Tell-" + strings.Repeat("9", 58))}
		}},
		{name: "to a connector of code", change: func(l *v1alpha1.ConnectorLink) { l.Spec.Connector = "production.orders" }},
	})
}
