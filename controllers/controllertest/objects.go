// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// At returns the metadata of an object in the namespace.
func (f *Fixture) At(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.Namespace, Name: name}
}

// withChanges applies changes to o and returns it.
func withChanges[O any](o *O, changes []func(*O)) *O {
	for _, change := range changes {
		change(o)
	}
	return o
}

// Project returns the namespace's project, with a repository.
func (f *Fixture) Project(changes ...func(*v1alpha1.Project)) *v1alpha1.Project {
	return withChanges(&v1alpha1.Project{ObjectMeta: f.At(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{
		Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git"},
	}}, changes)
}

// Environment returns an environment with default settings.
func (f *Fixture) Environment(name string, changes ...func(*v1alpha1.Environment)) *v1alpha1.Environment {
	return withChanges(&v1alpha1.Environment{ObjectMeta: f.At(name)}, changes)
}

// Deployment returns a deployment of the branch head to "dev".
func (f *Fixture) Deployment(name string, changes ...func(*v1alpha1.Deployment)) *v1alpha1.Deployment {
	return withChanges(&v1alpha1.Deployment{ObjectMeta: f.At(name), Spec: v1alpha1.DeploymentSpec{
		Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
	}}, changes)
}

// Connector returns an inbound webhook of "dev".
func (f *Fixture) Connector(name string, changes ...func(*v1alpha1.Connector)) *v1alpha1.Connector {
	return withChanges(&v1alpha1.Connector{ObjectMeta: f.At(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}, changes)
}

// Link returns a link between a connector and an agent.
func (f *Fixture) Link(name, connector, agent string, changes ...func(*v1alpha1.ConnectorLink)) *v1alpha1.ConnectorLink {
	return withChanges(&v1alpha1.ConnectorLink{ObjectMeta: f.At(name), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(connector), Agent: v1alpha1.AgentName(agent),
	}}, changes)
}

// Secret returns a user's Secret.
func (f *Fixture) Secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: f.At(name), StringData: data}
}

// OAuthApp returns an OAuth app whose client secret is in a key of a Secret.
func OAuthApp(name v1alpha1.OAuthAppName, secret v1alpha1.Name, key string) v1alpha1.OAuthApp {
	return v1alpha1.OAuthApp{ //nolint:gosec // it names a Secret
		Name: name, TokenURL: "https://login.example.com/token", ClientID: "agents",
		ClientSecretRef: v1alpha1.SecretKeyReference{Name: secret, Key: key},
	}
}

// ExpectProject creates a project that is in effect and may have pods, like the project controller.
func (f *Fixture) ExpectProject(ctx context.Context, changes ...func(*v1alpha1.Project)) *v1alpha1.Project {
	GinkgoHelper()
	project := f.Project(changes...)
	f.ExpectApplied(ctx, project)
	key := f.Key(project)
	Expect(f.Store.PutProject(ctx, store.Project{Ref: f.Ref(project), ID: key.ID})).To(Succeed())
	project.MarkNetworkReady()
	v1alpha1.MarkReady(project, "")
	f.ExpectStatus(ctx, project)
	return project
}

// ExpectEnvironment creates an environment that is in effect, like the environment controller.
func (f *Fixture) ExpectEnvironment(ctx context.Context, name string, changes ...func(*v1alpha1.Environment)) *v1alpha1.Environment {
	GinkgoHelper()
	e := f.Environment(name, changes...)
	f.ExpectApplied(ctx, e)
	key := f.Key(e)
	Expect(f.Store.PutEnvironment(ctx, store.Environment{
		Ref: f.Ref(e), ID: key.ID, ProjectID: key.ProjectID, DisplayName: e.Title(), Slug: e.WantedSlug(),
		Kind: v1alpha1.EnvironmentStandard.EnumValue(), ObjectCreatedAt: e.CreationTimestamp.Time,
	})).To(Succeed())
	e.Status.ID = key.ID.String()
	v1alpha1.MarkReady(e, "")
	f.ExpectStatus(ctx, e)
	return e
}

// ExpectConnector creates a connector that is in effect, like the connector controller.
func (f *Fixture) ExpectConnector(ctx context.Context, c *v1alpha1.Connector) {
	GinkgoHelper()
	f.ExpectApplied(ctx, c)
	key := f.Key(c)
	environment := f.Environment(string(c.Spec.Environment))
	f.ExpectExists(ctx, environment)
	Expect(f.Store.PutConnector(ctx, store.Connector{
		Ref: f.Ref(c), ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: f.Key(environment).ID, Name: c.Title(),
		Type: string(c.Type()), Mode: c.Spec.Mode.EnumValue(), Enabled: true, Config: []byte("{}"),
	})).To(Succeed())
	c.Status.ID = key.ID.String()
	v1alpha1.MarkReady(c, "")
	f.ExpectStatus(ctx, c)
}

// ExpectBuilt reports the result of a deployment's build: a bundle with agents of these names.
func (f *Fixture) ExpectBuilt(ctx context.Context, deployment store.Key, agents ...string) string {
	GinkgoHelper()
	return f.ExpectBuiltWith(ctx, deployment, nil, agents...)
}

// ExpectBuiltWith is ExpectBuilt for a repository with connectors.
func (f *Fixture) ExpectBuiltWith(ctx context.Context, deployment store.Key, connectors []store.ConnectorFile, agents ...string) string {
	GinkgoHelper()
	result := store.BuildResult{Connectors: connectors}
	for _, name := range agents {
		result.Agents = append(result.Agents, store.Agent{Name: name, Type: "llm", SourcePath: "agents/" + name + ".yaml"})
	}
	return f.ExpectBuildResult(ctx, deployment, result)
}

// ExpectBuildResult reports the result of a deployment's build, with a bundle, and returns the digest of the bundle.
func (f *Fixture) ExpectBuildResult(ctx context.Context, deployment store.Key, result store.BuildResult) string {
	GinkgoHelper()
	result.BundleDigest = f.putBundle(ctx, deployment)
	Expect(f.Store.FinishBuild(ctx, deployment, result)).To(Succeed())
	return result.BundleDigest
}

// ExpectLive makes a deployment with agents live in an environment, like its build and the deployment
// controller.
func (f *Fixture) ExpectLive(ctx context.Context, environment *v1alpha1.Environment, name string, agents ...string) store.Key {
	GinkgoHelper()
	d := f.Deployment(name)
	d.UID = "live-" + d.UID
	key := f.Key(d)
	_, err := f.Store.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: f.Ref(d), ID: key.ID, ProjectID: key.ProjectID, EnvironmentID: f.Key(environment).ID, Fingerprint: name, SourceType: "git",
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Store.StartBuild(ctx, key, "")).To(Succeed())
	f.ExpectBuilt(ctx, key, agents...)
	_, err = f.Store.Activate(ctx, store.Activation{Deployment: key})
	Expect(err).NotTo(HaveOccurred())
	return key
}

// ExpectGone deletes an object that no reconciler of the spec handles.
func (f *Fixture) ExpectGone(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(f.Admin.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed(), "%T %s", o, o.GetName())
}

// putBundle stores a separate bundle for a deployment, and returns its digest.
func (f *Fixture) putBundle(ctx context.Context, deployment store.Key) string {
	GinkgoHelper()
	content := []byte("bundle of " + deployment.String())
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err := f.Store.PutBundle(ctx, deployment, digest, bytes.NewReader(content), 1<<20)
	Expect(err).NotTo(HaveOccurred())
	return digest
}
