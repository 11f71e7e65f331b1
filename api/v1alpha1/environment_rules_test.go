// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newEnvironment() *v1alpha1.Environment {
	return &v1alpha1.Environment{
		ObjectMeta: metav1.ObjectMeta{Name: "production"},
		Spec: v1alpha1.EnvironmentSpec{
			DisplayName: "Production",
		},
	}
}

// withVariable is an environment with a variable of that value.
func withVariable(variable v1alpha1.EnvironmentVariable) *v1alpha1.Environment {
	e := newEnvironment()
	variable.Name = "REGION"
	e.Spec.Variables = []v1alpha1.EnvironmentVariable{variable}
	return e
}

// oauthApps are the OAuth app "crm" with a change.
func oauthApps(change func(*v1alpha1.OAuthApp)) []v1alpha1.OAuthApp {
	app := v1alpha1.OAuthApp{
		Name: "crm", TokenURL: "https://login.example.com/token", ClientID: "agents",
		ClientSecretRef: v1alpha1.SecretKeyReference{Name: "crm", Key: "secret"},
	}
	change(&app)
	return []v1alpha1.OAuthApp{app}
}

const tokenURLMessage = "must be an https:// URL without credentials and fragment, because the client secret is sent to it"

const validURLMessage = "must be a valid URL: check its host, its port and its % escapes"

func cpu(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

var environmentBreaches = []breach[*v1alpha1.Environment]{
	{
		name:    "long name",
		message: "the name of an Environment must be at most 40 lower-case letters, digits and '-'; spec.displayName takes any name",
		change:  func(e *v1alpha1.Environment) { e.Name = strings.Repeat("a", 41) },
	}, {
		name:    "name with a dot",
		message: "the name of an Environment must be at most 40 lower-case letters, digits and '-'; spec.displayName takes any name",
		change:  func(e *v1alpha1.Environment) { e.Name = "a.b" },
	}, {
		name: "a resource that is none", path: ".spec.runner.resources.limits",
		message: "must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.Resources.Limits = corev1.ResourceList{"Memory": resource.MustParse("1Gi")}
		},
	}, {
		name: "a resource that is none, asked for", path: ".spec.runner.resources.requests",
		message: "must name compute resources: cpu, memory, ephemeral-storage, hugepages-2Mi and the like, or one of a vendor such as nvidia.com/gpu",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.Resources.Requests = corev1.ResourceList{"cpus": resource.MustParse("1")}
		},
	}, {
		name: "a commit of an environment that follows a branch", path: ".spec.git",
		message: "set either commit or autoDeploy: an environment that follows a branch cannot be pinned to a commit",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Git.AutoDeploy, e.Spec.Git.Commit = true, v1alpha1.GitCommit(strings.Repeat("a", 40))
		},
	}, {
		name: "a short commit", path: ".spec.git.commit",
		message: "must be the full hash of a commit: 40 hexadecimal digits in lower case",
		change:  func(e *v1alpha1.Environment) { e.Spec.Git.Commit = "4b825dc" },
	}, {
		name: "an interval without a branch to follow", path: ".spec.git",
		message: "intervalSeconds needs autoDeploy: other environments follow no branch",
		change:  func(e *v1alpha1.Environment) { e.Spec.Git.IntervalSeconds = ptr.To(int32(60)) },
	}, {
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.ID = "production" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.ID = derivedID },
	}, {
		name: "test environment that cannot be", path: ".spec.testEnvironment", message: environmentMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.TestEnvironment = "a.b" },
	}, {
		name: "id set later", path: ".spec", update: true,
		message: "id is immutable: set it when the Environment is created",
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
	}, {
		name: "id changed", path: ".spec",
		message: "id is immutable: set it when the Environment is created",
		before:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = anotherID },
	}, {
		name: "id removed", path: ".spec",
		message: "id is immutable: set it when the Environment is created",
		before:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = "" },
	}, {
		name: "branch that cannot be", path: ".spec.git.branch", message: branchMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "a b" },
	}, {
		name: "branch with two dots", path: ".spec.git.branch", message: branchMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "a..b" },
	}, {
		name: "pull secret that cannot be", path: ".spec.runner.imagePullSecrets[].name", message: nameMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "a/b"}}
		},
	}, {
		name: "at most fewer runners than at least", path: ".spec.runner", message: "maxReplicas must be at least minReplicas",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(int32(3)), ptr.To(int32(2))
		},
	}, {
		name: "at least more runners than at most", path: ".spec.runner", message: "maxReplicas must be at least minReplicas",
		before: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(int32(1)), ptr.To(int32(2))
		},
		change: func(e *v1alpha1.Environment) { e.Spec.Runner.MinReplicas = ptr.To(int32(3)) },
	}, {
		name: "variable without a value", path: ".spec.variables[]",
		message: "a variable has exactly one of value, secretKeyRef and sealedValue",
		change:  func(e *v1alpha1.Environment) { e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REGION"}} },
	}, {
		name: "variable with two values", path: ".spec.variables[]",
		message: "a variable has exactly one of value, secretKeyRef and sealedValue",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REGION", Value: ptr.To(""), SealedValue: "AQ=="}}
		},
	}, {
		name: "variable in small letters", path: ".spec.variables[].name",
		message: "must be the name of a variable: capital letters, digits and '_', and no digit first",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "region", Value: ptr.To("eu")}}
		},
	}, {
		name: "variable of a Secret that cannot be", path: ".spec.variables[].secretKeyRef.name", message: nameMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REGION", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "a/b", Key: "token"}}}
		},
	}, {
		name: "variable of a key that cannot be", path: ".spec.variables[].secretKeyRef.key",
		message: "must be a key of a Secret: letters, digits, '-', '_' and '.'",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REGION", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "a/b"}}}
		},
	}, {
		name: "OAuth app with a bad name", path: ".spec.oauthApps[].name",
		message: "must be the name of an OAuth app: lower-case letters, digits and '-'",
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.Name = "CRM" })
		},
	}, {
		name: "OAuth app without https", path: ".spec.oauthApps[].tokenURL", message: tokenURLMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.TokenURL = "http://login.example.com/token" })
		},
	}, {
		name: "OAuth app with credentials in the URL", path: ".spec.oauthApps[].tokenURL", message: tokenURLMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.TokenURL = "https://me:secret@login.example.com/token" })
		},
	}, {
		name: "OAuth app with a port of letters", path: ".spec.oauthApps[].tokenURL", message: validURLMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.TokenURL = "https://login.example.com:port/token" })
		},
	}, {
		name: "OAuth app without a host", path: ".spec.oauthApps[].tokenURL", message: validURLMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.TokenURL = "https://:443/token" })
		},
	}, {
		name: "OAuth app with two scopes in one", path: ".spec.oauthApps[].scopes[]",
		message: "must be one scope: printable ASCII characters without spaces, quotes and backslashes",
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.Scopes = []v1alpha1.OAuthScope{"crm.read crm.write"} })
		},
	}, {
		name: "OAuth app of a Secret with a bad name", path: ".spec.oauthApps[].clientSecretRef.name", message: nameMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.ClientSecretRef.Name = "a/b" })
		},
	}, {
		name: "OAuth app of a key with a bad name", path: ".spec.oauthApps[].clientSecretRef.key",
		message: "must be a key of a Secret: letters, digits, '-', '_' and '.'",
		change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = oauthApps(func(a *v1alpha1.OAuthApp) { a.ClientSecretRef.Key = "a/b" })
		},
	}, {
		name: "runtime class that cannot be", path: ".spec.runner.runtimeClassName", message: nameMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Runner.RuntimeClassName = "gVisor" },
	},
}

