// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProjectName is the only valid name of a Project, because one namespace is one project.
const ProjectName = "project"

// Project makes its namespace a project. It names the Git repository, the model providers and the
// limits. Its name must be "project". The project's ID derives from the platform's ID and the
// namespace's name, so a project cannot take another project's ID; status.id shows it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=aproj,categories=agents
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Display name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.status.defaultEnvironment`,description="The default environment in effect"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'project'",message="one namespace is one project: its Project must be named \"project\"; for another project use another namespace"
type Project struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the project.
	//
	// +required
	Spec ProjectSpec `json:"spec"`

	// Status is the observed state.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ProjectStatus `json:"status,omitempty"`
}

// ProjectSpec is the desired state of a project.
type ProjectSpec struct {
	// DisplayName is the project's name for people. Default: the namespace's name.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Git is the repository with the project's agents. Without it, deployments come only from
	// uploads.
	//
	// +optional
	Git *ProjectGit `json:"git,omitempty"`

	// DefaultEnvironment is the name of the project's default Environment. If it is not set, or if
	// no such Environment exists, the first environment created is the default. After its deletion
	// the oldest remaining one is. status.defaultEnvironment shows the current one.
	//
	// +optional
	DefaultEnvironment EnvironmentName `json:"defaultEnvironment,omitempty"`

	// Limits are the limits of the project's plan.
	//
	// +optional
	// +kubebuilder:default={}
	Limits ProjectLimits `json:"limits,omitempty"`

	// Retention shortens the platform's retention for this project.
	//
	// +optional
	Retention *ProjectRetention `json:"retention,omitempty"`

	// ModelProviders are the model services for the project's agents. The part of an agent's
	// `model` before the slash selects one. The prefix "scripted" is reserved.
	//
	// +optional
	// +listType=map
	// +listMapKey=prefix
	// +kubebuilder:validation:MaxItems=32
	ModelProviders []ModelProvider `json:"modelProviders,omitempty"`

	// Telemetry exports what the project's runs did.
	//
	// +optional
	Telemetry *ProjectTelemetry `json:"telemetry,omitempty"`
}

// ProjectTelemetry is the export of telemetry.
type ProjectTelemetry struct {
	// OTLP exports the traces of ended runs to an OpenTelemetry collector, as OTLP over HTTP.
	//
	// +optional
	OTLP *OTLPExport `json:"otlp,omitempty"`
}

// TelemetryContent says which contents of a run are exported.
//
// +kubebuilder:validation:Enum=None;Redacted
type TelemetryContent string

// Contents of traces.
const (
	// TelemetryContentNone exports no prompts, arguments, results and error texts.
	TelemetryContentNone TelemetryContent = "None"
	// TelemetryContentRedacted exports them as the journal has them, without the values of sensitive variables.
	TelemetryContentRedacted TelemetryContent = "Redacted"
)

// OTLPExport is an OpenTelemetry collector and what it receives.
type OTLPExport struct {
	// Endpoint is the base URL of the collector, such as https://otlp.example.com. Requests go to
	// /v1/traces below it. http:// works only for addresses that the platform operator allows for the
	// egress purpose telemetry.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@\\\\s]+(/[^?#\\\\s]*)?$')",message="must be an https:// or http:// URL without credentials, query and fragment"
	Endpoint string `json:"endpoint"`

	// HeadersSecretRef names a Secret. Its keys and values are headers of the requests, such as
	// Authorization. Until it exists and is valid, nothing is exported.
	//
	// +optional
	HeadersSecretRef *SecretReference `json:"headersSecretRef,omitempty"`

	// Content says which contents of a run are exported. None exports names, times, models, token
	// counts and error codes. Redacted also exports answers, arguments, results and error texts as the
	// journal has them, cut at 8 KiB each.
	//
	// +optional
	// +kubebuilder:default=None
	Content TelemetryContent `json:"content,omitempty"`

	// SamplePercent is the share of the runs that are exported. It is decided by the ID of the run.
	//
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SamplePercent *int32 `json:"samplePercent,omitempty"`

	// Environments are the names of the Environments whose runs are exported. Default: all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Environments []EnvironmentName `json:"environments,omitempty"`
}

// ProjectGit is a Git repository with its credentials.
type ProjectGit struct {
	// URL is the repository's address: https://, http:// (only for addresses that the platform
	// operator allows), ssh://, or the short form user@host:path.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^((https?|ssh)://[^\\\\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\\\\s]+)$')",message="must be an https://, http:// or ssh:// URL, or user@host:path"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/]*@')",message="must not contain credentials: put username and password into the Secret that secretRef names"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(https?|ssh)://[^?#]*[?#]')",message="must have no query and no fragment"
	URL string `json:"url"`

	// SecretRef names the Secret with the credentials, in the form of Flux: `username` and
	// `password`, or `bearerToken`, for HTTPS; `identity` and `known_hosts` for SSH; `ca.crt` for a
	// private certificate authority.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Provider is the service that hosts the repository (`GitHub`, `GitLab`, `Gitea` or `Forgejo`).
	// It receives commit statuses, with the token in the Secret (`bearerToken`, or for HTTPS
	// `password`). Default: detected for github.com, gitlab.com, gitea.com and codeberg.org; for
	// other hosts no status is sent.
	//
	// +optional
	Provider GitProvider `json:"provider,omitempty"`

	// APIURL is the address of the provider's API, if it is not at the usual place on the host of
	// url. Examples: a server below a path (`https://git.example.com/gitlab/api/v4`), or a separate
	// host (`https://api.octocorp.ghe.com`). The token is sent there.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@\\\\s]+(/[^?#\\\\s]*)?$')",message="must be the https:// or http:// address of the provider's API, without credentials, query and fragment"
	APIURL string `json:"apiURL,omitempty"`

	// DefaultBranch is built if an environment names no branch. Default: HEAD of the repository.
	//
	// +optional
	DefaultBranch GitBranch `json:"defaultBranch,omitempty"`

	// Path is the folder of the repository that holds the project (agents/, connectors/ and so on),
	// relative to its root. Default: the root.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/\\\\s]+(/[^/\\\\s]+)*/?$') && !self.matches('(^|/)[.][.]?(/|$)')",message="must be a folder relative to the repository's root, such as services/support, without . and .."
	Path string `json:"path,omitempty"`
}

