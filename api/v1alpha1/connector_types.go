// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConnectorName is the name of a Connector: a DNS label of at most 40, or
// `<environment>.<file stem>` for one that a deployment's code defines.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=81
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)?$')",message="must be the name of a Connector, such as orders or production.orders"
type ConnectorName string

// Connector connects agents to the outside world: an inbound or sync webhook, or
// the ticks of a schedule, start runs of the linked agents. ConnectorLinks tie it
// to agents.
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
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 81 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?$')",message="the name of a Connector must be at most 40 lower-case letters, digits and '-' (<environment>.<file stem> for those of a deployment's code); spec.displayName takes any name"
type Connector struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the connector is asked to be.
	//
	// +required
	Spec ConnectorSpec `json:"spec"`

	// Status is what the controllers have found and done.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ConnectorStatus `json:"status,omitempty"`
}

// ConnectorMode says in which direction a connector works.
//
// +kubebuilder:validation:Enum=Inbound;Sync;Outbound
type ConnectorMode string

// Modes of connectors.
const (
	// ModeInbound starts runs and answers with their ids at once.
	ModeInbound ConnectorMode = "Inbound"
	// ModeSync starts runs and answers with their result.
	ModeSync ConnectorMode = "Sync"
	// ModeOutbound sends the results of runs.
	ModeOutbound ConnectorMode = "Outbound"
)

// ConnectorType is what a connector is.
type ConnectorType string

// Types of connectors, as the REST API and the store write them.
const (
	// ConnectorWebhook takes events at a URL.
	ConnectorWebhook ConnectorType = "webhook"
	// ConnectorCron makes events by a schedule.
	ConnectorCron ConnectorType = "cron"
)

// Defaults of connectors that depend on the mode, or that a status method fills.
const (
	// DefaultSyncTimeout is how long a sync webhook waits for the result.
	DefaultSyncTimeout = 5 * time.Minute
	// DefaultOutboundTimeout is how long an attempt of an outbound webhook may take.
	DefaultOutboundTimeout = 15 * time.Second
	// DefaultSecretGracePeriod is how long the secrets before a rotation stay
	// valid.
	DefaultSecretGracePeriod = 24 * time.Hour
)

// MaxSecretVersion is the last version of a connector's generated secrets.
const MaxSecretVersion = 1_000_000

// ConnectorSpec is what a connector is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the Connector is created, and neither set, changed nor removed later, for the webhook URL derives from it"
// +kubebuilder:validation:XValidation:rule="self.environment == oldSelf.environment",message="environment is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="has(self.webhook) != has(self.cron)",message="exactly one of webhook and cron must be set"
// +kubebuilder:validation:XValidation:rule="has(self.cron) == has(oldSelf.cron)",message="the type is immutable: create another Connector for cron in place of webhook, or the other way round"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || self.mode == 'Inbound'",message="a cron connector has the mode Inbound: leave mode out"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || !has(self.secretRef) && self.secretVersion == 1 && self.secretGracePeriodSeconds == 86400",message="secretRef, secretVersion and secretGracePeriodSeconds are for webhooks: a cron connector has no secret"
// +kubebuilder:validation:XValidation:rule="self.?webhook.?authentication.orValue('Secret') != 'None' || has(self.id)",message="a webhook without authentication needs an explicit spec.id, a random UUID given when it is created: its URL is its only secret"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Inbound' || !has(self.webhook) || !has(self.webhook.timeoutSeconds)",message="timeoutSeconds is for sync and outbound webhooks: an inbound one answers at once"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Outbound' || self.?webhook.?timeoutSeconds.orValue(15) <= 60",message="timeoutSeconds of an outbound webhook must be at most 60"
// +kubebuilder:validation:XValidation:rule="(self.mode == 'Outbound') == (has(self.webhook) && has(self.webhook.url))",message="an outbound webhook, and no other, must have webhook.url"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Outbound' || !has(self.headersSecretRef) && (!has(self.webhook) || !has(self.webhook.headers) && !has(self.webhook.sealedHeaders) && !has(self.webhook.retry))",message="headersSecretRef, webhook.headers, webhook.sealedHeaders and webhook.retry are for outbound webhooks"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Outbound' || self.?webhook.?authentication.orValue('Secret') == 'Secret' && !self.?webhook.?filesRequired.orValue(false) && !self.?webhook.?contextHeaders.hasValue()",message="authentication, filesRequired and contextHeaders are for webhooks that are called: an outbound one calls"
// +kubebuilder:validation:XValidation:rule="(has(self.headersSecretRef) ? 1 : 0) + (self.?webhook.?headers.hasValue() ? 1 : 0) + (self.?webhook.?sealedHeaders.hasValue() ? 1 : 0) <= 1",message="set one of headersSecretRef, webhook.headers and webhook.sealedHeaders"
// +kubebuilder:validation:XValidation:rule="!self.?webhook.?sealedSecret.hasValue() || self.mode != 'Outbound' && !has(self.secretRef) && self.?webhook.?authentication.orValue('Secret') != 'None'",message="webhook.sealedSecret is for webhooks that are called with authentication; set either it or secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.?webhook.?authentication.orValue('Secret') != 'None'",message="secretRef is for webhooks that are called with authentication: with None there is no secret"
type ConnectorSpec struct {
	// ID is the connector's id in the REST API and in its webhook URL. Without it
	// the id derives from the project's id and the object's name. It is immutable.
	//
	// +optional
	ID UUID `json:"id,omitempty"`

	// Environment is the name of the Environment whose agents are connected. It
	// is immutable.
	//
	// +required
	Environment EnvironmentName `json:"environment"`

	// DisplayName is the connector's name for people. Without it the object's
	// name is used.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Mode is Inbound (start runs, answer with their ids at once) or Sync (start
	// runs, answer with their result) or Outbound (send the results of linked agents'
	// runs). A cron connector is Inbound. It is immutable.
	//
	// +optional
	// +kubebuilder:default=Inbound
	Mode ConnectorMode `json:"mode,omitempty"`

	// Enabled says whether the connector works. While it is false its webhook
	// answers 409, and its schedule stands still; what was due meanwhile is not
	// made up for.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Webhook makes it an HTTP webhook and says how that behaves; {} is all
	// defaults. Either webhook or cron must be set.
	//
	// +optional
	Webhook *WebhookConnector `json:"webhook,omitempty"`

	// Cron makes it a schedule: each of its ticks starts a run of the linked agents.
	//
	// +optional
	Cron *CronConnector `json:"cron,omitempty"`

	// SecretVersion is the version of the connector's generated secrets; a higher
	// number rotates them. It never goes back: with a lower number than the one in
	// effect the connector keeps its secrets and is Stalled. One's own secret is rotated
	// by another value; while there is one, or authentication is None, the version is
	// that of the secrets that are generated afterwards.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	SecretVersion int32 `json:"secretVersion,omitempty"`

	// SecretGracePeriodSeconds is how long the secrets before a rotation stay
	// valid. A shorter period ends them earlier, 0 at once.
	//
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	SecretGracePeriodSeconds *int32 `json:"secretGracePeriodSeconds,omitempty"`

	// SecretRef names a Secret with one's own secret in place of the generated
	// one, under the key `secret`; of an outbound webhook the one that signs, under
	// the key `signing_secret`.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// HeadersSecretRef names a Secret whose keys and values are headers that an
	// outbound webhook sends.
	//
	// +optional
	HeadersSecretRef *SecretReference `json:"headersSecretRef,omitempty"`
}

