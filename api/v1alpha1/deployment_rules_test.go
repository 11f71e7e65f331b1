// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

func newDeployment() *v1alpha1.Deployment {
	return &v1alpha1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "production-1"},
		Spec: v1alpha1.DeploymentSpec{
			Environment: "production",
			Source:      v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: someCommit}},
		},
	}
}

func activation(hour int) *v1alpha1.DeploymentActivation {
	return &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Date(2026, 5, 4, hour, 0, 0, 0, time.UTC))}
}

const deploymentIDMessage = "id is immutable: set it when the Deployment is created"

const (
	sourceMessage = "set one of git and bundle: a commit of the project's repository, or an upload"
	someDigest    = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var deploymentBreaches = []breach[*v1alpha1.Deployment]{
	{
		name:    "long name",
		message: "the name of a Deployment must be at most 63 lower-case letters, digits and '-': its pods have it as a label",
		change:  func(d *v1alpha1.Deployment) { d.Name = strings.Repeat("a", 64) },
	}, {
		name: "no UUID", path: ".spec.id", message: uuidMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.ID = "one" },
	}, {
		name: "an id that another object may derive", path: ".spec.id", message: uuidMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.ID = derivedID },
	}, {
		name: "id set later", path: ".spec", update: true, message: deploymentIDMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.ID = someID },
	}, {
		name: "environment that cannot be", path: ".spec.environment", message: environmentMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.Environment = "a.b" },
	}, {
		name: "another environment", path: ".spec", update: true, message: "environment is immutable: create another Deployment",
		change: func(d *v1alpha1.Deployment) { d.Spec.Environment = "staging" },
	}, {
		name: "commit of SHA-256", path: ".spec.source.git.commit", message: commitMessage,
		change: func(d *v1alpha1.Deployment) {
			d.Spec.Source.Git.Commit = v1alpha1.GitCommit(strings.Repeat("0a", 32))
		},
	}, {
		name: "another commit", path: ".spec", update: true,
		message: "source is immutable: a Deployment is one version; create another Deployment",
		change:  func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Commit = otherCommit },
	}, {
		name: "redeploy of another", path: ".spec", message: "redeployOf is immutable: create another Deployment",
		before: func(d *v1alpha1.Deployment) { d.Spec.RedeployOf = v1alpha1.DeploymentID(someID) },
		change: func(d *v1alpha1.Deployment) { d.Spec.RedeployOf = v1alpha1.DeploymentID(anotherID) },
	}, {
		name: "tests skipped later", path: ".spec", update: true, message: "skipTests is immutable: create another Deployment",
		change: func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true },
	}, {
		name: "tests not skipped any more", path: ".spec", message: "skipTests is immutable: create another Deployment",
		before: func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true },
		change: func(d *v1alpha1.Deployment) { d.Spec.SkipTests = false },
	}, {
		name: "activation at no time", path: ".spec.activation.requestedAt", message: timeMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: noTime} },
	}, {
		name: "redeploy of no UUID", path: ".spec.redeployOf", message: "must be the id of a Deployment, such as 7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10",
		change: func(d *v1alpha1.Deployment) { d.Spec.RedeployOf = "production-0" },
	}, {
		name: "failed connectors skipped after all", path: ".spec", update: true,
		message: "skipFailedConnectors is immutable: create another Deployment",
		change:  func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true },
	}, {
		name: "failed connectors not skipped after all", path: ".spec",
		message: "skipFailedConnectors is immutable: create another Deployment",
		before:  func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true },
		change:  func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = false },
	}, {
		name: "cancel taken back", path: ".spec", message: "cancel cannot be reverted: create another Deployment",
		before: func(d *v1alpha1.Deployment) { d.Spec.Cancel = true },
		change: func(d *v1alpha1.Deployment) { d.Spec.Cancel = false },
	}, {
		name: "activation in the past", path: ".spec.activation",
		message: "requestedAt must not decrease: a later time is a new request",
		before:  func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(12) },
		change:  func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(11) },
	}, {
		name: "branch that cannot be", path: ".spec.source.git.branch", message: branchMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Branch = "-x" },
	}, {
		name: "no source", path: ".spec.source", message: sourceMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.Source.Git = nil },
	}, {
		name: "two sources", path: ".spec.source", message: sourceMessage,
		change: func(d *v1alpha1.Deployment) {
			d.Spec.Source.Bundle = &v1alpha1.DeploymentBundleSource{Digest: someDigest}
		},
	}, {
		name: "no digest", path: ".spec.source.bundle.digest", message: "must be sha256: and 64 hexadecimal digits in lower case",
		change: func(d *v1alpha1.Deployment) {
			d.Spec.Source = v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: "sha256:ABC"}}
		},
	}, {
		name: "short commit", path: ".spec.source.git.commit", message: commitMessage,
		change: func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Commit = "HEAD" },
	},
}

func TestDeployment_RejectsInvalid(t *testing.T) {
	t.Parallel()
	refuse(t, newDeployment, deploymentBreaches)
}

func TestDeployment_AcceptsValid(t *testing.T) {
	t.Parallel()
	accept(t, newDeployment, []valid[*v1alpha1.Deployment]{
		{name: "as it is", change: func(*v1alpha1.Deployment) {}},
		{name: "redeploy of a derived id", change: func(d *v1alpha1.Deployment) { d.Spec.RedeployOf = v1alpha1.DeploymentID(derivedID) }},
		{name: "head of the branch", change: func(d *v1alpha1.Deployment) { d.Spec.Source.Git = &v1alpha1.DeploymentGitSource{} }},
		{name: "the uploaded bundle", change: func(d *v1alpha1.Deployment) {
			d.Spec.Source = v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: someDigest}}
		}},
		{name: "longest name", change: func(d *v1alpha1.Deployment) { d.Name = strings.Repeat("a", 63) }},
		{name: "cancelled later", update: true, change: func(d *v1alpha1.Deployment) { d.Spec.Cancel = true }},
		{name: "failed connectors skipped", change: func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true }},
		{
			name: "forced later", before: func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(12) },
			change: func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(13); d.Spec.Activation.Force = true },
		},
		{name: "activated later", update: true, change: func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(12) }},
		{
			name: "activated again", before: func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(12) },
			change: func(d *v1alpha1.Deployment) { d.Spec.Activation = activation(13) },
		},
	})
}