func TestEnvironment_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newEnvironment, environmentBreaches)
}

func TestEnvironment_AcceptsValid(t *testing.T) {
	t.Parallel()
	accept(t, newEnvironment, []valid[*v1alpha1.Environment]{
		{name: "as it is", change: func(*v1alpha1.Environment) {}},
		{name: "resources", change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.Resources = v1alpha1.RunnerResources{Requests: cpu("0.5"), Limits: cpu("2")}
		}},
		{name: "variables", change: func(e *v1alpha1.Environment) {
			e.Spec.Variables = []v1alpha1.EnvironmentVariable{
				{Name: "EMPTY", Value: ptr.To("")}, {Name: "_LONG", Value: ptr.To(strings.Repeat("ä", 8192)), Sensitive: true},
				{Name: "TOKEN_2", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}},
				{Name: "SEALED", SealedValue: strings.Repeat("a", 12000)},
			}
		}},
		{name: "OAuth apps", change: func(e *v1alpha1.Environment) {
			e.Spec.OAuthApps = append(oauthApps(func(*v1alpha1.OAuthApp) {}), oauthApps(func(a *v1alpha1.OAuthApp) {
				a.Name, a.TokenURL, a.Audience = "erp-2", "https://login.example.com:8443?tenant=1", "https://erp.example.com/"
				a.Scopes = []v1alpha1.OAuthScope{"erp.read", "https://erp.example.com/.default"}
			})...)
		}},
		{name: "id in capitals", change: func(e *v1alpha1.Environment) { e.Spec.ID = "7B0C7A52-6C1F-4C3E-9A55-0F6D1F1F8F10" }},
		{name: "id of version 7", change: func(e *v1alpha1.Environment) { e.Spec.ID = "0198c5a2-1111-7c3e-8a55-0f6d1f1f8f10" }},
		{name: "nothing asked for", change: func(e *v1alpha1.Environment) { e.Spec = v1alpha1.EnvironmentSpec{} }},
		{name: "longest name", change: func(e *v1alpha1.Environment) { e.Name = strings.Repeat("a", 40) }},
		{name: "many runners", change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas = ptr.To(int32(50))
		}},
		{name: "no runners", change: func(e *v1alpha1.Environment) { e.Spec.Runner.MinReplicas = ptr.To(int32(0)) }},
		{name: "a pool that scales, from the default", change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = nil, ptr.To(int32(1))
		}},
		{name: "a pool that scales from zero", change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(int32(0)), ptr.To(int32(1000))
		}},
	})
}
