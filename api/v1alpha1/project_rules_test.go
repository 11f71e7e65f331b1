// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newProject() *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProjectName},
		Spec: v1alpha1.ProjectSpec{
			Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/support.git"},
			Telemetry: &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{
				Endpoint: "https://otlp.example.com/in", HeadersSecretRef: &v1alpha1.SecretReference{Name: "otlp"},
				Content: v1alpha1.TelemetryContentNone, SamplePercent: ptr.To[int32](0), Environments: []v1alpha1.EnvironmentName{"production"},
			}},
			ModelProviders: []v1alpha1.ModelProvider{{
				Prefix: "openai", Type: v1alpha1.ModelProviderOpenAI,
				APIKeySecretRef: &v1alpha1.SecretKeyReference{Name: "models", Key: "openai"},
				Prices:          []v1alpha1.ModelPrice{{Model: "gpt-5", InputPerMillion: "1.25", OutputPerMillion: "10"}},
			}},
		},
	}
}

const priceMessage = "must be a decimal number of at most 4 digits before the point and 6 after it, such as 1.25"

var projectBreaches = []breach[*v1alpha1.Project]{
	{
		name:    "another name",
		message: `one namespace is one project: its Project must be named "project"; for another project use another namespace`,
		change:  func(p *v1alpha1.Project) { p.Name = "second" },
	}, {
		name: "collector with credentials", path: ".spec.telemetry.otlp.endpoint",
		message: "must be an https:// or http:// URL without credentials, query and fragment",
		change: func(p *v1alpha1.Project) {
			p.Spec.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{Endpoint: "https://token@otlp.example.com"}}
		},
	}, {
		name: "collector of another kind", path: ".spec.telemetry.otlp.endpoint",
		message: "must be an https:// or http:// URL without credentials, query and fragment",
		change: func(p *v1alpha1.Project) {
			p.Spec.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: &v1alpha1.OTLPExport{Endpoint: "grpc://otlp.example.com"}}
		},
	}, {
		name: "environment with traces that cannot be", path: ".spec.telemetry.otlp.environments[]", message: environmentMessage,
		change: func(p *v1alpha1.Project) {
			p.Spec.Telemetry.OTLP.Environments = []v1alpha1.EnvironmentName{"Production"}
		},
	}, {
		name: "headers of a collector in a Secret that cannot be", path: ".spec.telemetry.otlp.headersSecretRef.name", message: nameMessage,
		change: func(p *v1alpha1.Project) { p.Spec.Telemetry.OTLP.HeadersSecretRef.Name = "Otlp" },
	}, {
		name: "default environment that cannot be", path: ".spec.defaultEnvironment", message: environmentMessage,
		change: func(p *v1alpha1.Project) { p.Spec.DefaultEnvironment = "Production" },
	}, {
		name: "git URL of another kind", path: ".spec.git.url",
		message: "must be an https://, http:// or ssh:// URL, or user@host:path",
		change:  func(p *v1alpha1.Project) { p.Spec.Git.URL = "file:///etc" },
	}, {
		name: "git URL with a password", path: ".spec.git.url",
		message: "must not contain credentials: put username and password into the Secret that secretRef names",
		change:  func(p *v1alpha1.Project) { p.Spec.Git.URL = "https://me:secret@git.example.com/a.git" },
	}, {
		name: "git URL with a query", path: ".spec.git.url", message: "must have no query and no fragment",
		change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "https://git.example.com/a.git?ref=main" },
	}, {
		name: "git URL with a fragment", path: ".spec.git.url", message: "must have no query and no fragment",
		change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "ssh://git@git.example.com/a.git#main" },
	}, {
		name: "API with a token", path: ".spec.git.apiURL",
		message: "must be the https:// or http:// address of the provider's API, without credentials, query and fragment",
		change:  func(p *v1alpha1.Project) { p.Spec.Git.APIURL = "https://token@git.example.com/api/v4" },
	}, {
		name: "API with a query", path: ".spec.git.apiURL",
		message: "must be the https:// or http:// address of the provider's API, without credentials, query and fragment",
		change:  func(p *v1alpha1.Project) { p.Spec.Git.APIURL = "https://git.example.com/api/v4?private_token=x" },
	}, {
		name: "git secret that cannot be", path: ".spec.git.secretRef.name", message: nameMessage,
		change: func(p *v1alpha1.Project) { p.Spec.Git.SecretRef = &v1alpha1.SecretReference{Name: "Git"} },
	}, {
		name: "branch that git would read as an option", path: ".spec.git.defaultBranch", message: branchMessage,
		change: func(p *v1alpha1.Project) { p.Spec.Git.DefaultBranch = "--upload-pack=x" },
	}, {
		name: "path out of the repository", path: ".spec.git.path",
		message: "must be a folder relative to the repository's root, such as services/support, without . and ..",
		change:  func(p *v1alpha1.Project) { p.Spec.Git.Path = "a/../../b" },
	}, {
		name: "no room for inputs", path: ".spec.limits.backlogInput", message: "must be more than 0",
		change: func(p *v1alpha1.Project) { p.Spec.Limits.BacklogInput = ptr.To(resource.MustParse("0")) },
	}, {
		name: "negative storage", path: ".spec.limits.storage", message: "must be more than 0",
		change: func(p *v1alpha1.Project) { p.Spec.Limits.Storage = ptr.To(resource.MustParse("-1Gi")) },
	}, {
		name: "built-in prefix", path: ".spec.modelProviders[]", message: "the prefix scripted is built in; choose another",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prefix = "scripted" },
	}, {
		name: "prefix that cannot be", path: ".spec.modelProviders[].prefix", message: "must be lower-case letters, digits and '-'",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prefix = "a/b" },
	}, {
		name: "base URL with credentials", path: ".spec.modelProviders[].baseURL",
		message: "must be an https:// or http:// URL without credentials",
		change:  func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].BaseURL = "https://key@models.example.com" },
	}, {
		name: "base URL with a bad escape", path: ".spec.modelProviders[].baseURL", message: validURLMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].BaseURL = "https://models.example.com/%zz" },
	}, {
		name: "base URL with a fragment", path: ".spec.modelProviders[].baseURL", message: "must have no fragment, because it would not be sent",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].BaseURL = "https://models.example.com/v1#x" },
	}, {
		name: "model secret that cannot be", path: ".spec.modelProviders[].apiKeySecretRef.name", message: nameMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].APIKeySecretRef.Name = "Models" },
	}, {
		name: "model secret's key that cannot be", path: ".spec.modelProviders[].apiKeySecretRef.key", message: keyMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].APIKeySecretRef.Key = "a key" },
	}, {
		name: "price of a model with its prefix", path: ".spec.modelProviders[]", message: "prices name models without the prefix: gpt-5, not openai/gpt-5",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].Model = "openai/gpt-5" },
	}, {
		name: "price of a model that cannot be", path: ".spec.modelProviders[].prices[].model", message: "must be a model's name, without spaces",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].Model = "gpt 5" },
	}, {
		name: "price below nothing", path: ".spec.modelProviders[].prices[].inputPerMillion", message: priceMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].InputPerMillion = "-1" },
	}, {
		name: "price with an exponent", path: ".spec.modelProviders[].prices[].outputPerMillion", message: priceMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].OutputPerMillion = "1e3" },
	}, {
		name: "price finer than can be counted", path: ".spec.modelProviders[].prices[].cachedInputPerMillion", message: priceMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].CachedInputPerMillion = "1.0000001" },
	}, {
		name: "price with a comma", path: ".spec.modelProviders[].prices[].thinkingPerMillion", message: priceMessage,
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].ThinkingPerMillion = "1,25" },
	},
}

