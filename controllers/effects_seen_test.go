// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"cmp"
	"context"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/commitstatus"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/testenv/connectortest"
	"github.com/agentplatform/agentplatform/store"
)

// inBuild reads the Job of a deployment after a change of its project.
func inBuild(change func(*v1alpha1.ProjectSpec), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		s.changed(ctx, change)
		return s.build(ctx, s.Deployment(s.name()))
	}, ContainSubstring(want)}
}

// told reads a Deployment's commit status after a change of the Git settings.
func told(change func(*v1alpha1.ProjectGit), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		secret := s.Secret(s.name(), map[string]string{"bearerToken": "t0ken"})
		s.ExpectApplied(ctx, secret)
		s.changed(ctx, func(p *v1alpha1.ProjectSpec) {
			p.Git.URL, p.Git.SecretRef = "https://git.example.com/team/agents", &v1alpha1.SecretReference{Name: v1alpha1.Name(secret.Name)}
			change(p.Git)
		})
		e, d, now := s.ExpectEnvironment(ctx, s.name()), s.Deployment(s.name()), metav1.NewTime(s.Clock.Now().Truncate(time.Second))
		e.Status.Slug, d.Spec.Environment = "told", v1alpha1.EnvironmentName(e.Name)
		s.ExpectStatus(ctx, e)
		s.ExpectApplied(ctx, d)
		d.Status.Phase, d.Status.Commit, d.Status.EndedAt = v1alpha1.DeploymentDeployed, strings.Repeat("a", 40), &now
		s.ExpectStatus(ctx, d)
		s.ExpectReconciled(ctx, &commitstatus.Reconciler{Base: s.Base, Guard: egress.New(egress.Rules{})}, d)
		return d.Status.CommitStatus.Message
	}, ContainSubstring(want)}
}

// exported reads the stored export of traces after a change of the settings of the collector.
func exported(change func(*v1alpha1.OTLPExport), seen func(s *stage, stored store.Telemetry) any, want types.GomegaMatcher) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		p := s.changed(ctx, func(p *v1alpha1.ProjectSpec) {
			otlp := &v1alpha1.OTLPExport{Endpoint: "https://otlp.example.com"}
			change(otlp)
			p.Telemetry = &v1alpha1.ProjectTelemetry{OTLP: otlp}
		})
		stored, err := s.Store.ProjectTelemetry(ctx, uuid.MustParse(p.Status.ID))
		Expect(err).NotTo(HaveOccurred())
		return seen(s, *stored)
	}, want}
}

// inPool reads the pool of an environment after a change of its runner settings.
func inPool(change func(*v1alpha1.RunnerPool), seen func(pods corev1.PodTemplateSpec) any, want types.GomegaMatcher) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		return seen(s.pool(ctx, change).Spec.Template)
	}, want}
}

// inProviders reads the model providers in the runners' configuration.
func inProviders(change func(*v1alpha1.ModelProvider), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		name := s.name()
		s.ExpectApplied(ctx, s.Secret(name, map[string]string{"one": "value-of-one", "two": "value-of-two"}))
		p := v1alpha1.ModelProvider{
			Prefix: "llm", Type: v1alpha1.ModelProviderOpenAI,
			APIKeySecretRef: &v1alpha1.SecretKeyReference{Name: v1alpha1.Name(name), Key: "one"},
		}
		change(&p)
		return s.providers(ctx, p)
	}, ContainSubstring(want)}
}

// inPrices reads the prices in the runners' configuration.
func inPrices(change func(*v1alpha1.ModelPrice), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		price := v1alpha1.ModelPrice{Model: "one", InputPerMillion: "1", OutputPerMillion: "2"}
		change(&price)
		s.changed(ctx, func(spec *v1alpha1.ProjectSpec) {
			spec.ModelProviders = []v1alpha1.ModelProvider{{Prefix: "llm", Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://llm.example.com/v1", Prices: []v1alpha1.ModelPrice{price}}}
		})
		return s.runnerConfig(ctx, s.Environment(s.name()), runnerconfig.PricesFile)
	}, ContainSubstring(want)}
}

// inVariables reads the variables in the runners' configuration; value is the variable REGION.
func inVariables(value func(s *stage, e *v1alpha1.Environment) v1alpha1.EnvironmentVariable, want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.ID = s.id() })
		s.ExpectApplied(ctx, s.Secret(e.Name, map[string]string{"one": "value-of-one", "two": "value-of-two"}))
		e.Spec.Variables = []v1alpha1.EnvironmentVariable{value(s, e)}
		e.Spec.Variables[0].Name = cmp.Or(e.Spec.Variables[0].Name, "REGION")
		return s.runnerConfig(ctx, e, runnerconfig.VariablesFile)
	}, Equal(`{"variables":[` + want + `]}`)}
}

// inOAuthApp reads the OAuth app in the runners' configuration.
func inOAuthApp(change func(*v1alpha1.OAuthApp), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		e := s.Environment(s.name())
		s.ExpectApplied(ctx, s.Secret(e.Name, map[string]string{"one": "value-of-one", "two": "value-of-two"}))
		app := v1alpha1.OAuthApp{
			Name: "crm", TokenURL: "https://login.example.com/token", ClientID: "agents",
			ClientSecretRef: v1alpha1.SecretKeyReference{Name: v1alpha1.Name(e.Name), Key: "one"},
		}
		change(&app)
		e.Spec.OAuthApps = []v1alpha1.OAuthApp{app}
		return s.runnerConfig(ctx, e, runnerconfig.VariablesFile)
	}, ContainSubstring(want)}
}

