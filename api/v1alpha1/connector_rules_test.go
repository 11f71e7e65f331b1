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

func newCronConnector() *v1alpha1.Connector {
	c := newConnector()
	c.Spec.Webhook, c.Spec.Cron = nil, &v1alpha1.CronConnector{Schedule: "0 6 * * 1-5"}
	return c
}

const (
	connectorNameMessage = "the name of a Connector must be at most 40 lower-case letters, digits and '-' " +
		"(<environment>.<file stem> for a Connector in code); spec.displayName takes any name"
	connectorIDMessage = "id is immutable: set it when the Connector is created, " +
		"because the webhook URL derives from it"
	openMessage = "a webhook without authentication needs spec.id, a random UUID that is set when it is created, because its URL is its only secret"
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
		message: "timeoutSeconds is for sync and outbound webhooks: an inbound one responds immediately",
		change:  func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = ptr.To(int32(5)) },
	}, {
		name: "a header that is none", path: ".spec.webhook.contextHeaders[]", message: "must be the name of a header, such as X-GitHub-Event",
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.ContextHeaders = []v1alpha1.HeaderName{"a b"} },
	}, {
		name: "a header with a credential", path: ".spec.webhook.contextHeaders[]",
		message: "must not be a header with a credential, a signature or an idempotency key: runs never see it",
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.ContextHeaders = []v1alpha1.HeaderName{"X-GitHub-Event", "Authorization"}
		},
	}, {
		name: "secrets of two kinds", path: ".spec",
		message: "webhook.sealedSecret needs a webhook with authentication; set webhook.sealedSecret or secretRef, not both",
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.SealedSecret, c.Spec.SecretRef = "c2VhbGVk", &v1alpha1.SecretReference{Name: "own"}
		},
	}, {
		name: "a sealed secret without authentication", path: ".spec",
		message: "webhook.sealedSecret needs a webhook with authentication; set webhook.sealedSecret or secretRef, not both",
		change: func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.SealedSecret, c.Spec.Webhook.Authentication = someID, "c2VhbGVk", v1alpha1.AuthenticationNone
		},
	}, {
		name: "a secret without authentication", path: ".spec",
		message: "secretRef cannot be combined with the authentication None",
		change: func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.SecretRef, c.Spec.Webhook.Authentication = someID, &v1alpha1.SecretReference{Name: "own"}, v1alpha1.AuthenticationNone
		},
	}, {
		name: "secret that cannot be", path: ".spec.secretRef.name", message: nameMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "A"} },
	},
}

const (
	scheduleMessage = "must have five fields, such as \"0 6 * * 1-5\", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly; " +
		"set the time zone in timeZone"
	oneTypeMessage = "exactly one of webhook and cron must be set"
	typeMessage    = "the type is immutable: create another Connector to change between webhook and cron"
	noSecret       = "secretRef, secretVersion and secretGracePeriodSeconds are for webhooks: a cron connector has no secret"
)

var cronBreaches = []breach[*v1alpha1.Connector]{
	{
		name: "a webhook too", path: ".spec", message: oneTypeMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook = &v1alpha1.WebhookConnector{} },
	}, {
		name: "neither", path: ".spec", message: oneTypeMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron = nil },
	}, {
		name: "a webhook later", path: ".spec", update: true, message: typeMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron, c.Spec.Webhook = nil, &v1alpha1.WebhookConnector{} },
	}, {
		name: "sync", path: ".spec", message: "a cron connector has the mode Inbound: remove mode",
		change: func(c *v1alpha1.Connector) { c.Spec.Mode = v1alpha1.ModeSync },
	}, {
		name: "a secret", path: ".spec", message: noSecret,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"} },
	}, {
		name: "another secret", path: ".spec", update: true, message: noSecret,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 2 },
	}, {
		name: "a secret that ends", path: ".spec", message: noSecret,
		change: func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriodSeconds = ptr.To(int32(5)) },
	}, {
		name: "six fields", path: ".spec.cron.schedule", message: scheduleMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron.Schedule = "0 0 6 * * 1" },
	}, {
		name: "a zone in the schedule", path: ".spec.cron.schedule", message: scheduleMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron.Schedule = "TZ=UTC 0 6 * *" },
	}, {
		name: "a word that is none", path: ".spec.cron.schedule", message: scheduleMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Cron.Schedule = "@reboot" },
	}, {
		name: "a zone of a machine", path: ".spec.cron.timeZone", message: "must be the IANA name of a time zone, such as Europe/Paris",
		change: func(c *v1alpha1.Connector) { c.Spec.Cron.TimeZone = "Local" },
	}, {
		name: "a zone that is a path", path: ".spec.cron.timeZone", message: "must be the IANA name of a time zone, such as Europe/Paris",
		change: func(c *v1alpha1.Connector) { c.Spec.Cron.TimeZone = "../etc" },
	},
}

