// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

func outbound(c *v1alpha1.Connector) {
	c.Spec.Mode = v1alpha1.ModeOutbound
	c.Spec.Webhook = &v1alpha1.WebhookConnector{URL: "https://crm.example.com/results"}
}

func cron(c *v1alpha1.Connector) {
	c.Spec.Webhook = nil
	c.Spec.Cron = &v1alpha1.CronConnector{Schedule: "0 9 * * 1-5"}
}

const (
	connectorNameMessage = "the name of a Connector must be at most 40 lower-case letters, digits and '-' " +
		"(<environment>.<file stem> for those of a deployment's code); spec.displayName takes any name"
	connectorIDMessage = "id is immutable: it can be given when the Connector is created, and neither set, changed nor removed later, " +
		"for the webhook URL derives from it"
	typeMessage         = "the type is immutable: a webhook cannot become a cron or the other way round; create another Connector"
	exactlyOneMessage   = "a Connector must have exactly one of webhook and cron"
	openMessage         = "a webhook without authentication needs an explicit spec.id, a random UUID given when it is created: its URL is its only secret"
	outboundOnlyMessage = "url, retry, bridge and headersSecretRef are for outbound webhooks"
	inboundOnlyMessage  = "requireAuthentication and filesRequired are for inbound and sync webhooks"
	scheduleMessage     = "must be a cron expression of five fields, such as `0 9 * * 1-5`, or a word such as @hourly"
	zoneMessage         = "must be the IANA name of a time zone, such as Europe/Berlin or UTC"
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
		name: "another type", path: ".spec", update: true, message: typeMessage, change: cron,
	}, {
		name: "no type", path: ".spec", message: exactlyOneMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook = nil },
	}, {
		name: "two types", path: ".spec", message: exactlyOneMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron = &v1alpha1.CronConnector{Schedule: "@hourly"} },
	}, {
		name: "cron that answers", path: ".spec", message: "a cron must have mode inbound: it starts runs",
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.Mode = v1alpha1.ModeSync },
	}, {
		name: "open webhook with a derived id", path: ".spec", message: openMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.RequireAuthentication = ptr.To(false) },
	}, {
		name: "webhook with a derived id opened later", path: ".spec", update: true, message: openMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.RequireAuthentication = ptr.To(false) },
	}, {
		name: "outbound to nowhere", path: ".spec", message: "an outbound webhook needs webhook.url, the address to send to",
		change: func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.URL = "" },
	}, {
		name: "inbound with url", path: ".spec", message: outboundOnlyMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "https://crm.example.com" },
	}, {
		name: "sync with retry", path: ".spec", message: outboundOnlyMessage,
		change: func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.Retry = v1alpha1.ModeSync, &v1alpha1.WebhookRetry{MaxAttempts: ptr.To(int32(2))}
		},
	}, {
		name: "inbound with bridge", path: ".spec", message: outboundOnlyMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.Bridge = "office" },
	}, {
		name: "inbound with headers", path: ".spec", message: outboundOnlyMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "headers"} },
	}, {
		name: "outbound that requires authentication", path: ".spec", message: inboundOnlyMessage,
		change: func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.RequireAuthentication = ptr.To(true) },
	}, {
		name: "outbound that requires files", path: ".spec", message: inboundOnlyMessage,
		change: func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.FilesRequired = ptr.To(true) },
	}, {
		name: "inbound with a time-out", path: ".spec",
		message: "timeoutSeconds is for sync and outbound webhooks: an inbound one answers at once",
		change:  func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = ptr.To(int32(5)) },
	}, {
		name: "cron with a secret", path: ".spec", message: "secretRef and headersSecretRef are for webhooks",
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "secret"} },
	}, {
		name: "schedule of six fields", path: ".spec.cron.schedule", message: scheduleMessage,
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.Cron.Schedule = "0 0 9 * * 1-5" },
	}, {
		name: "schedule with a time zone", path: ".spec.cron.schedule", message: scheduleMessage,
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.Cron.Schedule = "TZ=UTC 0 9 * *" },
	}, {
		name: "zone of the machine", path: ".spec.cron.timezone", message: zoneMessage,
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.Cron.Timezone = "Local" },
	}, {
		name: "zone out of the folder", path: ".spec.cron.timezone", message: zoneMessage,
		change: func(c *v1alpha1.Connector) { cron(c); c.Spec.Cron.Timezone = "Europe/../../etc" },
	}, {
		name: "secret that cannot be", path: ".spec.secretRef.name", message: nameMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "A"} },
	}, {
		name: "headers that cannot be", path: ".spec.headersSecretRef.name", message: nameMessage,
		change: func(c *v1alpha1.Connector) {
			outbound(c)
			c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "A"}
		},
	}, {
		name: "grace that is no duration", path: ".spec.secretGracePeriod", message: "must be a duration such as 0s, 90s, 5m or 24h",
		change: func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriod = seconds(-1) },
	}, {
		name: "long grace", path: ".spec.secretGracePeriod", message: "secretGracePeriod must be at most 8760h (a year)",
		change: func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriod = seconds(366 * 24 * 3600) },
	}, {
		name: "bridge that cannot be", path: ".spec.webhook.bridge",
		message: "must be the name of a bridge: lower-case letters, digits and '-'",
		change:  func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.Bridge = "the office" },
	}, {
		name: "URL of another kind", path: ".spec.webhook.url", message: "must be an https:// or http:// URL",
		change: func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.URL = "ftp://crm.example.com" },
	}, {
		name: "URL with a password", path: ".spec.webhook.url",
		message: "must not hold credentials: send them as a header by headersSecretRef",
		change:  func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.URL = "https://me:secret@crm.example.com" },
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
		{name: "outbound", change: outbound},
		{name: "outbound with all", change: func(c *v1alpha1.Connector) {
			outbound(c)
			c.Spec.Webhook.URL = "https://${CRM_HOST}/results?to=a@b"
			c.Spec.Webhook.Retry = &v1alpha1.WebhookRetry{MaxAttempts: ptr.To(int32(3)), ScheduleSeconds: []int32{0, 5}}
			c.Spec.Webhook.Bridge, c.Spec.Webhook.TimeoutSeconds = "office", ptr.To(int32(15))
			c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "crm-headers"}
		}},
		{name: "URL in a variable", change: func(c *v1alpha1.Connector) { outbound(c); c.Spec.Webhook.URL = "${CRM_URL}/results" }},
		{name: "cron", change: cron},
		{name: "cron in words", change: func(c *v1alpha1.Connector) {
			cron(c)
			c.Spec.Cron.Schedule, c.Spec.Cron.Timezone = "@daily", "America/Argentina/Buenos_Aires"
			c.Spec.Cron.Payload = &runtime.RawExtension{Raw: []byte(`{"report":{"days":7}}`)}
		}},
		{name: "open", change: func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.RequireAuthentication = someID, ptr.To(false)
		}},
		{
			name: "opened later", before: func(c *v1alpha1.Connector) { c.Spec.ID = someID },
			change: func(c *v1alpha1.Connector) { c.Spec.Webhook.RequireAuthentication = ptr.To(false) },
		},
		{name: "rotated at once", update: true, change: func(c *v1alpha1.Connector) {
			c.Spec.SecretVersion, c.Spec.SecretGracePeriod = 2, seconds(0)
		}},
		{name: "disabled", update: true, change: func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }},
	})
}