// WebhookAuthentication is how the callers of a webhook are authenticated.
//
// +kubebuilder:validation:Enum=Secret;None;GitHub;GitLab;Stripe;Slack;StandardWebhooks
type WebhookAuthentication string

// Ways to authenticate callers.
const (
	// AuthenticationSecret: a caller sends the connector's secret.
	AuthenticationSecret WebhookAuthentication = "Secret"
	// AuthenticationNone: whoever knows the URL may call.
	AuthenticationNone WebhookAuthentication = "None"
	// AuthenticationGitHub: GitHub signs the body with the connector's secret.
	AuthenticationGitHub WebhookAuthentication = "GitHub"
	// AuthenticationGitLab: GitLab sends the connector's secret as its token.
	AuthenticationGitLab WebhookAuthentication = "GitLab"
	// AuthenticationStripe: Stripe signs the body with the connector's secret.
	AuthenticationStripe WebhookAuthentication = "Stripe"
	// AuthenticationSlack: Slack signs the body with the connector's secret.
	AuthenticationSlack WebhookAuthentication = "Slack"
	// AuthenticationStandardWebhooks: the sender signs as Standard Webhooks say.
	AuthenticationStandardWebhooks WebhookAuthentication = "StandardWebhooks"
)

// HeaderName is the name of a request header that runs may see.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9_-]*$')",message="must be the name of a header, such as X-GitHub-Event"
// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['authorization', 'proxy-authorization', 'cookie', 'x-service-secret', 'x-gitlab-token', 'x-api-key', 'x-auth-token', 'idempotency-key', 'x-hub-signature', 'x-hub-signature-256', 'stripe-signature', 'x-slack-signature', 'webhook-signature'])",message="must not be a header with a credential, a signature or an idempotency key: runs never see those"
type HeaderName string

