// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newEnvironment() *v1alpha1.Environment {
	return &v1alpha1.Environment{
		ObjectMeta: metav1.ObjectMeta{Name: "production"},
		Spec: v1alpha1.EnvironmentSpec{
			DisplayName: "Production",
			Variables: []v1alpha1.Variable{
				{Name: "REGION", Value: ptr.To("eu")},
				{Name: "TOKEN", Sensitive: true, SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}},
			},
		},
	}
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
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.ID = "production" },
	}, {
		name: "id set later", path: ".spec", update: true,
		message: "id is immutable: it can be given when the Environment is created, and neither set, changed nor removed later",
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
	}, {
		name: "id changed", path: ".spec",
		message: "id is immutable: it can be given when the Environment is created, and neither set, changed nor removed later",
		before:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = anotherID },
	}, {
		name: "id removed", path: ".spec",
		message: "id is immutable: it can be given when the Environment is created, and neither set, changed nor removed later",
		before:  func(e *v1alpha1.Environment) { e.Spec.ID = someID },
		change:  func(e *v1alpha1.Environment) { e.Spec.ID = "" },
	}, {
		name: "test environment of a test environment", path: ".spec",
		message: "testEnvironment is for environments of kind standard; a test environment tests in itself",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Kind, e.Spec.TestEnvironment = v1alpha1.EnvironmentTest, "tests"
		},
	}, {
		name: "test environment that cannot be", path: ".spec.testEnvironment", message: environmentMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.TestEnvironment = "Tests" },
	}, {
		name: "pinned and following", path: ".spec.git",
		message: "commit pins the environment and autoDeploy follows the branch: set one of them",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Git = v1alpha1.EnvironmentGit{Commit: someCommit, AutoDeploy: true}
		},
	}, {
		name: "branch that cannot be", path: ".spec.git.branch", message: branchMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "a b" },
	}, {
		name: "branch with two dots", path: ".spec.git.branch", message: branchMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "a..b" },
	}, {
		name: "short commit", path: ".spec.git.commit", message: commitMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Commit = "2fd4e1c" },
	}, {
		name: "interval that is no duration", path: ".spec.git.interval", message: durationMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Interval = seconds(-60) },
	}, {
		name: "short interval", path: ".spec.git.interval", message: "interval must be at least 10s",
		change: func(e *v1alpha1.Environment) { e.Spec.Git.Interval = seconds(9) },
	}, {
		name: "less at most than at least", path: ".spec.runner", message: "minReplicas must not be more than maxReplicas",
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(int32(3)), ptr.To(int32(2))
		},
	}, {
		name: "pull secret that cannot be", path: ".spec.runner.imagePullSecrets[].name", message: nameMessage,
		change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "a/b"}}
		},
	}, {
		name: "runtime class that cannot be", path: ".spec.runner.runtimeClassName", message: nameMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Runner.RuntimeClassName = "gVisor" },
	}, {
		name: "variable without a value", path: ".spec.variables[]", message: "a variable has either value or secretKeyRef",
		change: func(e *v1alpha1.Environment) { e.Spec.Variables[0].Value = nil },
	}, {
		name: "variable with two values", path: ".spec.variables[]", message: "a variable has either value or secretKeyRef",
		change: func(e *v1alpha1.Environment) { e.Spec.Variables[1].Value = ptr.To("x") },
	}, {
		name: "sensitive value in the open", path: ".spec.variables[]",
		message: "a sensitive variable must come from a Secret: use secretKeyRef instead of value",
		change:  func(e *v1alpha1.Environment) { e.Spec.Variables[0].Sensitive = true },
	}, {
		name: "variable's name that cannot be", path: ".spec.variables[].name",
		message: "must be letters, digits and '_', not beginning with a digit",
		change:  func(e *v1alpha1.Environment) { e.Spec.Variables[0].Name = "1ST" },
	}, {
		name: "variable's secret that cannot be", path: ".spec.variables[].secretKeyRef.name", message: nameMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Variables[1].SecretKeyRef.Name = "CRM" },
	}, {
		name: "variable's key that cannot be", path: ".spec.variables[].secretKeyRef.key", message: keyMessage,
		change: func(e *v1alpha1.Environment) { e.Spec.Variables[1].SecretKeyRef.Key = "a/b" },
	},
}

func TestEnvironmentRules(t *testing.T) {
	t.Parallel()
	refuse(t, newEnvironment, environmentBreaches)
}

func TestEnvironmentsThatAreFine(t *testing.T) {
	t.Parallel()
	accept(t, newEnvironment, []valid[*v1alpha1.Environment]{
		{name: "as it is", change: func(*v1alpha1.Environment) {}},
		{name: "nothing asked for", change: func(e *v1alpha1.Environment) { e.Spec = v1alpha1.EnvironmentSpec{} }},
		{name: "longest name", change: func(e *v1alpha1.Environment) { e.Name = strings.Repeat("a", 40) }},
		{name: "empty value", change: func(e *v1alpha1.Environment) { e.Spec.Variables[0].Value = ptr.To("") }},
		{name: "promotion", update: true, change: func(e *v1alpha1.Environment) { e.Spec.Git.Commit = otherCommit }},
		{name: "more at least than is usual at most", change: func(e *v1alpha1.Environment) {
			e.Spec.Runner.MinReplicas = ptr.To(int32(50))
		}},
		{name: "scale to zero", change: func(e *v1alpha1.Environment) { e.Spec.Runner.MinReplicas = ptr.To(int32(0)) }},
		{name: "test environment", change: func(e *v1alpha1.Environment) { e.Spec.TestEnvironment = "tests" }},
		{name: "secret shown", change: func(e *v1alpha1.Environment) { e.Spec.Variables[1].Sensitive = false }},
	})
}
