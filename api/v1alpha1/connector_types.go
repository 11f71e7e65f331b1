// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConnectorName is the name of a Connector: a DNS label of at most 40 characters, or
// `<environment>.<file stem>` for a connector in code.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=81
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)?$')",message="must be the name of a Connector, such as orders or production.orders"
type ConnectorName string

// Connector connects agents with other systems. An inbound or sync webhook, or the ticks of a
// schedule, start runs of the linked agents. An outbound webhook delivers results. ConnectorLinks
// select the agents.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=conn,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.id`
// +kubebuilder:selectablefield:JSONPath=`.spec.environment`
// +kubebuilder:selectablefield:JSONPath=`.spec.displayName`
// +kubebuilder:selectablefield:JSONPath=`.spec.mode`
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Environment",type=string,JSONPath=`.spec.environment`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Enabled",type=boolean,JSONPath=`.spec.enabled`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`,priority=1
// +kubebuilder:printcolumn:name="Delivering",type=string,JSONPath=`.status.conditions[?(@.type=="Delivering")].reason`,priority=1
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.cron.schedule`,priority=1
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 81 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?$')",message="the name of a Connector must be at most 40 lower-case letters, digits and '-' (<environment>.<file stem> for a Connector in code); spec.displayName takes any name"
type Connector struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the connector.
	//
	// +required
	Spec ConnectorSpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ConnectorStatus `json:"status,omitempty"`
}

// ConnectorMode is the direction of a connector.
//
// +kubebuilder:validation:Enum=Inbound;Sync;Outbound
type ConnectorMode string

// Modes of connectors.
const (
	// ModeInbound starts runs and returns their IDs immediately.
	ModeInbound ConnectorMode = "Inbound"
	// ModeSync starts runs and returns their results.
	ModeSync ConnectorMode = "Sync"
	// ModeOutbound sends the results of runs.
	ModeOutbound ConnectorMode = "Outbound"
)

// ConnectorModes are all modes.
var ConnectorModes = []ConnectorMode{ModeInbound, ModeSync, ModeOutbound}

// Sends reports whether the connector sends results.
func (c *Connector) Sends() bool { return c.Type() == ConnectorWebhook && c.Spec.Mode == ModeOutbound }

// ConnectorType is the type of a connector.
type ConnectorType string

// Types of connectors, as in the REST API and the store. Each is the name of the field of the spec with its settings.
const (
	// ConnectorWebhook receives events at a URL.
	ConnectorWebhook ConnectorType = "webhook"
	// ConnectorCron creates events on a schedule.
	ConnectorCron ConnectorType = "cron"
)

// ConnectorTypes are all types.
var ConnectorTypes = []ConnectorType{ConnectorWebhook, ConnectorCron}

// Type returns the type of the connector.
func (c *Connector) Type() ConnectorType {
	if c.Spec.Cron != nil {
		return ConnectorCron
	}
	return ConnectorWebhook
}

// pausedEffect returns the effect on events while the connector is not in effect.
func (c *Connector) pausedEffect() string {
	switch {
	case c.Type() == ConnectorCron:
		return "the schedule is paused"
	case c.Sends():
		return "nothing is sent"
	}
	return "webhooks are rejected"
}

// Defaults that depend on the mode, or that status methods apply.
const (
	// DefaultSecretGracePeriod is how long the old secrets stay valid after a rotation.
	DefaultSecretGracePeriod = 24 * time.Hour
)

// MaxSecretVersion is the highest version of a connector's generated secrets.
const MaxSecretVersion = 1_000_000