// GitProvider is a service that hosts repositories.
//
// +kubebuilder:validation:Enum=GitHub;GitLab;Gitea;Forgejo
type GitProvider string

// ProjectLimits lower the limits of the operator's plan. They never raise them.
type ProjectLimits struct {
	// Environments limits the environments of the project. Without it, and above it, the plan's
	// limit applies; status.limits shows the result.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Environments *int32 `json:"environments,omitempty"`

	// RequestsPerMinute limits the requests to the REST API in any 60 seconds, for all keys
	// together. Beyond it requests get 429. Without it, and above it, the plan's limit applies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RequestsPerMinute *int32 `json:"requestsPerMinute,omitempty"`

	// BacklogRuns limits the open runs of an environment. Beyond it webhooks get 429; a sync
	// webhook whose caller waits is accepted up to twice the limit. Without it, and above it, the
	// plan's limit applies.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	BacklogRuns *int64 `json:"backlogRuns,omitempty"`

	// BacklogInput limits the bytes of input of those runs, such as 4Gi. Without it, and above it,
	// the plan's limit applies.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be more than 0"
	BacklogInput *resource.Quantity `json:"backlogInput,omitempty"`

	// Storage limits the stored bytes of the project, such as 50Gi: inputs, outputs and journals of
	// ended runs, statistics, uploads and bundles. Beyond it webhooks get 429,
	// project_storage_full. Without it, and above it, the plan's limit applies.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be more than 0"
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// ProjectRetention is how long history is kept.
type ProjectRetention struct {
	// RunsSeconds is how long runs are kept, with their inputs, files, outputs and journals,
	// connector runs and deliveries; at least two days. Older history can no longer be read and is
	// deleted afterwards, in whole days of UTC. Statistics are kept. An open run or delivery fails
	// one day before that age. Without it, and if it is longer, the operator's retention applies.
	//
	// +required
	// +kubebuilder:validation:Minimum=172800
	// +kubebuilder:validation:Maximum=3153600000
	RunsSeconds int64 `json:"runsSeconds"`
}

// ModelProviderType is the wire protocol of a model service.
//
// +kubebuilder:validation:Enum=OpenAI;Anthropic;Gemini
type ModelProviderType string

// Types of model providers.
const (
	// ModelProviderOpenAI is OpenAI's Chat Completions API, which many services offer.
	ModelProviderOpenAI ModelProviderType = "OpenAI"
	// ModelProviderAnthropic is Anthropic's Messages API.
	ModelProviderAnthropic ModelProviderType = "Anthropic"
	// ModelProviderGemini is Google's Gemini API.
	ModelProviderGemini ModelProviderType = "Gemini"
)

// ModelProvider is a model service.
//
// +kubebuilder:validation:XValidation:rule="self.prefix != 'scripted'",message="the prefix scripted is built in; choose another"
// +kubebuilder:validation:XValidation:rule="has(self.baseURL) || !has(self.prices) || !self.prices.exists(p, p.model.startsWith(self.prefix + '/'))",message="prices name models without the prefix: gpt-5, not openai/gpt-5"
type ModelProvider struct {
	// Prefix is the part of an agent's `model` before the slash: an agent with `model:
	// openai/gpt-5` uses the provider with the prefix openai.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be lower-case letters, digits and '-'"
	Prefix string `json:"prefix"`

	// Type is the wire protocol of the service. This release supports OpenAI. Anthropic and Gemini
	// are unsupported.
	//
	// +required
	Type ModelProviderType `json:"type"`

	// BaseURL is the service's address, such as https://api.openai.com/v1. A query, such as
	// ?api-version=2024-02-01, is sent with each request. Default: the address of the protocol's
	// vendor.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^\\\\s@]+$')",message="must be an https:// or http:// URL without credentials"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#')",message="must have no fragment, because it would not be sent"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != ''",message="must be a valid URL: check its host, its port and its % escapes"
	BaseURL string `json:"baseURL,omitempty"`

	// APIKeySecretRef names the key of a Secret with the service's API key. Without it requests
	// carry no key.
	//
	// +optional
	APIKeySecretRef *SecretKeyReference `json:"apiKeySecretRef,omitempty"`

	// Prices are the prices of the service's models. For other models the platform uses its
	// built-in prices of well-known services at their own addresses. Otherwise no cost is shown.
	// Runners of a suspended environment, or of one that lacks a Secret, keep the previous prices
	// until then.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Prices []ModelPrice `json:"prices,omitempty"`
}

// Currency is a currency by its ISO 4217 code.
//
// +kubebuilder:validation:Enum=USD;EUR
type Currency string

// Currencies of prices.
const (
	CurrencyUSD Currency = "USD"
	CurrencyEUR Currency = "EUR"
)

// TokenPrice is a price of a million tokens, as a decimal number such as "1.25".
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=11
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,3})([.][0-9]{1,6})?$')",message="must be a decimal number of at most 4 digits before the point and 6 after it, such as 1.25"
type TokenPrice string