// plainly is a variable with a value in the object, secretly one with a value from a Secret.
func plainly(v v1alpha1.EnvironmentVariable) func(*stage, *v1alpha1.Environment) v1alpha1.EnvironmentVariable {
	return func(*stage, *v1alpha1.Environment) v1alpha1.EnvironmentVariable { v.Value = ptr.To("eu"); return v }
}

func secretly(key string) func(*stage, *v1alpha1.Environment) v1alpha1.EnvironmentVariable {
	return func(_ *stage, e *v1alpha1.Environment) v1alpha1.EnvironmentVariable {
		return v1alpha1.EnvironmentVariable{SecretKeyRef: &v1alpha1.SecretKeyReference{Name: v1alpha1.Name(e.Name), Key: key}}
	}
}

// inRow reads the row of a connector.
func inRow(change func(*v1alpha1.Connector), field string, want any) effect {
	return effect{func(ctx context.Context, s *stage) any { GinkgoHelper(); return s.row(ctx, change) }, HaveField(field, want)}
}

// inSettings reads the settings in the row of a connector.
func inSettings(change func(*v1alpha1.Connector), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		return string(s.row(ctx, change).Config)
	}, ContainSubstring(want)}
}

// The value of a setting is in the row of a connector that has it.
func init() {
	for _, kind := range connector.Kinds() {
		for _, f := range kind.Fields() {
			path := "Connector." + kind.Type() + "." + crd.FieldName(f.Name)
			if f.Type != reflect.TypeFor[*connector.Retry]() {
				addSetting(path, kind, f, f)
				continue
			}
			for _, inner := range connector.RetryFields() {
				addSetting(path+"."+crd.FieldName(inner.Name), kind, f, inner)
			}
		}
	}
	delete(effects, "Connector.webhook.requireAuthentication") // the value None of authentication
}

// addSetting adds the effect of a field of a setting, unless effects has one already.
func addSetting(path string, kind connector.Kind, setting, field connector.Field) {
	if _, known := effects[path]; known {
		return
	}
	effects[path] = inSettings(func(c *v1alpha1.Connector) {
		c.Spec.Webhook, c.Spec.Mode = nil, v1alpha1.ConnectorModeOf(kind.Mode())
		crd.SetConfig(&c.Spec, kind, connectortest.With(GinkgoTB(), connectortest.Required(kind), setting))
	}, strconv.Quote(field.Name)+":"+connectortest.Sample(field))
}

func makeOutbound(c *v1alpha1.Connector) {
	c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://example.com/results"
}

// inPolicy reads the store's policy of a link to an outbound connector.
func inPolicy(change func(context.Context, *stage, *v1alpha1.OutboundLink), want types.GomegaMatcher) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		connector := s.Connector(s.name())
		makeOutbound(connector)
		s.brought(ctx, connector)
		link := s.Link(s.name(), connector.Name, "hello", func(l *v1alpha1.ConnectorLink) {
			l.Spec.Outbound = &v1alpha1.OutboundLink{}
			change(ctx, s, l.Spec.Outbound)
		})
		s.brought(ctx, link)
		route, err := s.Store.Route(ctx, s.Key(connector))
		Expect(err).NotTo(HaveOccurred())
		Expect(route.Links).To(HaveLen(1))
		return *route.Links[0].Outbound
	}, want}
}

// inAudit reads the audit log of a key. The facade reads the object itself.
func inAudit(change func(*v1alpha1.APIKeySpec), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		_, entry := s.key(ctx, change)
		return entry
	}, ContainSubstring(want)}
}

// inState reads the state of a key.
func inState(change func(s *stage, spec *v1alpha1.APIKeySpec), want string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		k, _ := s.key(ctx, func(spec *v1alpha1.APIKeySpec) { change(s, spec) })
		return State(k) + ": " + Message(k)
	}, ContainSubstring(want)}
}

func cpu(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

// inGrace reads how long the previous secret stays valid.
func inGrace() effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		c := s.Connector(s.name(), func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0)) })
		s.brought(ctx, c)
		c.Spec.SecretVersion = 2
		s.brought(ctx, c)
		row, err := s.Store.Connector(ctx, s.Key(c))
		Expect(err).NotTo(HaveOccurred())
		return row.Secrets
	}, HaveLen(1)}
}

// inRoute reads the agents that the gateway starts.
func inRoute(agent string) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		connector := s.Connector(s.name())
		s.brought(ctx, connector)
		s.brought(ctx, s.Link(s.name(), connector.Name, agent))
		route, err := s.Store.Route(ctx, s.Key(connector))
		Expect(err).NotTo(HaveOccurred())
		return route.Links
	}, ConsistOf(HaveField("AgentName", agent))}
}

// followed reads the time until the next poll of a repository whose branch an environment follows.
func followed(seconds *int32, want time.Duration) effect {
	return effect{func(ctx context.Context, s *stage) any {
		GinkgoHelper()
		e := s.Environment(s.name(), func(e *v1alpha1.Environment) { e.Spec.Git.AutoDeploy, e.Spec.Git.IntervalSeconds = true, seconds })
		s.ExpectApplied(ctx, e)
		defer s.ExpectGone(ctx, e)
		branches := &gitfollower.Reconciler{
			Base: s.Base, Guard: egress.New(egress.Rules{}), Heads: gitfollower.NewHeads(), Changed: environmenttest.On(s.Fixture).Changed, Metrics: metrics.NewManager(nil),
		}
		project := s.changed(ctx, func(p *v1alpha1.ProjectSpec) { p.Git = &v1alpha1.ProjectGit{URL: "https://127.0.0.1/x.git"} }) // forbidden
		return s.ExpectReconciled(ctx, branches, project).RequeueAfter.Truncate(want)
	}, Equal(want)}
}