// ConnectorSpec is the desired state of a connector.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: set it when the Connector is created, because the webhook URL derives from it"
// +kubebuilder:validation:XValidation:rule="self.environment == oldSelf.environment",message="environment is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="has(self.webhook) != has(self.cron)",message="exactly one of webhook and cron must be set"
// +kubebuilder:validation:XValidation:rule="has(self.cron) == has(oldSelf.cron)",message="the type is immutable: create another Connector to change between webhook and cron"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || self.mode == 'Inbound'",message="a cron connector has the mode Inbound: remove mode"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || !has(self.secretRef) && self.secretVersion == 1 && self.secretGracePeriodSeconds == 86400",message="secretRef, secretVersion and secretGracePeriodSeconds are for webhooks: a cron connector has no secret"
// +kubebuilder:validation:XValidation:rule="self.?webhook.?authentication.orValue('Secret') != 'None' || has(self.id)",message="a webhook without authentication needs spec.id, a random UUID that is set when it is created, because its URL is its only secret"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Inbound' || !has(self.webhook) || !has(self.webhook.timeoutSeconds)",message="timeoutSeconds is for sync and outbound webhooks: an inbound one responds immediately"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Outbound' || self.?webhook.?timeoutSeconds.orValue(15) <= 60",message="timeoutSeconds of an outbound webhook must be at most 60"
// +kubebuilder:validation:XValidation:rule="(self.mode == 'Outbound') == (has(self.webhook) && has(self.webhook.url))",message="webhook.url is required for outbound webhooks and not allowed for others"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Outbound' || !has(self.headersSecretRef) && (!has(self.webhook) || !has(self.webhook.headers) && !has(self.webhook.sealedHeaders) && !has(self.webhook.retry))",message="headersSecretRef, webhook.headers, webhook.sealedHeaders and webhook.retry are for outbound webhooks"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Outbound' || self.?webhook.?authentication.orValue('Secret') == 'Secret' && !self.?webhook.?filesRequired.orValue(false) && !self.?webhook.?contextHeaders.hasValue()",message="authentication, filesRequired and contextHeaders are for inbound and sync webhooks"
// +kubebuilder:validation:XValidation:rule="(has(self.headersSecretRef) ? 1 : 0) + (self.?webhook.?headers.hasValue() ? 1 : 0) + (self.?webhook.?sealedHeaders.hasValue() ? 1 : 0) <= 1",message="set one of headersSecretRef, webhook.headers and webhook.sealedHeaders"
// +kubebuilder:validation:XValidation:rule="!self.?webhook.?sealedSecret.hasValue() || self.mode != 'Outbound' && !has(self.secretRef) && self.?webhook.?authentication.orValue('Secret') != 'None'",message="webhook.sealedSecret needs a webhook with authentication; set webhook.sealedSecret or secretRef, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.?webhook.?authentication.orValue('Secret') != 'None'",message="secretRef cannot be combined with the authentication None"
type ConnectorSpec struct {
	// ID is the connector's ID in the REST API and in its webhook URL. If it is not set, the ID
	// derives from the project's ID and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Environment is the name of the connector's Environment. It is immutable.
	//
	// +required
	Environment EnvironmentName `json:"environment"`

	// DisplayName is the connector's name for people. Default: the object's name.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Mode is Inbound (start runs and return their IDs immediately), Sync (start runs and return
	// their results) or Outbound (send the results of linked agents). A cron connector is Inbound.
	// It is immutable.
	//
	// +optional
	// +kubebuilder:default=Inbound
	Mode ConnectorMode `json:"mode,omitempty"`

	// Enabled turns the connector on or off. While it is false, its webhook returns 409 and its
	// schedule stops. Missed events are not made up for.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Webhook configures an HTTP webhook; {} uses all defaults. Exactly one of webhook and cron
	// must be set.
	//
	// +optional
	Webhook *WebhookConnector `json:"webhook,omitempty"`

	// Cron configures a schedule. Each tick starts a run of the linked agents.
	//
	// +optional
	Cron *CronConnector `json:"cron,omitempty"`

	// SecretVersion is the version of the connector's generated secrets. A higher number rotates
	// them. It cannot decrease: with a lower number the connector keeps its secrets and is Stalled.
	// While the connector has its own secret or authentication None, the version applies to the
	// secrets that are generated later.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	SecretVersion int32 `json:"secretVersion,omitempty"`

	// SecretGracePeriodSeconds is how long the old secrets stay valid after a rotation. A shorter
	// period ends them earlier, 0 immediately.
	//
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	SecretGracePeriodSeconds *int32 `json:"secretGracePeriodSeconds,omitempty"`

	// SecretRef names a Secret with your own secret instead of the generated one, under the key
	// `secret`; for an outbound webhook with the signing secret, under the key `signing_secret`.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// HeadersSecretRef names a Secret. Its keys and values are headers that an outbound webhook
	// sends.
	//
	// +optional
	HeadersSecretRef *SecretReference `json:"headersSecretRef,omitempty"`
}