// WebhookConnector is an HTTP webhook.
type WebhookConnector struct {
	// Authentication says how a caller shows that it may call: Secret, by sending the
	// connector's secret; GitHub, GitLab, Stripe, Slack or StandardWebhooks, by that
	// provider's signature with the secret; or None.
	//
	// +optional
	// +kubebuilder:default=Secret
	Authentication WebhookAuthentication `json:"authentication,omitempty"`

	// TimeoutSeconds is how long a webhook of mode Sync waits for the result (without
	// it 300), and how long an attempt of mode Outbound may take (without it 15, at
	// most 60).
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=900
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// FilesRequired lets the runs of an event fail that has no attachment, or one
	// that is omitted. A ConnectorLink may ask for the same.
	//
	// +optional
	FilesRequired bool `json:"filesRequired,omitempty"`

	// ContextHeaders names headers of a request that the runs of its event see as
	// context.headers, by their names in lower case. Values beyond 1,024 bytes are cut.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	ContextHeaders []HeaderName `json:"contextHeaders,omitempty"`

	// SealedSecret is one's own secret in place of the generated one, which the REST API
	// has sealed; nobody else can write it. Others use secretRef.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=12000
	SealedSecret string `json:"sealedSecret,omitempty"`

	// URL is where a webhook of mode Outbound sends: https, or plain http in ranges
	// that the operator has opened. Credentials belong in headers. That of a Connector of
	// the project's code may name variables of the environment, ${NAME}.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self.matches('^https?://[^/?#@[:space:]]+([/?][^[:space:]#]*)?$')",message="must be an http or https URL without credentials and fragment, such as https://example.com/results"
	URL string `json:"url,omitempty"`

	// Headers are those that a webhook of the project's code sends, as its file has them:
	// values may name variables of the environment, ${NAME}. They can be read here, so
	// that other Connectors have theirs by headersSecretRef.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && size(self[name]) <= 8192)",message="a header's name has at most 128 characters, its value 8192"
	Headers map[string]string `json:"headers,omitempty"`

	// SealedHeaders are headers whose values the REST API has sealed; nobody else
	// can write them.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && size(self[name]) <= 12000)",message="a header's name has at most 128 characters"
	SealedHeaders map[string]string `json:"sealedHeaders,omitempty"`

	// Retry says how often and when a delivery is tried. Without it ten times in
	// about three days.
	//
	// +optional
	Retry *DeliveryRetry `json:"retry,omitempty"`
}

// DeliveryRetry is the schedule of the attempts to deliver.
type DeliveryRetry struct {
	// MaxAttempts is how many attempts are made. Without it as many as the schedule
	// has.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// ScheduleSeconds is how long each attempt waits after the one before. The first is
	// made at once, so it begins with 0; the last goes on for attempts beyond it. Without
	// it 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h. Each wait is up to a
	// fifth shorter or longer.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=86400
	// +kubebuilder:validation:XValidation:rule="self[0] == 0",message="must begin with 0: the first attempt is made at once"
	ScheduleSeconds []int32 `json:"scheduleSeconds,omitempty"`
}

// MissedTicks says what becomes of ticks that came while no gateway could run them.
//
// +kubebuilder:validation:Enum=Skip;Latest
type MissedTicks string

// Ways to go on after missed ticks.
const (
	// MissedTicksSkip: they are not made up for.
	MissedTicksSkip MissedTicks = "Skip"
	// MissedTicksLatest: the newest of them is run, once.
	MissedTicksLatest MissedTicks = "Latest"
)

// CronConnector is a schedule, by the rules of Kubernetes' CronJob.
type CronConnector struct {
	// Schedule has five fields (minute, hour, day of the month, month, day of the
	// week), or is one of @yearly, @annually, @monthly, @weekly, @daily, @midnight
	// and @hourly. That of a Connector of the project's code may name variables of the
	// environment, ${NAME}, as timeZone, prompt and payload may.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[-0-9A-Za-z*,/?]+( +[-0-9A-Za-z*,/?]+){4})$')",message="must have five fields, such as \"0 6 * * 1-5\", or be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly; the time zone stands in timeZone"
	Schedule string `json:"schedule"`

	// TimeZone is the IANA name of the zone that the schedule is in, such as
	// Europe/Paris.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.contains('${') || self != 'Local' && self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')",message="must be the IANA name of a time zone, such as Europe/Paris"
	TimeZone string `json:"timeZone,omitempty"`

	// MissedTicks says what becomes of ticks that no gateway could run within five
	// minutes: Skip, nothing; Latest, the newest of them is run, once.
	//
	// +optional
	// +kubebuilder:default=Skip
	MissedTicks MissedTicks `json:"missedTicks,omitempty"`

	// Prompt is what the agents are asked to do.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Prompt string `json:"prompt,omitempty"`

	// Payload is what else the agents are given, any object. Prompt and payload
	// together have at most 64 KiB as JSON.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Payload *runtime.RawExtension `json:"payload,omitempty"`
}

// ConnectorStatus is what the controllers have found and done.
type ConnectorStatus struct {
	ObjectStatus `json:",inline"`

	// URL is the webhook's address; a cron connector has none, and no secret.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// DefinedInCode says that the connector mirrors a file of the project's repository,
	// where alone it is changed; enabled holds until the next activation.
	//
	// +optional
	DefinedInCode bool `json:"definedInCode,omitempty"`

	// Retired says that the live deployment's repository has the file no more.
	//
	// +optional
	Retired bool `json:"retired,omitempty"`

	// SecretName is the name of the Secret that shows the connector's secrets,
	// for pods to mount.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// SecretVersion is the version in effect of the generated secrets, also while one's
	// own is in their place, or there is none.
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
