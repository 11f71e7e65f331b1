// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProjectName is the only name that a Project may have: one namespace is one
// project.
const ProjectName = "project"

// Project makes its namespace a project: it says where the agents' code comes
// from, how models are reached, and what limits hold. Its name must be
// "project". The project's id is a function of the platform's id and the
// namespace's name, so nobody can take another project's; status.id shows it.
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

	// Spec is what the project is asked to be.
	//
	// +required
	Spec ProjectSpec `json:"spec"`

	// Status is what the controllers have found and done.
	//
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ProjectStatus `json:"status,omitempty"`
}

// ProjectSpec is what a project is asked to be.
type ProjectSpec struct {
	// DisplayName is the project's name for people. Without it the namespace's
	// name is shown.
	//
	// +optional
	DisplayName DisplayName `json:"displayName,omitempty"`

	// Git is the repository with the project's agents. Without it the project
	// has no git provider: its deployments come from uploaded bundles.
	//
	// +optional
	Git *ProjectGit `json:"git,omitempty"`

	// DefaultEnvironment is the name of the project's default Environment.
	// Without it, and while there is none of that name, the first environment
	// created is the default until it is deleted, then the oldest of those that are
	// there; status.defaultEnvironment shows which one.
	//
	// +optional
	DefaultEnvironment EnvironmentName `json:"defaultEnvironment,omitempty"`

	// Limits are the limits of the project's plan.
	//
	// +optional
	// +kubebuilder:default={}
	Limits ProjectLimits `json:"limits,omitempty"`

	// Retention says for how long what happened in the project is kept, where that
	// is to be shorter than the platform keeps it.
	//
	// +optional
	Retention *ProjectRetention `json:"retention,omitempty"`

	// ModelProviders are the model services that the project's agents may use,
	// found by the part of an agent's `model` before the slash. The prefix
	// "scripted" is built in.
	//
	// +optional
	// +listType=map
	// +listMapKey=prefix
	// +kubebuilder:validation:MaxItems=32
	ModelProviders []ModelProvider `json:"modelProviders,omitempty"`
}