// WebhookAuthentication is how a webhook authenticates callers.
//
// +kubebuilder:validation:Enum=Secret;None;GitHub;GitLab;Stripe;Slack;StandardWebhooks
type WebhookAuthentication string

// Ways to authenticate callers.
const (
	// AuthenticationSecret: a caller sends the connector's secret.
	AuthenticationSecret WebhookAuthentication = "Secret"
	// AuthenticationNone: any caller that has the URL can send events.
	AuthenticationNone WebhookAuthentication = "None"
	// AuthenticationGitHub: GitHub signs the body with the connector's secret.
	AuthenticationGitHub WebhookAuthentication = "GitHub"
	// AuthenticationGitLab: GitLab sends the connector's secret as its token.
	AuthenticationGitLab WebhookAuthentication = "GitLab"
	// AuthenticationStripe: Stripe signs the body with the connector's secret.
	AuthenticationStripe WebhookAuthentication = "Stripe"
	// AuthenticationSlack: Slack signs the body with the connector's secret.
	AuthenticationSlack WebhookAuthentication = "Slack"
	// AuthenticationStandardWebhooks: the sender signs according to Standard Webhooks.
	AuthenticationStandardWebhooks WebhookAuthentication = "StandardWebhooks"
)

// HeaderName is the name of a request header that runs may see.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9_-]*$')",message="must be the name of a header, such as X-GitHub-Event"
// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['authorization', 'proxy-authorization', 'cookie', 'x-service-secret', 'x-gitlab-token', 'x-api-key', 'x-auth-token', 'idempotency-key', 'x-hub-signature', 'x-hub-signature-256', 'stripe-signature', 'x-slack-signature', 'webhook-signature'])",message="must not be a header with a credential, a signature or an idempotency key: runs never see it"
type HeaderName string

// WebhookConnector is an HTTP webhook.
type WebhookConnector struct {
	// Authentication selects how a caller authenticates: Secret, with the connector's secret;
	// GitHub, GitLab, Stripe, Slack or StandardWebhooks, with that provider's signature; or None.
	//
	// +optional
	// +kubebuilder:default=Secret
	Authentication WebhookAuthentication `json:"authentication,omitempty"`

	// TimeoutSeconds limits how long a webhook of mode Sync waits for the result (default 300), or
	// how long an attempt of mode Outbound takes (default 15, at most 60).
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=900
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// FilesRequired fails the runs of an event without an attachment, or with an omitted one. A
	// ConnectorLink can require the same.
	//
	// +optional
	FilesRequired bool `json:"filesRequired,omitempty"`

	// ContextHeaders names request headers that the runs of an event see in context.headers, with
	// names in lower case. Values are cut after 1,024 bytes.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	ContextHeaders []HeaderName `json:"contextHeaders,omitempty"`

	// SealedSecret is your own secret instead of the generated one, sealed by the REST API. Only
	// the REST API can write it; manifests use secretRef.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12000
	SealedSecret string `json:"sealedSecret,omitempty"`

	// URL is the destination of a webhook of mode Outbound: https, or http in ranges that the
	// platform operator allows. Credentials belong in headers. In a connector in code it can name
	// variables of the environment, ${NAME}.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self.matches('^https?://[^/?#@[:space:]]+([/?][^[:space:]#]*)?$')",message="must be an http or https URL without credentials and fragment, such as https://example.com/results"
	URL string `json:"url,omitempty"`

	// Headers are the headers of an outbound webhook in code. Their values can name variables of
	// the environment, ${NAME}. They are readable here, so other Connectors use headersSecretRef.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && size(self[name]) <= 8192)",message="a header's name has at most 128 characters, its value 8192"
	Headers map[string]string `json:"headers,omitempty"`

	// SealedHeaders are headers with values that the REST API sealed. Only the REST API can write
	// them.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && size(self[name]) <= 12000)",message="a header's name has at most 128 characters"
	SealedHeaders map[string]string `json:"sealedHeaders,omitempty"`

	// Retry is the schedule of delivery attempts. Default: ten attempts in about three days.
	//
	// +optional
	Retry *DeliveryRetry `json:"retry,omitempty"`
}

