// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
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

var linkBreaches = []breach[*v1alpha1.ConnectorLink]{
	{
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.ID = "one" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.ID = derivedID },
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
		name: "a source that cannot be", path: ".spec.outbound.sourceConnectors[]", message: connectorMessage,
		change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"Orders"}}
		},
	}, {
		name: "another agent", path: ".spec", update: true, message: "agent is immutable: create another ConnectorLink",
		change: func(l *v1alpha1.ConnectorLink) { l.Spec.Agent = "farewell" },
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
		{name: "with results", change: func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{
				SourceConnectors: []v1alpha1.ConnectorName{"orders", "production.returns"},
				Statuses:         []v1alpha1.LinkStatus{v1alpha1.LinkCompleted, v1alpha1.LinkFailed, v1alpha1.LinkCancelled},
			}
		}},
		{name: "to a connector of code", change: func(l *v1alpha1.ConnectorLink) { l.Spec.Connector = "production.orders" }},
	})
}