func newOutboundConnector() *v1alpha1.Connector {
	c := newConnector()
	c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com/results?team=a"
	return c
}

const (
	outboundURLMessage  = "webhook.url is required for outbound webhooks and not allowed for others"
	urlMessage          = "must be an http or https URL without credentials and fragment, such as https://example.com/results"
	onlyOutboundMessage = "headersSecretRef, webhook.headers, webhook.sealedHeaders and webhook.retry are for outbound webhooks"
)

// inboundBreaches are what only outbound webhooks may ask for.
var inboundBreaches = []breach[*v1alpha1.Connector]{
	{
		name: "a url", path: ".spec", message: outboundURLMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "https://example.com" },
	}, {
		name: "headers", path: ".spec", message: onlyOutboundMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "headers"} },
	}, {
		name: "sealed headers", path: ".spec", message: onlyOutboundMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.SealedHeaders = map[string]string{"X-Key": "c2VhbGVk"} },
	}, {
		name: "headers of the code", path: ".spec", message: onlyOutboundMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.Headers = map[string]string{"X-Key": "a"} },
	}, {
		name: "a retry", path: ".spec", message: onlyOutboundMessage,
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.Retry = &v1alpha1.DeliveryRetry{MaxAttempts: ptr.To(int32(1))}
		},
	},
}

const oneKindOfHeadersMessage = "set one of headersSecretRef, webhook.headers and webhook.sealedHeaders"

var outboundBreaches = []breach[*v1alpha1.Connector]{
	{
		name: "headers of a Secret that cannot be", path: ".spec.headersSecretRef.name", message: nameMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "A"} },
	}, {
		name: "no url", path: ".spec", message: outboundURLMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "" },
	}, {
		name: "a url with a password", path: ".spec.webhook.url", message: urlMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "https://a:b@example.com/" },
	}, {
		name: "another scheme", path: ".spec.webhook.url", message: urlMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "ftp://example.com/" },
	}, {
		name: "a fragment", path: ".spec.webhook.url", message: urlMessage,
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.URL = "https://example.com/#a" },
	}, {
		name: "a wait before the first attempt", path: ".spec.webhook.retry.scheduleSeconds", message: "must begin with 0, because the first attempt is immediate",
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.Retry = &v1alpha1.DeliveryRetry{ScheduleSeconds: []int32{5, 10}}
		},
	}, {
		name: "too long a time", path: ".spec", message: "timeoutSeconds of an outbound webhook must be at most 60",
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = ptr.To(int32(61)) },
	}, {
		name: "authentication", path: ".spec", message: "authentication, filesRequired and contextHeaders are for inbound and sync webhooks",
		change: func(c *v1alpha1.Connector) {
			c.Spec.ID, c.Spec.Webhook.Authentication = someID, v1alpha1.AuthenticationNone
		},
	}, {
		name: "files", path: ".spec", message: "authentication, filesRequired and contextHeaders are for inbound and sync webhooks",
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.FilesRequired = true },
	}, {
		name: "context headers", path: ".spec", message: "authentication, filesRequired and contextHeaders are for inbound and sync webhooks",
		change: func(c *v1alpha1.Connector) { c.Spec.Webhook.ContextHeaders = []v1alpha1.HeaderName{"X-GitHub-Event"} },
	}, {
		name: "headers of two kinds", path: ".spec", message: oneKindOfHeadersMessage,
		change: func(c *v1alpha1.Connector) {
			c.Spec.HeadersSecretRef, c.Spec.Webhook.SealedHeaders = &v1alpha1.SecretReference{Name: "headers"}, map[string]string{"X-Key": "c2VhbGVk"}
		},
	}, {
		name: "headers of the code and of a Secret", path: ".spec", message: oneKindOfHeadersMessage,
		change: func(c *v1alpha1.Connector) {
			c.Spec.HeadersSecretRef, c.Spec.Webhook.Headers = &v1alpha1.SecretReference{Name: "headers"}, map[string]string{"X-Key": "${KEY}"}
		},
	}, {
		name: "headers of the code and of the REST API", path: ".spec", message: oneKindOfHeadersMessage,
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.SealedHeaders, c.Spec.Webhook.Headers = map[string]string{"X-Key": "c2VhbGVk"}, map[string]string{"X-Key": "${KEY}"}
		},
	}, {
		name: "a header of the code that is too long", path: ".spec.webhook.headers", message: "a header's name has at most 128 characters, its value 8192",
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.Headers = map[string]string{"X-Key": strings.Repeat("a", 8193)}
		},
	}, {
		name: "a header of a long name", path: ".spec.webhook.sealedHeaders", message: "a header's name has at most 128 characters",
		change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.SealedHeaders = map[string]string{strings.Repeat("a", 129): "c2VhbGVk"}
		},
	},
}