// DeliveryRetry is the schedule of delivery attempts.
type DeliveryRetry struct {
	// MaxAttempts is the number of attempts. Default: the length of the schedule.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// ScheduleSeconds is the wait before each attempt. The first is 0, because the first attempt is
	// immediate. The last wait repeats. Default: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h,
	// 24 h. Each wait varies by up to a fifth.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=86400
	// +kubebuilder:validation:XValidation:rule="self[0] == 0",message="must begin with 0, because the first attempt is immediate"
	ScheduleSeconds []int32 `json:"scheduleSeconds,omitempty"`
}

// MissedTicks selects the treatment of ticks that no gateway could run in time.
//
// +kubebuilder:validation:Enum=Skip;Latest
type MissedTicks string

// Treatments of missed ticks.
const (
	// MissedTicksSkip skips them.
	MissedTicksSkip MissedTicks = "Skip"
	// MissedTicksLatest runs the newest of them once.
	MissedTicksLatest MissedTicks = "Latest"
)

// CronConnector is a schedule with the rules of a Kubernetes CronJob.
type CronConnector struct {
	// Schedule has five fields (minute, hour, day of the month, month, day of the week), or is one
	// of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly. In a connector in
	// code, it and timeZone, prompt and payload can name variables of the environment, ${NAME}.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[-0-9A-Za-z*,/?]+( +[-0-9A-Za-z*,/?]+){4})$')",message="must have five fields, such as \"0 6 * * 1-5\", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly; set the time zone in timeZone"
	Schedule string `json:"schedule"`

	// TimeZone is the IANA name of the schedule's time zone, such as Europe/Paris.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self != 'Local' && self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')",message="must be the IANA name of a time zone, such as Europe/Paris"
	TimeZone string `json:"timeZone,omitempty"`

	// MissedTicks selects the treatment of ticks that no gateway could run within five minutes:
	// Skip skips them, Latest runs the newest of them once.
	//
	// +optional
	// +kubebuilder:default=Skip
	MissedTicks MissedTicks `json:"missedTicks,omitempty"`

	// Prompt is the task for the agents.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Prompt string `json:"prompt,omitempty"`

	// Payload is additional input for the agents, any object. Prompt and payload have at most 64
	// KiB as JSON together.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Payload *runtime.RawExtension `json:"payload,omitempty"`
}

// ConnectorStatus is the observed state of a connector.
type ConnectorStatus struct {
	ObjectStatus `json:",inline"`

	// URL is the webhook's address. A cron connector has neither URL nor secret.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// DefinedInCode is true if the connector mirrors a file of the project's repository. Change
	// that file instead. A change of enabled is kept until the next activation.
	//
	// +optional
	DefinedInCode bool `json:"definedInCode,omitempty"`

	// Retired is true if the live deployment no longer has the file.
	//
	// +optional
	Retired bool `json:"retired,omitempty"`

	// SecretName is the name of the Secret with the connector's secrets, for pods to mount.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// SecretVersion is the version in effect of the generated secrets, even if the connector has
	// its own secret or none.
	//
	// +optional
	SecretVersion int32 `json:"secretVersion,omitempty"`
}

// ConnectorList is a list of Connectors.
//
// +kubebuilder:object:root=true
type ConnectorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Connector `json:"items"`
}