// ModelPrice is the price of a model's tokens, per million tokens.
type ModelPrice struct {
	// Model is the model's name: the part of an agent's `model` after the provider's prefix and the
	// slash.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\s]+$')",message="must be a model's name, without spaces"
	Model string `json:"model"`

	// Currency is the currency of the prices, USD or EUR. Default: USD.
	//
	// +optional
	Currency Currency `json:"currency,omitempty"`

	// InputPerMillion is the price of a million input tokens.
	//
	// +required
	InputPerMillion TokenPrice `json:"inputPerMillion"`

	// CachedInputPerMillion is the price of a million input tokens from the service's cache.
	// Default: InputPerMillion.
	//
	// +optional
	CachedInputPerMillion TokenPrice `json:"cachedInputPerMillion,omitempty"`

	// OutputPerMillion is the price of a million output tokens.
	//
	// +required
	OutputPerMillion TokenPrice `json:"outputPerMillion"`

	// ThinkingPerMillion is the price of a million thinking tokens. Default: OutputPerMillion.
	//
	// +optional
	ThinkingPerMillion TokenPrice `json:"thinkingPerMillion,omitempty"`
}

// ProjectStatus is the observed state of a project.
type ProjectStatus struct {
	ObjectStatus `json:",inline"`

	// DefaultEnvironment is the name of the current default Environment; empty while the project
	// has no environment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DefaultEnvironment string `json:"defaultEnvironment,omitempty"`

	// GitWebhookURL is the URL of the push webhook for the Git provider; empty if spec.git names no
	// repository.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	GitWebhookURL string `json:"gitWebhookURL,omitempty"`

	// Limits are the limits in effect: the limits of the operator's plan, lowered by spec.limits.
	//
	// +optional
	Limits ProjectLimits `json:"limits,omitempty"`

	// Retention is the project's own retention in effect. Without it, and if it is longer, the
	// operator's applies.
	//
	// +optional
	Retention *ProjectRetention `json:"retention,omitempty"`
}

// ProjectList is a list of Projects.
//
// +kubebuilder:object:root=true
type ProjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Project `json:"items"`
}
