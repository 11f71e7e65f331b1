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

// Connector connects agents to the outside world: an inbound or sync webhook or
// a schedule starts runs of the linked agents, an outbound webhook sends their
// results elsewhere. ConnectorLinks tie it to agents.
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
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:printcolumn:name="Code",type=boolean,JSONPath=`.status.definedInCode`,priority=1
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
// +kubebuilder:validation:Enum=inbound;sync;outbound
type ConnectorMode string

// Modes of connectors.
const (
	// ModeInbound starts runs and answers with their ids at once.
	ModeInbound ConnectorMode = "inbound"
	// ModeSync starts runs and answers with their result.
	ModeSync ConnectorMode = "sync"
	// ModeOutbound sends the results of runs.
	ModeOutbound ConnectorMode = "outbound"
)

// ConnectorType names the one of webhook and cron that a connector has.
type ConnectorType string

// Types of connectors.
const (
	ConnectorWebhook ConnectorType = "webhook"
	ConnectorCron    ConnectorType = "cron"
)

// Defaults of connectors that depend on the mode, or that a status method fills.
const (
	// DefaultSyncTimeout is how long a sync webhook waits for the result.
	DefaultSyncTimeout = 5 * time.Minute
	// DefaultOutboundTimeout is how long an outbound webhook waits for the
	// destination's answer.
	DefaultOutboundTimeout = 15 * time.Second
	// DefaultSecretGracePeriod is how long the secret before a rotation stays
	// valid.
	DefaultSecretGracePeriod = 24 * time.Hour
)

// ConnectorSpec is what a connector is asked to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) == has(oldSelf.id) && (!has(self.id) || self.id == oldSelf.id)",message="id is immutable: it can be given when the Connector is created, and neither set, changed nor removed later, for the webhook URL derives from it"
// +kubebuilder:validation:XValidation:rule="self.environment == oldSelf.environment",message="environment is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode is immutable: create another Connector"
// +kubebuilder:validation:XValidation:rule="has(self.webhook) == has(oldSelf.webhook)",message="the type is immutable: a webhook cannot become a cron or the other way round; create another Connector"
// +kubebuilder:validation:XValidation:rule="has(self.webhook) != has(self.cron)",message="a Connector must have exactly one of webhook and cron"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || self.mode == 'inbound'",message="a cron must have mode inbound: it starts runs"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.webhook.?requireAuthentication.orValue(true) || has(self.id)",message="a webhook without authentication needs an explicit spec.id, a random UUID given when it is created: its URL is its only secret"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.mode != 'outbound' || has(self.webhook.url)",message="an outbound webhook needs webhook.url, the address to send to"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.mode == 'outbound' || !(has(self.webhook.url) || has(self.webhook.retry) || has(self.webhook.bridge) || has(self.headersSecretRef))",message="url, retry, bridge and headersSecretRef are for outbound webhooks"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.mode != 'outbound' || !(has(self.webhook.requireAuthentication) || has(self.webhook.filesRequired))",message="requireAuthentication and filesRequired are for inbound and sync webhooks"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || self.mode != 'inbound' || !has(self.webhook.timeoutSeconds)",message="timeoutSeconds is for sync and outbound webhooks: an inbound one answers at once"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || !(has(self.secretRef) || has(self.headersSecretRef))",message="secretRef and headersSecretRef are for webhooks"
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

	// DisplayName is the connector's name for people and for send_connector in
	// middleware. Without it the object's name is used.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Mode is inbound (start runs, answer with their ids at once), sync (start
	// runs, answer with their result) or outbound (send results). It is immutable.
	//
	// +required
	Mode ConnectorMode `json:"mode"`

	// Enabled says whether the connector works. While it is false webhooks answer
	// 409, nothing is sent and schedules rest.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Webhook makes the connector an HTTP webhook.
	//
	// +optional
	Webhook *WebhookConnector `json:"webhook,omitempty"`

	// Cron makes the connector a schedule.
	//
	// +optional
	Cron *CronConnector `json:"cron,omitempty"`

	// SecretVersion is the version of the connector's generated secrets; a higher
	// number rotates them. Going back to a lower one brings its secrets back.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	SecretVersion int32 `json:"secretVersion,omitempty"`

	// SecretGracePeriod is how long the secret before a rotation stays valid; 0s
	// ends it at once.
	//
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$')",message="must be a duration such as 0s, 90s, 5m or 24h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') || duration(self) <= duration('8760h')",message="secretGracePeriod must be at most 8760h (a year)"
	SecretGracePeriod *metav1.Duration `json:"secretGracePeriod,omitempty"`

	// SecretRef names a Secret with one's own secrets in place of the generated
	// ones: the key `secret` for inbound and sync, `signing_secret` for outbound.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// HeadersSecretRef names a Secret with the headers that an outbound webhook
	// sends: each key is a header's name, its value the header's value. Headers
	// that begin with X-Service-, webhook- or Content-, and Host, are the
	// platform's own.
	//
	// +optional
	HeadersSecretRef *SecretReference `json:"headersSecretRef,omitempty"`
}