// ProjectGit is a git repository and how to reach it.
type ProjectGit struct {
	// URL is the repository's address: https://, http:// (only to addresses that
	// the operator allows), ssh://, or the short form user@host:path.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^((https?|ssh)://[^\\\\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\\\\s]+)$')",message="must be an https://, http:// or ssh:// URL, or user@host:path"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^https?://[^/]*@')",message="must not hold credentials: put username and password into the Secret that secretRef names"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(https?|ssh)://[^?#]*[?#]')",message="must have no query and no fragment"
	URL string `json:"url"`

	// SecretRef names the Secret with the credentials, in Flux's form: `username`
	// and `password`, or `bearerToken`, for HTTPS; `identity` and `known_hosts`
	// for SSH; `ca.crt` for a private certificate authority.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Provider is the service that hosts the repository (`GitHub`, `GitLab`, `Gitea`
	// or `Forgejo`), which is told what becomes of its commits by the token in the
	// Secret (`bearerToken`, else for HTTPS `password`).
	// Without it, it is known of github.com, gitlab.com, gitea.com and codeberg.org;
	// elsewhere nothing is told.
	//
	// +optional
	Provider GitProvider `json:"provider,omitempty"`

	// APIURL is the address of the provider's API, where that is not at the usual place at the
	// host of url: as of a server below a path of its host
	// (`https://git.example.com/gitlab/api/v4`), or with a host of its own
	// (`https://api.octocorp.ghe.com`). The token is sent there.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@\\\\s]+(/[^?#\\\\s]*)?$')",message="must be the https:// or http:// address of the provider's API, without credentials, query and fragment"
	APIURL string `json:"apiURL,omitempty"`

	// DefaultBranch is built where an environment names no branch. Without it
	// the branch that the repository's HEAD names is built.
	//
	// +optional
	DefaultBranch GitBranch `json:"defaultBranch,omitempty"`

	// Path is the folder of the repository that holds the project (agents/,
	// connectors/ and so on), relative to its root. Without it: the root.
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

// ProjectLimits lower what the operator's plan allows the project; they never
// raise it.
type ProjectLimits struct {
	// Environments is the most environments that the project may have. Without
	// it, and above it, the plan's limit holds; status.limits shows which.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Environments *int32 `json:"environments,omitempty"`

	// RequestsPerMinute is how many requests to the REST API the project may make in
	// any 60 seconds, with all its keys; beyond it callers get 429. Without it, and
	// above it, the plan's limit holds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RequestsPerMinute *int32 `json:"requestsPerMinute,omitempty"`

	// BacklogRuns is the most runs of an environment that may be open, waiting or
	// under way, when another webhook is taken for them, twice as many where its
	// caller waits for the answer; beyond it callers get 429. Without it, and above it, the plan's limit
	// holds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	BacklogRuns *int64 `json:"backlogRuns,omitempty"`

	// BacklogInput is the most bytes of input that those runs may have, as 4Gi.
	// Without it, and above it, the plan's limit holds.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be more than 0"
	BacklogInput *resource.Quantity `json:"backlogInput,omitempty"`

	// Storage is the most bytes that the project's inputs, outputs and journals of
	// ended runs may take, with their numbers, what is uploaded and what builds leave,
	// as 50Gi; beyond it webhooks get 429, project_storage_full.
	// Without it, and above it, the plan's limit holds.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be more than 0"
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// ProjectRetention says for how long what happened is kept.
type ProjectRetention struct {
	// RunsSeconds is for how long runs are kept, with their inputs, files, outputs
	// and journals, connector runs and deliveries: two days at least. What was
	// accepted before that is read by nobody from then on and is deleted
	// afterwards, by whole days in UTC; numbers stay. A run or delivery that is open ends as
	// failed a day before it is that old. The operator's retention holds
	// without it, and where it is longer.
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
	// ModelProviderOpenAI speaks OpenAI's Chat Completions, as many services do.
	ModelProviderOpenAI ModelProviderType = "OpenAI"
	// ModelProviderAnthropic speaks Anthropic's Messages API.
	ModelProviderAnthropic ModelProviderType = "Anthropic"
	// ModelProviderGemini speaks Google's Gemini API.
	ModelProviderGemini ModelProviderType = "Gemini"
)

// ModelProvider is a model service.
//
// +kubebuilder:validation:XValidation:rule="self.prefix != 'scripted'",message="the prefix scripted is built in; choose another"
// +kubebuilder:validation:XValidation:rule="has(self.baseURL) || !has(self.prices) || !self.prices.exists(p, p.model.startsWith(self.prefix + '/'))",message="prices name models without the prefix: gpt-5, not openai/gpt-5"
type ModelProvider struct {
	// Prefix is what stands before the slash in an agent's `model`: an agent
	// with `model: openai/gpt-5` uses the provider with the prefix openai.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be lower-case letters, digits and '-'"
	Prefix string `json:"prefix"`

	// Type is the wire protocol that the service speaks. This release speaks
	// OpenAI; Anthropic and Gemini are not supported yet.
	//
	// +required
	Type ModelProviderType `json:"type"`

	// BaseURL is the service's address, such as https://api.openai.com/v1. A query,
	// such as ?api-version=2024-02-01, is sent with each request.
	// Without it: the address of the protocol's maker.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^\\\\s@]+$')",message="must be an https:// or http:// URL without credentials"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#')",message="must have no fragment, which nobody sends"
	BaseURL string `json:"baseURL,omitempty"`

	// APIKeySecretRef names the key of a Secret that holds the service's API
	// key. Without it requests carry none.
	//
	// +optional
	APIKeySecretRef *SecretKeyReference `json:"apiKeySecretRef,omitempty"`

	// Prices are what calls of the service's models cost. A model that is not among
	// them costs what the platform's own table says, which knows those of well-known
	// services at their own addresses; else its price is not known, and no cost is
	// shown. Runners of an environment that is suspended, or whose configuration
	// lacks a Secret, go on with the prices of before until it is not.
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

// ModelPrice is what a model's tokens cost. All of its prices are of a million tokens.
type ModelPrice struct {
	// Model is the model's name: what comes after the provider's prefix and the
	// slash in an agent's `model`.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\s]+$')",message="must be a model's name, without spaces"
	Model string `json:"model"`

	// Currency is that of the prices, USD or EUR. Without it: USD.
	//
	// +optional
	Currency Currency `json:"currency,omitempty"`

	// InputPerMillion is the price of a million tokens that the model reads.
	//
	// +required
	InputPerMillion TokenPrice `json:"inputPerMillion"`

	// CachedInputPerMillion is the price of those of them that the service had in
	// its cache. Without it: InputPerMillion.
	//
	// +optional
	CachedInputPerMillion TokenPrice `json:"cachedInputPerMillion,omitempty"`

	// OutputPerMillion is the price of a million tokens that the model writes.
	//
	// +required
	OutputPerMillion TokenPrice `json:"outputPerMillion"`

	// ThinkingPerMillion is the price of those that it writes to itself before.
	// Without it: OutputPerMillion.
	//
	// +optional
	ThinkingPerMillion TokenPrice `json:"thinkingPerMillion,omitempty"`
}

// ProjectStatus is what the controllers have found and done.
type ProjectStatus struct {
	ObjectStatus `json:",inline"`

	// DefaultEnvironment is the name of the default Environment in effect; empty
	// while the project has no environment.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DefaultEnvironment string `json:"defaultEnvironment,omitempty"`

	// GitWebhookURL is the URL of the push webhook, to be entered at the repository's
	// Git provider; empty while spec.git names no repository.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	GitWebhookURL string `json:"gitWebhookURL,omitempty"`

	// Limits are those in effect: what the operator's plan allows, lowered by
	// spec.limits.
	//
	// +optional
	Limits ProjectLimits `json:"limits,omitempty"`

	// Retention is the project's own that is in effect; without it, and where it is
	// longer, the operator's is.
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
