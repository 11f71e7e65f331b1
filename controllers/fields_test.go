// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/apikey"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/connector"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/deployment"
	"github.com/agentplatform/agentplatform/controllers/project"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// stage is a namespace with a reconciler of each kind. They read as from the cache of a manager.
type stage struct {
	*controllertest.Fixture
	by map[string]reconcile.Reconciler
	// made counts objects, for their names.
	made int
}

func newStage(ctx context.Context) *stage {
	GinkgoHelper()
	f := controllertest.New()
	f.PlatformPlan.Environments = 100
	f.PlatformPlan.Runner.Labels, f.PlatformPlan.Runner.Annotations = []string{"*"}, []string{"*"}
	f.PlatformPlan.Runner.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	f.PlatformPlan.Runner.RuntimeClassNames = []string{"gvisor"}
	pods := base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"}
	s := &stage{Fixture: f, by: map[string]reconcile.Reconciler{
		"Project":       &project.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, Network: project.Network{SystemNamespace: f.Namespace}},
		"Environment":   environmenttest.On(f).R,
		"Deployment":    &deployment.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, Pods: pods},
		"Connector":     &connector.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, Damper: &connector.ReportDamper{}, GatewayURL: "https://hooks.example.com"},
		"ConnectorLink": &connectorlink.Reconciler{Base: f.Base, Store: f.Store},
		"APIKey":        &apikey.Reconciler{Base: f.Base, Audit: f.Store},
	}}
	s.brought(ctx, s.Project())
	s.brought(ctx, s.Environment("dev"))
	return s
}

// brought applies an object and reconciles it.
func (s *stage) brought(ctx context.Context, o v1alpha1.ConditionedObject) {
	GinkgoHelper()
	s.ExpectApplied(ctx, o)
	s.ExpectReconciled(ctx, s.by[o.ObjectKind()], o)
}

// name returns a new name each time.
func (s *stage) name() string {
	s.made++
	return fmt.Sprintf("o%d", s.made)
}

// id returns a new ID each time, and the same sequence in each run.
func (s *stage) id() v1alpha1.UUID {
	s.made++
	return v1alpha1.UUID(fmt.Sprintf("7b0c7a52-6c1f-4c3e-9a55-%012d", s.made))
}

// build reconciles a deployment until its build, and returns the arguments of the Job's fetch container
// and its Secrets.
func (s *stage) build(ctx context.Context, d *v1alpha1.Deployment) string {
	GinkgoHelper()
	s.brought(ctx, d)
	job := &batchv1.Job{ObjectMeta: s.At(d.Name + "-build")}
	s.ExpectExists(ctx, job)
	spec := job.Spec.Template.Spec
	var args []string
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
		args = append(args, c.Args...)
	}
	asked := strings.Join(args, " ")
	for _, v := range spec.Volumes {
		if v.Name == "git" || v.Name == "config" {
			asked += " from Secret " + v.Secret.SecretName
		}
	}
	return asked
}

// changed applies a change to the project, reconciles it and returns a copy.
func (s *stage) changed(ctx context.Context, change func(*v1alpha1.ProjectSpec)) *v1alpha1.Project {
	GinkgoHelper()
	p := s.Project()
	s.ExpectExists(ctx, p)
	p.Spec = s.Project().Spec
	change(&p.Spec)
	s.brought(ctx, p)
	return p
}

// limits changes the project's limits and returns the stored ones.
func (s *stage) limits(ctx context.Context, change func(*v1alpha1.ProjectLimits)) store.ProjectLimits {
	GinkgoHelper()
	p := s.changed(ctx, func(spec *v1alpha1.ProjectSpec) { change(&spec.Limits) })
	load, err := s.Store.ProjectLoad(ctx, uuid.MustParse(p.Status.ID))
	Expect(err).NotTo(HaveOccurred())
	return load.Limits
}

// providers returns the configuration of a new environment's runners.
func (s *stage) providers(ctx context.Context, p v1alpha1.ModelProvider) string {
	GinkgoHelper()
	s.changed(ctx, func(spec *v1alpha1.ProjectSpec) { spec.ModelProviders = []v1alpha1.ModelProvider{p} })
	return s.runnerConfig(ctx, s.Environment(s.name()), runnerconfig.ProvidersFile)
}

// runnerConfig returns a file of a new environment's runners.
func (s *stage) runnerConfig(ctx context.Context, e *v1alpha1.Environment, file string) string {
	GinkgoHelper()
	s.brought(ctx, e)
	config := &corev1.Secret{ObjectMeta: s.At(e.Name + "-runner-config")}
	s.ExpectExists(ctx, config)
	return string(config.Data[file])
}