// WebhookConnector is an HTTP webhook; which fields it may have depends on the
// connector's mode.
type WebhookConnector struct {
	// RequireAuthentication says whether a caller must send the connector's
	// secret (inbound, sync). Without it: true.
	//
	// +optional
	RequireAuthentication *bool `json:"requireAuthentication,omitempty"`

	// FilesRequired makes a run fail before it begins when an attachment is
	// missing or was left out (inbound, sync). Without it: false.
	//
	// +optional
	FilesRequired *bool `json:"filesRequired,omitempty"`

	// TimeoutSeconds is how long a sync webhook waits for the result (without it:
	// 300), and an outbound one for the destination's answer (without it: 15).
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=900
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// URL is where an outbound webhook sends to: https://, or http:// to
	// addresses that the operator allows. A connector of a deployment's code may
	// have `${NAME}` in it.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https?://|[$][{][A-Za-z_][A-Za-z0-9_]*[}])[^\\\\s]*$')",message="must be an https:// or http:// URL"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/?#]*@')",message="must not hold credentials: send them as a header by headersSecretRef"
	URL string `json:"url,omitempty"`

	// Retry says when an outbound delivery that failed is tried again.
	//
	// +optional
	Retry *WebhookRetry `json:"retry,omitempty"`

	// Bridge is the name of the private-network bridge through which an outbound
	// webhook goes. Without it: directly.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of a bridge: lower-case letters, digits and '-'"
	Bridge string `json:"bridge,omitempty"`
}

// WebhookRetry says when an outbound delivery is tried again.
type WebhookRetry struct {
	// MaxAttempts is how often a delivery is tried in all. Without it: as often
	// as the schedule has entries.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// ScheduleSeconds is the wait before each attempt, in seconds; the last entry
	// repeats when there are more attempts. Without it: 0, 5, 300, 1800, 7200,
	// 18000, 36000, 50400, 72000, 86400. A fifth is added or taken at random.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=604800
	ScheduleSeconds []int32 `json:"scheduleSeconds,omitempty"`
}

// CronConnector is a schedule that starts runs of the linked agents.
type CronConnector struct {
	// Schedule is a cron expression of five fields (minute, hour, day of month,
	// month, day of week), or one of @yearly, @annually, @monthly, @weekly,
	// @daily, @midnight, @hourly.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4})$')",message="must be a cron expression of five fields, such as `0 9 * * 1-5`, or a word such as @hourly"
	Schedule string `json:"schedule"`

	// Timezone is the IANA name of the time zone of the schedule, such as
	// Europe/Berlin.
	//
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local'",message="must be the IANA name of a time zone, such as Europe/Berlin or UTC"
	Timezone string `json:"timezone,omitempty"`

	// Prompt is what the linked agents are asked each time.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Prompt string `json:"prompt,omitempty"`

	// Payload is an object that is given to the linked agents as input each time.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Payload *runtime.RawExtension `json:"payload,omitempty"`
}

// ConnectorStatus is what the controllers have found and done.
type ConnectorStatus struct {
	ObjectStatus `json:",inline"`

	// URL is the webhook's address (inbound, sync).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// DefinedInCode says that a deployment made this connector from a file of
	// connectors/; only spec.enabled may be changed.
	//
	// +optional
	DefinedInCode bool `json:"definedInCode,omitempty"`

	// Retired says that the live deployment's code no longer has this connector;
	// it works no more and can be deleted.
	//
	// +optional
	Retired bool `json:"retired,omitempty"`

	// SecretName is the name of the Secret that shows the connector's secrets,
	// for pods to mount.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// SecretVersion is the version of the secrets in effect.
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