func TestProject_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newProject, projectBreaches)
}

// What the schema says of them without a rule.
func TestProject_RejectsInvalidPrices(t *testing.T) {
	t.Parallel()
	refuse(t, newProject, []breach[*v1alpha1.Project]{{
		name: "two prices of a model", path: ".spec.modelProviders[].prices[]", message: "Duplicate value",
		change: func(p *v1alpha1.Project) {
			p.Spec.ModelProviders[0].Prices = append(p.Spec.ModelProviders[0].Prices, p.Spec.ModelProviders[0].Prices[0])
		},
	}, {
		name: "currency that no rate is of", path: ".spec.modelProviders[].prices[].currency", message: "Unsupported value",
		change: func(p *v1alpha1.Project) { p.Spec.ModelProviders[0].Prices[0].Currency = "GBP" },
	}})
	accept(t, newProject, []valid[*v1alpha1.Project]{{
		name: "model that a proxy names like the provider's prefix",
		change: func(p *v1alpha1.Project) {
			p.Spec.ModelProviders[0].BaseURL, p.Spec.ModelProviders[0].Prices[0].Model = "https://models.example.com/v1", "openai/gpt-5"
		},
	}})
}

// The limits of a Project and of a plan have the same bounds.
func TestProject_LimitsHaveBounds(t *testing.T) {
	t.Parallel()
	refuse(t, newProject, []breach[*v1alpha1.Project]{{
		name: "no request at all", path: ".spec.limits.requestsPerMinute", message: "should be greater than or equal to 1",
		change: func(p *v1alpha1.Project) { p.Spec.Limits.RequestsPerMinute = ptr.To(int32(0)) },
	}, {
		name: "more requests than any plan allows", path: ".spec.limits.requestsPerMinute", message: "should be less than or equal to 10000",
		change: func(p *v1alpha1.Project) { p.Spec.Limits.RequestsPerMinute = ptr.To(int32(10_001)) },
	}})
}