func TestConnector_AcceptsValidOutbound(t *testing.T) {
	t.Parallel()
	accept(t, newOutboundConnector, []valid[*v1alpha1.Connector]{
		{name: "as it is", change: func(*v1alpha1.Connector) {}},
		{name: "all of it", change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook = &v1alpha1.WebhookConnector{
				URL: "http://10.0.0.1:8080", TimeoutSeconds: ptr.To(int32(60)), SealedHeaders: map[string]string{"X-Key": "c2VhbGVk"},
				Retry: &v1alpha1.DeliveryRetry{MaxAttempts: ptr.To(int32(20)), ScheduleSeconds: []int32{0, 86400}},
			}
			c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"}
		}},
		{name: "of the code", change: func(c *v1alpha1.Connector) {
			c.Spec.Webhook.URL, c.Spec.Webhook.Headers = "${ERP_URL}", map[string]string{"Authorization": "Bearer ${ERP_TOKEN}"}
		}},
		{name: "headers of a Secret", change: func(c *v1alpha1.Connector) {
			c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "headers"}
		}},
		{name: "rotated", update: true, change: func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 2 }},
	})
}

func TestConnector_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newConnector, connectorBreaches)
	refuse(t, newConnector, inboundBreaches)
	refuse(t, newCronConnector, cronBreaches)
	refuse(t, newOutboundConnector, outboundBreaches)
}

func TestConnector_AcceptsValidCron(t *testing.T) {
	t.Parallel()
	accept(t, newCronConnector, []valid[*v1alpha1.Connector]{
		{name: "as it is", change: func(*v1alpha1.Connector) {}},
		{name: "without a mode", change: func(c *v1alpha1.Connector) { c.Spec.Mode = "" }},
		{name: "all of it", change: func(c *v1alpha1.Connector) {
			c.Spec.Cron = &v1alpha1.CronConnector{
				Schedule: "@hourly", TimeZone: "America/Argentina/Buenos_Aires", MissedTicks: v1alpha1.MissedTicksLatest, Prompt: "Go",
				Payload: &runtime.RawExtension{Raw: []byte(`{"a":[1,{"b":null}]}`)},
			}
		}},
		{name: "another schedule", update: true, change: func(c *v1alpha1.Connector) { c.Spec.Cron.Schedule = "*/5 0-6,12 1 JAN-MAR ?" }},
		{name: "disabled", update: true, change: func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }},
	})
}

func TestConnector_AcceptsValid(t *testing.T) {
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
