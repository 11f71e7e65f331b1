// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newLink() *v1alpha1.ConnectorLink {
	return &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-greeter"},
		Spec:       v1alpha1.ConnectorLinkSpec{Connector: "orders", Agent: "greeter"},
	}
}

var linkBreaches = []breach[*v1alpha1.ConnectorLink]{
	{
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.ID = "one" },
	}, {
		name: "id set later", path: ".spec", update: true,
		message: "id is immutable: it can be given when the ConnectorLink is created, and neither set, changed nor removed later",
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
		name: "another agent", path: ".spec", update: true, message: "agent is immutable: create another ConnectorLink",
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Agent = "farewell" },
	}, {
		name: "both directions", path: ".spec",
		message: "filesRequired is for links of inbound and sync connectors, outbound for those of outbound connectors: set one of them",
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.FilesRequired, l.Spec.Outbound = ptr.To(true), &v1alpha1.OutboundLink{}
		},
	}, {
		name: "automatic with an action", path: ".spec.outbound", message: "actionName is for the modes agent_tool and middleware",
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Outbound = &v1alpha1.OutboundLink{ActionName: "send"} },
	}, {
		name: "action that cannot be", path: ".spec.outbound.actionName",
		message: "must be letters, digits, '_' and '-', beginning with a letter or '_'",
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.OutboundAgentTool, ActionName: "send it"}
		},
	}, {
		name: "tool with a filter", path: ".spec.outbound", message: "sourceConnectors and statuses are for the mode automatic",
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.OutboundAgentTool, Statuses: []v1alpha1.RunOutcome{v1alpha1.RunFailed}}
		},
	}, {
		name: "source that cannot be", path: ".spec.outbound.sourceConnectors[]", message: connectorMessage,
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"a.b.c"}}
		},
	},
}

func TestConnectorLinkRules(t *testing.T) {
	t.Parallel()
	refuse(t, newLink, linkBreaches)
}

func TestConnectorLinksThatAreFine(t *testing.T) {
	t.Parallel()
	accept(t, newLink, []valid[*v1alpha1.ConnectorLink]{
		{name: "as it is", change: func(*v1alpha1.ConnectorLink) {}},
		{name: "to a connector of code", change: func(l *v1alpha1.ConnectorLink) { l.Spec.Connector = "production.orders" }},
		{name: "files", update: true, change: func(l *v1alpha1.ConnectorLink) { l.Spec.FilesRequired = ptr.To(false) }},
		{name: "tool", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{Mode: v1alpha1.OutboundAgentTool, ActionName: "send_to_crm"}
		}},
		{name: "automatic with a filter", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{
				SourceConnectors: named[v1alpha1.ConnectorName](64),
				Statuses:         []v1alpha1.RunOutcome{v1alpha1.RunCompleted, v1alpha1.RunFailed, v1alpha1.RunCancelled},
			}
		}},
	})
}