// pool returns the pool of a new environment with changed runner settings.
func (s *stage) pool(ctx context.Context, change func(*v1alpha1.RunnerPool)) *appsv1.Deployment {
	GinkgoHelper()
	e := s.Environment(s.name())
	s.brought(ctx, e)
	change(&e.Spec.Runner) // change it later, so that the effect is the effect of a change
	s.brought(ctx, e)
	pool := &appsv1.Deployment{ObjectMeta: s.At(e.Name + "-runner")}
	s.ExpectExists(ctx, pool)
	return pool
}

// row returns the row of a new connector with a change.
func (s *stage) row(ctx context.Context, change func(*v1alpha1.Connector)) store.Connector {
	GinkgoHelper()
	c := s.Connector(s.name())
	change(c)
	s.brought(ctx, c)
	row, err := s.Store.Connector(ctx, s.Key(c))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// message returns the message of a connector with a change.
func (s *stage) message(ctx context.Context, change func(*v1alpha1.Connector)) string {
	GinkgoHelper()
	c := s.Connector(s.name())
	change(c)
	s.brought(ctx, c)
	return controllertest.Message(c)
}

// credentials returns the sealed values of a new outbound connector with a change.
func (s *stage) credentials(ctx context.Context, change func(*v1alpha1.Connector)) string {
	GinkgoHelper()
	row := s.row(ctx, func(c *v1alpha1.Connector) { makeOutbound(c); change(c) })
	Expect(row.SealedKey).To(Equal(s.Keys.SealingKey()))
	plain, err := s.Keys.Open(secrets.CredentialsField(row.ProjectID, row.ID), row.Sealed)
	Expect(err).NotTo(HaveOccurred())
	return string(plain)
}

// key creates an API key with a change. It returns the key and its audit log entry.
func (s *stage) key(ctx context.Context, change func(*v1alpha1.APIKeySpec)) (*v1alpha1.APIKey, string) {
	GinkgoHelper()
	k := &v1alpha1.APIKey{ObjectMeta: s.At(s.name()), Spec: v1alpha1.APIKeySpec{
		Hash: strings.Repeat("0a", 32), KeyID: "Ab3dEf7h", Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
	}}
	change(&k.Spec)
	s.brought(ctx, k)
	entries, err := s.Store.ListAudit(ctx, store.AuditQuery{ProjectID: s.ProjectID(s.Namespace), Limit: 1})
	Expect(err).NotTo(HaveOccurred())
	return k, string(entries[0].Outcome.After)
}

// withBadConnector deploys code with an invalid connector that the deployment may skip.
func (s *stage) withBadConnector(ctx context.Context) *v1alpha1.Deployment {
	GinkgoHelper()
	d := s.Deployment(s.name(), func(d *v1alpha1.Deployment) { d.Spec.SkipFailedConnectors = true })
	s.brought(ctx, d)
	s.ExpectBuiltWith(ctx, s.Key(d), []store.ConnectorFile{{Key: "bad", Content: "type: mail"}}, "hello")
	s.brought(ctx, d)
	return d
}

// whole are fields with parts of Kubernetes types, or with arbitrary names.
var whole = []string{"nodeSelector", "tolerations", "affinity", "requests", "limits", "labels", "annotations"}

// leaves collects the fields of a schema by their paths.
func leaves(path string, node apiextensionsv1.JSONSchemaProps, found map[string]bool) {
	for name, property := range node.Properties {
		below := path + "." + name
		if strings.HasSuffix(path, ".runner") || strings.HasSuffix(path, ".resources") {
			if slices.Contains(whole, name) {
				found[below] = true
				continue
			}
		}
		item := property
		if property.Items != nil && property.Items.Schema != nil {
			item = *property.Items.Schema
			if len(item.Properties) > 0 {
				below += "[]"
			}
		}
		if len(item.Properties) == 0 {
			found[below] = true
			continue
		}
		leaves(below, item, found)
	}
}

var _ = Describe("Each field of a spec", func() {
	It("has a row in the table of effects", func(ctx SpecContext) {
		f := controllertest.New()
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(f.Admin.List(ctx, list)).To(Succeed())
		found := map[string]bool{}
		for _, crd := range list.Items {
			leaves(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], found)
		}
		for field := range found {
			Expect(effects).To(HaveKey(field), "what becomes of it when it is changed?")
		}
		for field := range effects {
			Expect(found).To(HaveKey(field), "the CRDs have no such field")
		}
	})

	for _, kind := range store.Kinds {
		It("has its effect: "+kind, func(ctx SpecContext) {
			s := newStage(ctx)
			for _, field := range slices.Sorted(maps.Keys(effects)) {
				if of, _, _ := strings.Cut(field, "."); of == kind {
					By(field)
					Expect(effects[field].seen(ctx, s)).To(effects[field].want, field)
				}
			}
		}, SpecTimeout(time.Minute))
	}
})

// at returns a time relative to the clock.
func at(s *stage, after time.Duration) *metav1.Time {
	moment := metav1.NewTime(s.Clock.Now().Add(after).Truncate(time.Second))
	return &moment
}
