// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newConnector() *v1alpha1.Connector {
	return &v1alpha1.Connector{
		ObjectMeta: metav1.ObjectMeta{Name: "orders"},
		Spec: v1alpha1.ConnectorSpec{
			Environment: "production",
			Mode:        v1alpha1.ModeInbound,
			Webhook:     &v1alpha1.WebhookConnector{},
		},
	}
}

const (
	connectorNameMessage = "the name of a Connector must be at most 40 lower-case letters, digits and '-' " +
		"(<environment>.<file stem> for those of a deployment's code); spec.displayName takes any name"
	connectorIDMessage = "id is immutable: it can be given when the Connector is created, and neither set, changed nor removed later, " +
		"for the webhook URL derives from it"
	openMessage = "a webhook without authentication needs an explicit spec.id, a random UUID given when it is created: its URL is its only secret"
)

var connectorBreaches = []breach[*v1alpha1.Connector]{
	{
		name: "long name", message: connectorNameMessage,
		change: func(c *v1alpha1.Connector) { c.Name = strings.Repeat("a", 41) },
	}, {
		name: "name with two dots", message: connectorNameMessage,
		change: func(c *v1alpha1.Connector) { c.Name = "a.b.c" },
	}, {
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.ID = "orders" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.ID = derivedID },
	}, {
		name: "id set later", path: ".spec", update: true, message: connectorIDMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.ID = someID },
	}, {
		name: "environment that cannot be", path: ".spec.environment", message: environmentMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Environment = "-" },
	}, {
		name: "another environment", path: ".spec", update: true, message: "environment is immutable: create another Connector",
		change: func(c *v1alpha1.Connector) { c.Spec.Environment = "staging" },
	}, {
		name: "another mode", path: ".spec", update: true, message: "mode is immutable: create another Connector",
		change: func(c *v1alpha1.Connector) { c.Spec.Mode = v1alpha1.ModeSync },
	}, {
		name: "open webhook with a derived id", path: ".spec", message: openMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone },
	}, {
		name: "webhook with a derived id opened later", path: ".spec", update: true, message: openMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone },
	}, {
		name: "inbound with a time-out", path: ".spec",
		message: "timeoutSeconds is for sync webhooks: an inbound one answers at once",
		change:  func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = ptr.To(int32(5)) },
	}, {
		name: "secret that cannot be", path: ".spec.secretRef.name", message: nameMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "A"} },
	},
}

func TestConnectorRules(t *testing.T) {
	t.Parallel()
	refuse(t, newConnector, connectorBreaches)
}

func TestConnectorsThatAreFine(t *testing.T) {
	t.Parallel()
	accept(t, newConnector, []valid[*v1alpha1.Connector]{
		{name: "as it is", change: func(*v1alpha1.Connector) {}},
		{name: "of code", change: func(c *v1alpha1.Connector) { c.Name = strings.Repeat("a", 40) + "." + strings.Repeat("b", 40) }},
		{name: "sync", change: func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.TimeoutSeconds = v1alpha1.ModeSync, ptr.To(int32(900))
		}},
		{name: "open", change: func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.Authentication = someID, v1alpha1.AuthenticationNone
		}},
		{
			name: "opened later", before: func(c *v1alpha1.Connector) { c.Spec.ID = someID },
			change: func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone },
		},
		{name: "rotated at once", update: true, change: func(c *v1alpha1.Connector) {
			c.Spec.SecretVersion, c.Spec.SecretGracePeriodSeconds = 2, ptr.To(int32(0))
		}},
		{name: "disabled", update: true, change: func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }},
	})
}
