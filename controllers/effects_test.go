// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// effect is the visible effect of a field: in a child, in the store or in a status.
type effect struct {
	seen func(ctx context.Context, s *stage) any
	want types.GomegaMatcher
}

// effects has the effect of each field.
var effects = map[string]effect{
	"Project.displayName": {func(ctx context.Context, s *stage) any {
		s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.DisplayName = "The Team" })
		var name string
		Expect(s.Store.Database.QueryRowContext(ctx, "SELECT display_name FROM projects").Scan(&name)).To(Succeed())
		return name
	}, Equal("The Team")},
	"Project.git.url":           inBuild(func(p *v1alpha1.ProjectSpec) { p.Git.URL = "https://other.example.com" }, "--url=https://other.example.com "),
	"Project.git.provider":      told(func(git *v1alpha1.ProjectGit) { git.Provider, git.SecretRef = "GitLab", nil }, "to a Secret with a token"),
	"Project.git.apiURL":        told(func(git *v1alpha1.ProjectGit) { git.Provider, git.APIURL = "GitLab", "https://127.0.0.1/api/v4" }, "127.0.0.1"), // forbidden
	"Project.git.defaultBranch": inBuild(func(p *v1alpha1.ProjectSpec) { p.Git.DefaultBranch = "trunk" }, " --branch=trunk"),
	"Project.git.path":          inBuild(func(p *v1alpha1.ProjectSpec) { p.Git.Path = "agents/here" }, " --path=agents/here"),
	"Project.git.secretRef.name": {func(ctx context.Context, s *stage) any {
		s.ExpectApplied(ctx, s.Secret("git", nil))
		s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.Git.SecretRef = &v1alpha1.SecretReference{Name: "git"} })
		return s.build(ctx, s.Deployment(s.name()))
	}, ContainSubstring("--credentials=/etc/agentplatform/git from Secret git")},
	"Project.defaultEnvironment": {func(ctx context.Context, s *stage) any {
		s.ExpectEnvironment(ctx, "prod")
		return s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.DefaultEnvironment = "prod" }).Status.DefaultEnvironment
	}, Equal("prod")},
	"Project.telemetry.otlp.endpoint": exported(func(o *v1alpha1.OTLPExport) { o.Endpoint = "https://other.example.com" },
		func(_ *stage, stored store.Telemetry) any { return stored.Endpoint }, Equal("https://other.example.com")),
	"Project.telemetry.otlp.content": exported(func(o *v1alpha1.OTLPExport) { o.Content = v1alpha1.TelemetryContentRedacted },
		func(_ *stage, stored store.Telemetry) any { return stored.WithContent }, BeTrue()),
	"Project.telemetry.otlp.samplePercent": exported(func(o *v1alpha1.OTLPExport) { o.SamplePercent = ptr.To[int32](7) },
		func(_ *stage, stored store.Telemetry) any { return stored.SamplePercent }, Equal(7)),
	"Project.telemetry.otlp.environments": exported(func(o *v1alpha1.OTLPExport) { o.Environments = []v1alpha1.EnvironmentName{"dev"} },
		func(_ *stage, stored store.Telemetry) any { return stored.Environments }, HaveLen(1)),
	"Project.telemetry.otlp.headersSecretRef.name": {func(ctx context.Context, s *stage) any {
		secret := s.Secret(s.name(), map[string]string{"Authorization": "t0ken"})
		s.ExpectApplied(ctx, secret)
		return exported(func(o *v1alpha1.OTLPExport) {
			o.HeadersSecretRef = &v1alpha1.SecretReference{Name: v1alpha1.Name(secret.Name)}
		},
			func(s *stage, stored store.Telemetry) any {
				headers, err := s.Keys.Open(secrets.TelemetryField(s.ProjectID(s.Namespace)), stored.SealedHeaders)
				Expect(err).NotTo(HaveOccurred())
				return string(headers)
			}, nil).seen(ctx, s)
	}, ContainSubstring("t0ken")},
	"Project.limits.environments": {func(ctx context.Context, s *stage) any {
		return s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.Limits.Environments = ptr.To(int32(77)) }).Status.Limits.Environments
	}, HaveValue(BeEquivalentTo(77))},
	"Project.limits.requestsPerMinute": {func(ctx context.Context, s *stage) any {
		return s.limits(ctx, func(l *v1alpha1.ProjectLimits) { l.RequestsPerMinute = ptr.To(int32(77)) }).RequestsPerMinute
	}, BeEquivalentTo(77)},
	"Project.limits.backlogRuns": {func(ctx context.Context, s *stage) any {
		return s.limits(ctx, func(l *v1alpha1.ProjectLimits) { l.BacklogRuns = ptr.To(int64(77)) }).BacklogRuns
	}, BeEquivalentTo(77)},
	"Project.limits.backlogInput": {func(ctx context.Context, s *stage) any {
		return s.limits(ctx, func(l *v1alpha1.ProjectLimits) { l.BacklogInput = ptr.To(resource.MustParse("77Mi")) }).BacklogInput
	}, BeEquivalentTo(77 << 20)},
	"Project.limits.storage": {func(ctx context.Context, s *stage) any {
		return s.limits(ctx, func(l *v1alpha1.ProjectLimits) { l.Storage = ptr.To(resource.MustParse("77Mi")) }).Storage
	}, BeEquivalentTo(77 << 20)},
	"Project.retention.runsSeconds": {func(ctx context.Context, s *stage) any {
		return s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.Retention = &v1alpha1.ProjectRetention{RunsSeconds: 777777} }).Status.Retention.RunsSeconds
	}, BeEquivalentTo(777777)},
	"Project.modelProviders[].prefix":                         inProviders(func(p *v1alpha1.ModelProvider) { p.Prefix = "other" }, `"other"`),
	"Project.modelProviders[].baseURL":                        inProviders(func(p *v1alpha1.ModelProvider) { p.BaseURL = "https://llm.example.com" }, `"https://llm.example.com"`),
	"Project.modelProviders[].apiKeySecretRef.name":           inProviders(func(*v1alpha1.ModelProvider) {}, "value-of-one"),
	"Project.modelProviders[].apiKeySecretRef.key":            inProviders(func(p *v1alpha1.ModelProvider) { p.APIKeySecretRef.Key = "two" }, "value-of-two"),
	"Project.modelProviders[].prices[].model":                 inPrices(func(p *v1alpha1.ModelPrice) { p.Model = "other" }, `"llm/other":`),
	"Project.modelProviders[].prices[].currency":              inPrices(func(p *v1alpha1.ModelPrice) { p.Currency = v1alpha1.CurrencyEUR }, `"currency":"EUR"`),
	"Project.modelProviders[].prices[].inputPerMillion":       inPrices(func(p *v1alpha1.ModelPrice) { p.InputPerMillion = "1.5" }, `"input":1500000`),
	"Project.modelProviders[].prices[].cachedInputPerMillion": inPrices(func(p *v1alpha1.ModelPrice) { p.CachedInputPerMillion = "0.5" }, `"cached_input":500000`),
	"Project.modelProviders[].prices[].outputPerMillion":      inPrices(func(p *v1alpha1.ModelPrice) { p.OutputPerMillion = "2.5" }, `"output":2500000`),
	"Project.modelProviders[].prices[].thinkingPerMillion":    inPrices(func(p *v1alpha1.ModelPrice) { p.ThinkingPerMillion = "3.5" }, `"thinking":3500000`),
	"Project.modelProviders[].type": {func(ctx context.Context, s *stage) any {
		state := State(s.changed(ctx, func(p *v1alpha1.ProjectSpec) {
			p.ModelProviders = []v1alpha1.ModelProvider{{Prefix: "a", Type: v1alpha1.ModelProviderGemini}}
		}))
		s.changed(ctx, func(*v1alpha1.ProjectSpec) {})
		return state
	}, ContainSubstring("NotSupported")},

	"Environment.id": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.ID = s.id() })
		s.brought(ctx, e)
		return e.Status.ID == string(e.Spec.ID)
	}, BeTrue()},
	"Environment.displayName": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.DisplayName = "EU West" })
		s.brought(ctx, e)
		row, err := s.Store.Environment(ctx, s.Key(e))
		Expect(err).NotTo(HaveOccurred())
		return row.Slug + ", " + row.DisplayName
	}, Equal("eu-west, EU West")},
	"Environment.kind": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Kind = v1alpha1.EnvironmentTest })
		s.brought(ctx, e)
		row, err := s.Store.Environment(ctx, s.Key(e))
		Expect(err).NotTo(HaveOccurred())
		return row.Kind
	}, Equal("test")},
	"Environment.git.branch": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "release" })
		s.brought(ctx, e)
		return s.build(ctx, s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.Environment = v1alpha1.EnvironmentName(e.Name) }))
	}, ContainSubstring("--branch=release")},
	"Environment.git.commit": {func(ctx context.Context, s *stage) any {
		commit := strings.Repeat("ab", 20)
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) })
		s.brought(ctx, e)
		d := &v1alpha1.Deployment{ObjectMeta: s.At(e.Status.Git.Deployment)}
		s.ExpectExists(ctx, d)
		return s.build(ctx, d)
	}, ContainSubstring("--commit=abababab")},
	"Environment.git.autoDeploy":      followed(nil, time.Minute),
	"Environment.git.intervalSeconds": followed(ptr.To(int32(600)), 10*time.Minute),
	"Environment.testEnvironment": {func(ctx context.Context, s *stage) any {
		lab := s.Environment(s.name())
		s.brought(ctx, lab)
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.TestEnvironment = v1alpha1.EnvironmentName(lab.Name) })
		s.brought(ctx, e)
		built := s.build(ctx, s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.Environment = v1alpha1.EnvironmentName(e.Name) }))
		return strings.ReplaceAll(built, lab.Name+"-runner-config", "that of the test environment")
	}, ContainSubstring("that of the test environment")},
	"Environment.suspend": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Suspend = true })
		s.brought(ctx, e)
		return State(e)
	}, ContainSubstring("Suspended")},
	"Environment.variables[].name":              inVariables(plainly(v1alpha1.EnvironmentVariable{Name: "ZONE"}), `{"name":"ZONE","value":"eu"}`),
	"Environment.variables[].value":             inVariables(plainly(v1alpha1.EnvironmentVariable{}), `{"name":"REGION","value":"eu"}`),
	"Environment.variables[].sensitive":         inVariables(plainly(v1alpha1.EnvironmentVariable{Sensitive: true}), `{"name":"REGION","value":"eu","sensitive":true}`),
	"Environment.variables[].secretKeyRef.name": inVariables(secretly("one"), `{"name":"REGION","value":"value-of-one","sensitive":true}`),
	"Environment.variables[].secretKeyRef.key":  inVariables(secretly("two"), `{"name":"REGION","value":"value-of-two","sensitive":true}`),
	"Environment.variables[].sealedValue": inVariables(func(s *stage, e *v1alpha1.Environment) v1alpha1.EnvironmentVariable {
		sealed, _, err := s.Keys.Seal(secrets.VariableField(s.ProjectID(s.Namespace), uuid.MustParse(string(e.Spec.ID)), "REGION"), []byte("mine"))
		Expect(err).NotTo(HaveOccurred())
		return v1alpha1.EnvironmentVariable{SealedValue: base64.StdEncoding.EncodeToString(sealed)}
	}, `{"name":"REGION","value":"mine","sensitive":true}`),
	"Environment.oauthApps[].name":                 inOAuthApp(func(a *v1alpha1.OAuthApp) { a.Name = "erp" }, `"name":"erp"`),
	"Environment.oauthApps[].tokenURL":             inOAuthApp(func(a *v1alpha1.OAuthApp) { a.TokenURL = "https://login.example.com/o" }, `"token_url":"https://login.example.com/o"`),
	"Environment.oauthApps[].clientID":             inOAuthApp(func(a *v1alpha1.OAuthApp) { a.ClientID = "other" }, `"client_id":"other"`),
	"Environment.oauthApps[].audience":             inOAuthApp(func(a *v1alpha1.OAuthApp) { a.Audience = "crm" }, `"audience":"crm"`),
	"Environment.oauthApps[].scopes":               inOAuthApp(func(a *v1alpha1.OAuthApp) { a.Scopes = []v1alpha1.OAuthScope{"crm.read"} }, `"scopes":["crm.read"]`),
	"Environment.oauthApps[].clientSecretRef.name": inOAuthApp(func(*v1alpha1.OAuthApp) {}, `"client_secret":"value-of-one"`),
	"Environment.oauthApps[].clientSecretRef.key":  inOAuthApp(func(a *v1alpha1.OAuthApp) { a.ClientSecretRef.Key = "two" }, `"client_secret":"value-of-two"`),
	"Environment.runner.minReplicas": {func(ctx context.Context, s *stage) any {
		return s.pool(ctx, func(r *v1alpha1.RunnerPool) { r.MinReplicas = ptr.To(int32(3)) }).Spec.Replicas
	}, HaveValue(BeEquivalentTo(3))},
	"Environment.runner.maxReplicas": {func(ctx context.Context, s *stage) any {
		// Three existed before. The pool keeps as many as the maximum allows for a while. The
		// controller's own tests cover the growth of pools.
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Runner.MinReplicas = ptr.To(int32(3)) })
		s.brought(ctx, e)
		e.Spec.Runner.MinReplicas, e.Spec.Runner.MaxReplicas = ptr.To(int32(0)), ptr.To(int32(2))
		s.brought(ctx, e)
		pool := &appsv1.Deployment{ObjectMeta: s.At(e.Name + "-runner")}
		s.ExpectExists(ctx, pool)
		return pool.Spec.Replicas
	}, HaveValue(BeEquivalentTo(2))},
	"Environment.runner.concurrency": inPool(func(r *v1alpha1.RunnerPool) { r.Concurrency = 7 },
		func(p corev1.PodTemplateSpec) any { return p.Spec.Containers[0].Args }, ContainElement("--concurrency=7")),
	"Environment.runner.resources.requests": inPool(func(r *v1alpha1.RunnerPool) { r.Resources.Requests = cpu("77m") },
		func(p corev1.PodTemplateSpec) any { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }, Equal("77m")),
	"Environment.runner.resources.limits": inPool(func(r *v1alpha1.RunnerPool) { r.Resources.Limits = cpu("770m") },
		func(p corev1.PodTemplateSpec) any { return p.Spec.Containers[0].Resources.Limits.Cpu().String() }, Equal("770m")),
	"Environment.runner.nodeSelector": inPool(func(r *v1alpha1.RunnerPool) { r.NodeSelector = map[string]string{"a": "b"} },
		func(p corev1.PodTemplateSpec) any { return p.Spec.NodeSelector }, HaveKeyWithValue("a", "b")),
	"Environment.runner.tolerations": inPool(func(r *v1alpha1.RunnerPool) {
		r.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	}, func(p corev1.PodTemplateSpec) any { return p.Spec.Tolerations }, ConsistOf(HaveField("Key", "a"))),
	"Environment.runner.affinity": inPool(func(r *v1alpha1.RunnerPool) {
		r.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 7, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
		}}}}
	}, func(p corev1.PodTemplateSpec) any { return p.Spec.Affinity }, Not(BeNil())),
	"Environment.runner.runtimeClassName": inPool(func(r *v1alpha1.RunnerPool) { r.RuntimeClassName = "gvisor" },
		func(p corev1.PodTemplateSpec) any { return p.Spec.RuntimeClassName }, HaveValue(Equal("gvisor"))),
	"Environment.runner.imagePullSecrets[].name": inPool(func(r *v1alpha1.RunnerPool) { r.ImagePullSecrets = []v1alpha1.SecretReference{{Name: "registry"}} },
		func(p corev1.PodTemplateSpec) any { return p.Spec.ImagePullSecrets }, ConsistOf(HaveField("Name", "registry"))),
	"Environment.runner.labels": inPool(func(r *v1alpha1.RunnerPool) { r.Labels = map[string]string{"a": "b"} },
		func(p corev1.PodTemplateSpec) any { return p.Labels }, HaveKeyWithValue("a", "b")),
	"Environment.runner.annotations": inPool(func(r *v1alpha1.RunnerPool) { r.Annotations = map[string]string{"a": "b"} },
		func(p corev1.PodTemplateSpec) any { return p.Annotations }, HaveKeyWithValue("a", "b")),

	"Deployment.id": {func(ctx context.Context, s *stage) any {
		d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.ID = s.id() })
		s.brought(ctx, d)
		return d.Status.ID == string(d.Spec.ID)
	}, BeTrue()},
	"Deployment.environment": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name())
		s.brought(ctx, e)
		d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.Environment = v1alpha1.EnvironmentName(e.Name) })
		s.brought(ctx, d)
		row, err := s.Store.Deployment(ctx, s.Key(d))
		Expect(err).NotTo(HaveOccurred())
		return row.EnvironmentID == s.Key(e).ID
	}, BeTrue()},
	"Deployment.source.git.branch": {func(ctx context.Context, s *stage) any {
		return s.build(ctx, s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Branch = "mine" }))
	}, ContainSubstring("--branch=mine")},
	"Deployment.source.git.commit": {func(ctx context.Context, s *stage) any {
		return s.build(ctx, s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.Source.Git.Commit = "0123456789abcdef0123456789abcdef01234567" }))
	}, ContainSubstring("--commit=0123456789abcdef0123456789abcdef01234567")},
	"Deployment.source.bundle.digest": {func(ctx context.Context, s *stage) any {
		u, err := s.Store.PutUpload(ctx, s.ProjectID(s.Namespace), strings.NewReader("an upload"), store.MaxUpload)
		Expect(err).NotTo(HaveOccurred())
		d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) {
			d.Spec.Source = v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: v1alpha1.UploadDigest(u.Digest)}}
		})
		return s.build(ctx, d)
	}, ContainSubstring("--upload=sha256:")},
	"Deployment.redeployOf": {func(ctx context.Context, s *stage) any {
		id := s.id()
		d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.RedeployOf = v1alpha1.DeploymentID(id) })
		s.brought(ctx, d)
		row, err := s.Store.Deployment(ctx, s.Key(d))
		Expect(err).NotTo(HaveOccurred())
		return row.RedeployOf != nil && row.RedeployOf.String() == string(id)
	}, BeTrue()},
	"Deployment.skipTests": {func(ctx context.Context, s *stage) any {
		return s.build(ctx, s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.SkipTests = true }))
	}, ContainSubstring("--skip-tests")},
	"Deployment.cancel": {func(ctx context.Context, s *stage) any {
		d := s.Deployment(s.name())
		s.brought(ctx, d)
		d.Spec.Cancel = true
		s.brought(ctx, d)
		return d.Status.Phase
	}, Equal(v1alpha1.DeploymentCancelled)},
	"Deployment.skipFailedConnectors": {func(ctx context.Context, s *stage) any {
		return s.withBadConnector(ctx).Status.Phase
	}, Equal(v1alpha1.DeploymentDeployed)},
	"Deployment.activation.force": {func(ctx context.Context, s *stage) any {
		d := s.withBadConnector(ctx)
		d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: *at(s, 0), Force: true}
		s.brought(ctx, d)
		return d.Status.Activation.Result
	}, Equal(v1alpha1.ActivationActivated)},
	"Deployment.activation.requestedAt": {func(ctx context.Context, s *stage) any {
		d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) {
			d.Spec.Cancel, d.Spec.Activation = true, &v1alpha1.DeploymentActivation{RequestedAt: *at(s, 0)}
		})
		s.brought(ctx, d)
		return d.Status.Activation
	}, HaveValue(HaveField("Result", v1alpha1.ActivationNotDeployed))},

	"Connector.id": {func(ctx context.Context, s *stage) any {
		c := s.Connector(s.name(), func(c *v1alpha1.Connector) { c.Spec.ID = s.id() })
		s.brought(ctx, c)
		return c.Status.URL[len(c.Status.URL)-len(c.Spec.ID):] == string(c.Spec.ID)
	}, BeTrue()},
	"Connector.environment": {func(ctx context.Context, s *stage) any {
		e := s.Environment(s.name())
		s.brought(ctx, e)
		return s.row(ctx, func(c *v1alpha1.Connector) { c.Spec.Environment = v1alpha1.EnvironmentName(e.Name) }).EnvironmentID == s.Key(e).ID
	}, BeTrue()},
	"Connector.displayName": inRow(func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask us" }, "Name", "Ask us"),
	"Connector.mode":        inRow(func(c *v1alpha1.Connector) { c.Spec.Mode = v1alpha1.ModeSync }, "Mode", "sync"),
	"Connector.enabled":     inRow(func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }, "Enabled", false),
	"Connector.webhook.sealedHeaders": {func(ctx context.Context, s *stage) any {
		return s.credentials(ctx, func(c *v1alpha1.Connector) {
			c.Spec.ID = s.id()
			sealed, _, err := s.Keys.Seal(secrets.HeaderField(s.ProjectID(s.Namespace), uuid.MustParse(string(c.Spec.ID)), "X-Team"), []byte("payments"))
			Expect(err).NotTo(HaveOccurred())
			c.Spec.Webhook.SealedHeaders = map[string]string{"X-Team": base64.StdEncoding.EncodeToString(sealed)}
		})
	}, Equal(`{"headers":{"X-Team":"payments"}}`)},
	"Connector.webhook.headers": {func(ctx context.Context, s *stage) any {
		return s.message(ctx, func(c *v1alpha1.Connector) {
			makeOutbound(c)
			c.Spec.Webhook.Headers = map[string]string{"X-Team": "payments"}
		})
	}, ContainSubstring("spec.webhook.headers are only for connectors of the project's code")},
	"Connector.webhook.sealedSecret": {func(ctx context.Context, s *stage) any {
		return s.credentials(ctx, func(c *v1alpha1.Connector) {
			c.Spec.ID = s.id()
			sealed, _, err := s.Keys.Seal(secrets.SecretField(s.ProjectID(s.Namespace), uuid.MustParse(string(c.Spec.ID))), []byte("mine"))
			Expect(err).NotTo(HaveOccurred())
			c.Spec.Mode, c.Spec.Webhook = v1alpha1.ModeInbound, &v1alpha1.WebhookConnector{
				Authentication: v1alpha1.AuthenticationSlack, SealedSecret: base64.StdEncoding.EncodeToString(sealed),
			}
		})
	}, Equal(`{"secrets":["mine"]}`)},
	"Connector.headersSecretRef.name": {func(ctx context.Context, s *stage) any {
		s.ExpectApplied(ctx, s.Secret("headers", map[string]string{"X-Team": "payments"}))
		return s.credentials(ctx, func(c *v1alpha1.Connector) { c.Spec.HeadersSecretRef = &v1alpha1.SecretReference{Name: "headers"} })
	}, Equal(`{"headers":{"X-Team":"payments"}}`)},
	"Connector.secretVersion":            inRow(func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 7 }, "SecretVersion", BeEquivalentTo(7)),
	"Connector.secretGracePeriodSeconds": inGrace(),
	"Connector.secretRef.name": {func(ctx context.Context, s *stage) any {
		s.ExpectApplied(ctx, s.Secret("own", map[string]string{"secret": "a secret of mine"}))
		return s.row(ctx, func(c *v1alpha1.Connector) { c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "own"} }).SecretKey
	}, BeEmpty()},

	"ConnectorLink.id": {func(ctx context.Context, s *stage) any {
		connector := s.Connector(s.name())
		s.brought(ctx, connector)
		l := s.Link(s.name(), connector.Name, "hello", func(l *v1alpha1.ConnectorLink) { l.Spec.ID = s.id() })
		s.brought(ctx, l)
		return l.Status.ID == string(l.Spec.ID)
	}, BeTrue()},
	"ConnectorLink.outbound.mode": inPolicy(func(context.Context, *stage, *v1alpha1.OutboundLink) {}, HaveField("Mode", store.LinkAutomatic)),
	"ConnectorLink.outbound.actionName": inPolicy(func(_ context.Context, _ *stage, l *v1alpha1.OutboundLink) {
		l.Mode, l.ActionName = v1alpha1.LinkAgentTool, "tell"
	}, And(HaveField("Mode", store.LinkAgentTool), HaveField("ActionName", "tell"))),
	"ConnectorLink.outbound.statuses": inPolicy(func(_ context.Context, _ *stage, l *v1alpha1.OutboundLink) {
		l.Statuses = []v1alpha1.LinkStatus{v1alpha1.LinkFailed}
	}, HaveField("Statuses", []store.RunStatus{store.RunFailed})),
	"ConnectorLink.outbound.sourceConnectors": inPolicy(func(ctx context.Context, s *stage, l *v1alpha1.OutboundLink) {
		s.brought(ctx, s.Connector("source"))
		l.SourceConnectors = []v1alpha1.ConnectorName{"source"}
	}, HaveField("SourceConnectorIDs", HaveLen(1))),
	"ConnectorLink.connector": inRoute("hello"),
	"ConnectorLink.agent":     inRoute("another"),
	"ConnectorLink.filesRequired": {func(ctx context.Context, s *stage) any {
		connector := s.Connector(s.name())
		s.brought(ctx, connector)
		s.brought(ctx, s.Link(s.name(), connector.Name, "hello", func(l *v1alpha1.ConnectorLink) { l.Spec.FilesRequired = true }))
		route, err := s.Store.Route(ctx, s.Key(connector))
		Expect(err).NotTo(HaveOccurred())
		return route.Links[0].FilesRequired
	}, BeTrue()},

	"APIKey.id":          inState(func(s *stage, k *v1alpha1.APIKeySpec) { k.ID = s.id() }, "Ready=True"),
	"APIKey.displayName": inAudit(func(k *v1alpha1.APIKeySpec) { k.DisplayName = "Nightly" }, "Nightly"),
	"APIKey.hash":        inAudit(func(k *v1alpha1.APIKeySpec) {}, `"hash"`),
	"APIKey.keyID":       inAudit(func(k *v1alpha1.APIKeySpec) { k.KeyID = "Zz3dEf7h" }, "Zz3dEf7h"),
	"APIKey.access": inAudit(func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.view"}
	}, `"Selected"`),
	"APIKey.environmentAccess": inAudit(func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"dev"}
	}, `"Selected"`),
	"APIKey.environments": inAudit(func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"prod"}
	}, `"prod"`),
	"APIKey.owner.kind": inAudit(func(k *v1alpha1.APIKeySpec) { k.Owner.Kind = v1alpha1.OwnerServiceAccount }, `"ServiceAccount"`),
	"APIKey.owner.name": inAudit(func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "bertha" }, "bertha"),
	"APIKey.permissions": inState(func(_ *stage, k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.veiw"}
	}, "PermissionUnknown"),
	"APIKey.owner.groups": inState(func(_ *stage, k *v1alpha1.APIKeySpec) { k.Owner.Groups = []string{"system:masters"} }, "system:masters"),
	"APIKey.expiresAt":    inState(func(s *stage, k *v1alpha1.APIKeySpec) { k.ExpiresAt = at(s, -time.Hour) }, "Expired"),
	"APIKey.revoked":      inState(func(_ *stage, k *v1alpha1.APIKeySpec) { k.Revoked = true }, "Revoked"),
}