func TestProject_AcceptsValid(t *testing.T) {
	t.Parallel()
	accept(t, newProject, []valid[*v1alpha1.Project]{
		{name: "as it is", change: func(*v1alpha1.Project) {}},
		{name: "no git", change: func(p *v1alpha1.Project) { p.Spec.Git = nil }},
		{name: "SSH", change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "ssh://git@git.example.com:2222/a.git" }},
		{name: "SSH, short", change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "git@git.example.com:team/a.git" }},
		{name: "SSH, short, of an odd name", change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "git@git.example.com:team/a?b#c.git" }},
		{name: "base URL with a query", change: func(p *v1alpha1.Project) {
			p.Spec.ModelProviders[0].BaseURL = "https://models.example.com/openai/v1?api-version=2024-02-01"
		}},
		{name: "API below a path", change: func(p *v1alpha1.Project) { p.Spec.Git.APIURL = "https://git.example.com:8443/gitlab/api/v4/" }},
		{name: "API of a host", change: func(p *v1alpha1.Project) { p.Spec.Git.APIURL = "https://api.octocorp.ghe.com" }},
		{name: "few requests", change: func(p *v1alpha1.Project) { p.Spec.Limits.RequestsPerMinute = ptr.To(int32(1)) }},
		{name: "many requests", change: func(p *v1alpha1.Project) { p.Spec.Limits.RequestsPerMinute = ptr.To(int32(10_000)) }},
		{name: "folder", change: func(p *v1alpha1.Project) { p.Spec.Git.Path = "services/.support/v1.2..3" }},
		{name: "branch", change: func(p *v1alpha1.Project) { p.Spec.Git.DefaultBranch = "release/1.2-rc_1" }},
		{name: "later git", update: true, change: func(p *v1alpha1.Project) { p.Spec.Git.URL = "https://other.example.com/a" }},
		{name: "prices in euros", change: func(p *v1alpha1.Project) {
			p.Spec.ModelProviders[0].Prices = []v1alpha1.ModelPrice{
				{Model: "vendor/large:free", InputPerMillion: "0", OutputPerMillion: "0"},
				{Model: "gpt-5", Currency: v1alpha1.CurrencyEUR, InputPerMillion: "9999.999999", CachedInputPerMillion: "0.000001", OutputPerMillion: "10.5", ThinkingPerMillion: "3"},
			}
		}},
		{name: "local model", change: func(p *v1alpha1.Project) {
			p.Spec.ModelProviders[0].BaseURL = "http://ollama.models:11434/v1"
			p.Spec.ModelProviders[0].APIKeySecretRef = nil
		}},
	})
}
