// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("The path of a change", func() {
	It("leads from manifests to a live deployment with webhooks, and back", func(ctx SpecContext) {
		p := start()
		ns := p.plane.Namespace(GinkgoTB())
		at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		project := &v1alpha1.Project{ObjectMeta: at("project"), Spec: v1alpha1.ProjectSpec{
			Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git"},
		}}
		environment := &v1alpha1.Environment{ObjectMeta: at("dev")}
		version := &v1alpha1.Deployment{ObjectMeta: at("v1"), Spec: v1alpha1.DeploymentSpec{
			Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
		}}
		connector := &v1alpha1.Connector{ObjectMeta: at("ask"), Spec: v1alpha1.ConnectorSpec{
			Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
		}}
		link := &v1alpha1.ConnectorLink{ObjectMeta: at("ask-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "hello"}}
		stray := &v1alpha1.ConnectorLink{ObjectMeta: at("ask-nobody"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "nobody"}}
		// In a wrong order, as manifests may come.
		for _, o := range []client.Object{link, stray, connector, version, environment, project} {
			Expect(p.client.Create(ctx, o)).To(Succeed())
		}

		By("starting a build with separate credentials")
		job := &batchv1.Job{ObjectMeta: at("v1-build")}
		p.eventually(ctx, job, func() bool { return job.UID != "" })
		Expect(job.Spec.Template.Spec.Containers[0].Args).To(ContainElement("--dispatch-url=https://dispatch.example.svc:8081"))
		pool := &appsv1.Deployment{ObjectMeta: at("dev-runner")}
		p.eventually(ctx, pool, func() bool { return pool.UID != "" })

		By("going live after the build has reported")
		p.eventually(ctx, version, func() bool { return version.Status.Phase == v1alpha1.DeploymentBuilding })
		p.eventually(ctx, project, ready(project))
		key := func(o v1alpha1.ConditionedObject) store.Key {
			return store.Key{ProjectID: uuid.MustParse(project.Status.ID), ID: uuid.MustParse(o.CommonStatus().ID)}
		}
		p.build(ctx, key(version))
		p.eventually(ctx, version, func() bool { return version.Status.Live })
		Expect(version.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed))
		p.eventually(ctx, environment, func() bool { return environment.Status.LiveDeployment == "v1" })
		Expect(environment.Status.Default).To(BeTrue())

		By("serving the connector")
		p.eventually(ctx, link, ready(link))
		p.eventually(ctx, stray, func() bool {
			ready := stray.Status.Condition(v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonAgentUnknown
		})
		p.eventually(ctx, connector, ready(connector))
		Expect(connector.Status.URL).To(Equal("https://hooks.example.com/hooks/" + project.Status.ID + "/" + connector.Status.ID))
		shown := &corev1.Secret{ObjectMeta: at(connector.Status.SecretName)}
		p.eventually(ctx, shown, func() bool { return len(shown.Data["secret"]) > 0 })
		route, err := p.store.Route(ctx, key(connector))
		Expect(err).NotTo(HaveOccurred())
		Expect(route.Links).To(HaveLen(2))
		Expect(route.Connector.Secrets[0].SHA256).To(Equal(secrets.Digest(string(shown.Data["secret"]))))

		By("removing a deleted connector from the store")
		Expect(p.client.Delete(ctx, connector)).To(Succeed())
		Eventually(func() error {
			_, err := p.store.Route(ctx, route.Connector.Key())
			return err
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(MatchError(store.ErrNotFound))
	}, SpecTimeout(2*time.Minute))
})

// eventually reads o until the condition holds.
func (p *platform) eventually(ctx context.Context, o client.Object, holds func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		return p.client.Get(ctx, client.ObjectKeyFromObject(o), o) == nil && holds()
	}).WithContext(ctx).WithTimeout(30*time.Second).WithPolling(50*time.Millisecond).Should(BeTrue(), "%T %s: %+v", o, o.GetName(), o)
}

// build reports the result of a deployment's build.
func (p *platform) build(ctx context.Context, deployment store.Key) {
	GinkgoHelper()
	content := []byte("bundle")
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err := p.store.PutBundle(ctx, deployment, digest, bytes.NewReader(content), 1<<20)
	Expect(err).NotTo(HaveOccurred())
	Expect(p.store.FinishBuild(ctx, deployment, store.BuildResult{
		BundleDigest: digest, Agents: []store.Agent{{Name: "hello", Type: "llm", SourcePath: "agents/hello.yaml"}},
	})).To(Succeed())
}
