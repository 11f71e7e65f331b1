// SPDX-License-Identifier: Apache-2.0

package runnerpool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/runnerpool"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("The pool of an Environment", func() {
	It("is repaired after a user deletes or changes a part of it", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		config := &corev1.Secret{ObjectMeta: s.At("dev-runner-config")}
		s.ExpectExists(ctx, config)
		content := config.Data
		config.Data = map[string][]byte{runnerconfig.ProvidersFile: []byte("edited")}
		s.ExpectApplied(ctx, config)
		pool := s.Pool(ctx, e)
		spec := pool.Spec.DeepCopy()
		pool.Spec.Template.Spec.Containers[0].Image, pool.Spec.Replicas = "edited", ptr.To(int32(9))
		s.ExpectApplied(ctx, pool)
		s.ExpectReconciled(ctx, s.R, e)
		s.ExpectExists(ctx, config)
		Expect(config.Data).To(Equal(content))
		Expect(s.Pool(ctx, e).Spec).To(Equal(*spec))

		s.ExpectGone(ctx, config)
		s.ExpectGone(ctx, s.Pool(ctx, e))
		s.ExpectReconciled(ctx, s.R, e)
		Expect(s.Children(ctx, e.UID)).To(ConsistOf(environmenttest.ChildrenOfDev))
		Expect(s.Pool(ctx, e).Spec).To(Equal(*spec))
	})

	It("has a token in the store, and a new one if it is missing", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		secret := &corev1.Secret{ObjectMeta: s.At("dev-runner-token")}
		known := func() (string, error) {
			GinkgoHelper()
			s.ExpectExists(ctx, secret)
			token := string(secret.Data[base.TokenKey])
			found, err := s.Store.Token(ctx, secrets.Digest(token))
			if err == nil {
				Expect(found.Environment()).To(Equal(s.Key(e)))
				Expect(found.Kind).To(Equal(store.TokenRunner))
			}
			return token, err
		}
		first, err := known()
		Expect(err).NotTo(HaveOccurred())
		pods := s.Pool(ctx, e).Spec.Template
		s.ExpectGone(ctx, secret)
		s.ExpectReconciled(ctx, s.R, e)
		second, err := known()
		Expect(err).NotTo(HaveOccurred())
		Expect(second).NotTo(Equal(first))
		Expect(s.Pool(ctx, e).Spec.Template).NotTo(Equal(pods), "pods with the token of before are no use")
		_, err = s.Store.Token(ctx, secrets.Digest(first))
		Expect(err).To(MatchError(store.ErrNotFound))

		secret.Data = map[string][]byte{base.TokenKey: nil}
		s.ExpectApplied(ctx, secret)
		s.ExpectReconciled(ctx, s.R, e)
		third, err := known()
		Expect(err).NotTo(HaveOccurred())
		Expect(third).NotTo(BeEmpty(), "an empty one is none")
	})

	It("gets new pods after a change of a model provider's key", func(ctx SpecContext) {
		s := newScene(ctx, func(p *v1alpha1.Project) {
			p.Spec.ModelProviders = []v1alpha1.ModelProvider{{
				Prefix: "llm", Type: v1alpha1.ModelProviderOpenAI, BaseURL: "https://llm.example.com/v1",
				APIKeySecretRef: &v1alpha1.SecretKeyReference{Name: "llm", Key: "key"},
			}}
		})
		e := s.Environment("dev")
		Expect(s.ApplyAndReconcile(ctx, e)).To(Equal(base.MaxRetryInterval))
		Expect(State(e)).To(Equal("Ready=False/SecretMissing Reconciling"))
		key := s.Secret("llm", map[string]string{"else": "x"})
		s.ExpectApplied(ctx, key)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=False/SecretInvalid Reconciling"))

		key.StringData = map[string]string{"key": "first\nsecond"}
		s.ExpectApplied(ctx, key)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=False/SecretInvalid Reconciling"))
		Expect(Message(e)).To(And(ContainSubstring(`its key "key" contains a line break`), Not(ContainSubstring("second"))))

		digests := map[string]bool{}
		for _, value := range []string{"first", "second"} {
			key.StringData = map[string]string{"key": value + "\n"} // like a value from a file
			s.ExpectApplied(ctx, key)
			s.ExpectReconciled(ctx, s.R, e)
			config := &corev1.Secret{ObjectMeta: s.At("dev-runner-config")}
			s.ExpectExists(ctx, config)
			var providers runnerconfig.Providers
			Expect(json.Unmarshal(config.Data[runnerconfig.ProvidersFile], &providers)).To(Succeed())
			Expect(providers.Providers).To(Equal([]runnerconfig.Provider{
				{Prefix: "llm", Type: runnerconfig.ProviderOpenAI, BaseURL: "https://llm.example.com/v1", APIKey: value},
			}))
			digests[s.Pool(ctx, e).Spec.Template.Annotations["agentplatform.dev/config"]] = true
		}
		Expect(digests).To(HaveLen(2))
		s.StartRunners(ctx, e, 1)
		s.ExpectAtRest(ctx, s.R, e)
	})

	It("gets a new image of the platform after other pools", func(ctx SpecContext) {
		s := newScene(ctx)
		var all []*v1alpha1.Environment
		for i := range runnerpool.MaxRollouts + 2 {
			all = append(all, s.ExpectReady(ctx, s.Environment(fmt.Sprintf("e%d", i))))
		}
		s.Runners.Pods.Image = "platform:2"
		images := func() (updated int) {
			GinkgoHelper()
			for _, e := range all {
				s.ExpectReconciled(ctx, s.R, e)
				if s.Pool(ctx, e).Spec.Template.Spec.Containers[0].Image == "platform:2" {
					updated++
				}
			}
			return updated
		}
		Expect(images()).To(Equal(runnerpool.MaxRollouts))
		Expect(State(all[0])).To(Equal("Ready=False/RunnersStarting Reconciling observed"))
		last := all[len(all)-1]
		Expect(State(last)).To(Equal("Ready=True/Succeeded observed"), "the runners of before go on")
		Expect(Message(last)).To(ContainSubstring("after the runners of other environments"))
		Expect(images()).To(Equal(runnerpool.MaxRollouts), "nobody has come to an end")
		Expect(s.Queued()).To(BeEmpty())

		By("one rollout ends")
		s.StartRunners(ctx, all[0], 1)
		s.ExpectReconciled(ctx, s.R, all[0])
		Expect(State(all[0])).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.Queued()).To(Equal([]string{all[runnerpool.MaxRollouts].Name}), "who came first")
		Expect(images()).To(Equal(runnerpool.MaxRollouts + 1))

		By("one rollout takes too long")
		s.Clock.Step(runnerpool.MaxRolloutTime)
		s.ExpectReconciled(ctx, s.R, all[1])
		Expect(s.Queued()).To(And(Not(BeEmpty()), HaveEach(last.Name)))
		Expect(images()).To(Equal(runnerpool.MaxRollouts + 2))
	})

	It("is updated for its Environment while it waits for the new release", func(ctx SpecContext) {
		s := newScene(ctx)
		var first []*v1alpha1.Environment
		for i := range runnerpool.MaxRollouts {
			first = append(first, s.ExpectReady(ctx, s.Environment(fmt.Sprintf("e%d", i))))
		}
		e := s.ExpectReady(ctx, s.Environment("dev", func(e *v1alpha1.Environment) {
			e.Spec.Runner.NodeSelector, e.Spec.Runner.ImagePullSecrets = map[string]string{"disk": "fast"}, []v1alpha1.SecretReference{{Name: "pull"}}
		}))
		s.Runners.Pods.Image, s.Runners.Pods.DispatchURL, s.Runners.Pods.TrustDispatchCA = "platform:2", "https://dispatch:8081", true
		for _, other := range first {
			s.ExpectReconciled(ctx, s.R, other)
		}
		before := s.Pool(ctx, e)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(s.Pool(ctx, e).Generation).To(Equal(before.Generation), "no runner is restarted")
		Expect(Message(e)).To(ContainSubstring("after the runners of other environments"))
		s.ExpectAtRest(ctx, s.R, e)

		By("its Environment changes")
		e.Spec.Variables = []v1alpha1.EnvironmentVariable{{Name: "REVOKED", Value: ptr.To("new")}}
		e.Spec.Runner.Concurrency, e.Spec.Runner.NodeSelector, e.Spec.Runner.ImagePullSecrets = 3, map[string]string{"disk": "large"}, nil
		e.Spec.Runner.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		s.ApplyAndReconcile(ctx, e)
		Expect(State(e)).To(Equal("Ready=False/RunnersStarting Reconciling"))
		config := &corev1.Secret{ObjectMeta: s.At("dev-runner-config")}
		s.ExpectExists(ctx, config)
		Expect(string(config.Data[runnerconfig.VariablesFile])).To(ContainSubstring("REVOKED"))
		pods := s.Pool(ctx, e).Spec.Template
		Expect(pods.Annotations["agentplatform.dev/config"]).NotTo(Equal(before.Spec.Template.Annotations["agentplatform.dev/config"]))
		Expect(pods.Spec.NodeSelector).To(Equal(map[string]string{"disk": "large"}))
		Expect(pods.Spec.ImagePullSecrets).To(BeEmpty())
		runner := pods.Spec.Containers[0]
		Expect(runner.Image).To(Equal("platform:1"), "its turn has not come")
		Expect(runner.Args).To(ContainElements("--concurrency=3", "--dispatch-url=http://dispatch:8081"))
		Expect(pods.Spec.Volumes).To(HaveLen(2))
		Expect(runner.Resources.Limits.Memory().String()).To(Equal("1Gi"))
		s.StartRunners(ctx, e, 1)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))
		Expect(Message(e)).To(ContainSubstring("after the runners of other environments"))
		s.ExpectAtRest(ctx, s.R, e)

		By("a user deletes its configuration")
		s.ExpectGone(ctx, config)
		s.ExpectReconciled(ctx, s.R, e)
		s.ExpectExists(ctx, config)
		Expect(s.Pool(ctx, e).Spec.Template).To(Equal(pods))

		By("its rollout starts")
		s.Clock.Step(runnerpool.MaxRolloutTime)
		s.ExpectReconciled(ctx, s.R, e)
		runner = s.Pool(ctx, e).Spec.Template.Spec.Containers[0]
		Expect(runner.Image).To(Equal("platform:2"))
		Expect(runner.Args).To(ContainElements("--concurrency=3", "--dispatch-url=https://dispatch:8081"))
		Expect(runner.Args).NotTo(ContainElement("--dispatch-url=http://dispatch:8081"))
		Expect(s.Pool(ctx, e).Spec.Template.Spec.Volumes).To(HaveLen(3))
	})

	DescribeTable("is repaired at once, including the release, if its pods match no release", func(ctx SpecContext, edit func(*corev1.PodSpec)) {
		s := newScene(ctx)
		var first []*v1alpha1.Environment
		for i := range runnerpool.MaxRollouts {
			first = append(first, s.ExpectReady(ctx, s.Environment(fmt.Sprintf("e%d", i))))
		}
		e := s.ExpectReady(ctx, s.Environment("dev"))
		s.Runners.Pods.Image = "platform:2"
		for _, other := range first {
			s.ExpectReconciled(ctx, s.R, other)
		}
		pool := s.Pool(ctx, e)
		before := pool.Spec.Template.Spec.DeepCopy()
		edit(&pool.Spec.Template.Spec)
		s.ExpectApplied(ctx, pool)
		s.ExpectReconciled(ctx, s.R, e)
		after := s.Pool(ctx, e).Spec.Template.Spec
		before.Containers[0].Image = "platform:2"
		Expect(after).To(Equal(*before))
	},
		Entry("missing arguments", func(spec *corev1.PodSpec) { spec.Containers[0].Args = nil }),
		Entry("another image", func(spec *corev1.PodSpec) { spec.Containers[0].Image = "other:1" }),
		Entry("changed security context", func(spec *corev1.PodSpec) { spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = ptr.To(false) }),
	)

	It("gets its own image at once if it has none", func(ctx SpecContext) {
		s := newScene(ctx)
		for i := range runnerpool.MaxRollouts + 2 {
			e := s.Environment(fmt.Sprintf("e%d", i))
			s.ApplyAndReconcile(ctx, e)
			Expect(s.Pool(ctx, e).Spec.Template.Spec.Containers[0].Image).To(Equal("platform:1"))
		}
	})

	It("does not delay others after it is deleted or fails", func(ctx SpecContext) {
		s := newScene(ctx)
		var all []*v1alpha1.Environment
		for i := range runnerpool.MaxRollouts + 2 {
			all = append(all, s.ExpectReady(ctx, s.Environment(fmt.Sprintf("e%d", i))))
		}
		s.Runners.Pods.Image = "platform:2"
		for _, e := range all {
			s.ExpectReconciled(ctx, s.R, e)
		}
		s.ExpectDeleted(ctx, s.R, all[0])
		Expect(s.Queued()).To(Equal([]string{all[runnerpool.MaxRollouts].Name}))
		s.CreatePod(ctx, all[1], corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "runner", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
		}}})
		Expect(s.ExpectReconciled(ctx, s.R, all[1]).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(all[1])).To(Equal("Ready=False/RunnersFailing Reconciling observed"))
		Expect(s.Queued()).To(BeEmpty(), "a release that cannot start stops at a few")

		By("its rollout times out")
		s.Clock.Step(runnerpool.MaxRolloutTime)
		s.ExpectReconciled(ctx, s.R, all[1])
		Expect(s.Queued()).To(Equal([]string{all[runnerpool.MaxRollouts+1].Name}))
	})

	It("is reported without changes to it", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		e.Spec.Suspend = true
		s.ExpectApplied(ctx, e)
		s.StartRunners(ctx, e, 0)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Suspended observed"))
		Expect(e.Status.Runner.ReadyReplicas).To(BeZero())
		Expect(e.Status.Condition(v1alpha1.ConditionRunnersReady).Message).To(Equal("0 of 1 runners ready"))
	})

	It("reports the release of unchanged runners", func(ctx SpecContext) {
		const before = "; its runners have the previous release of the platform"
		s := newScene(ctx, func(p *v1alpha1.Project) { p.Spec.Limits.Environments = ptr.To(int32(2)) })
		suspended, greedy := s.ExpectReady(ctx, s.Environment("suspended")), s.ExpectReady(ctx, s.Environment("greedy"))
		suspended.Spec.Suspend = true
		s.ApplyAndReconcile(ctx, suspended)
		Expect(Message(suspended)).To(And(HavePrefix("suspended"), Not(HaveSuffix(before))), "they are of this one")
		greedy.Spec.Runner.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		s.ApplyAndReconcile(ctx, greedy)
		Expect(Message(greedy)).NotTo(HaveSuffix(before))

		s.Runners.Pods.Image = "platform:2"
		for e, state := range map[*v1alpha1.Environment]string{
			suspended: "Ready=True/Suspended observed", greedy: "Ready=False/NotAllowed Stalled observed",
		} {
			s.ExpectReconciled(ctx, s.R, e)
			Expect(State(e)).To(Equal(state))
			Expect(Message(e)).To(HaveSuffix(before))
			Expect(s.Pool(ctx, e).Spec.Template.Spec.Containers[0].Image).To(Equal("platform:1"))
			s.ExpectAtRest(ctx, s.R, e)
		}
		project := s.Project()
		s.ExpectExists(ctx, project)
		project.Spec.Limits.Environments = ptr.To(int32(1))
		s.ExpectApplied(ctx, project)
		greedy.Spec.Runner.Resources.Limits = nil
		s.ApplyAndReconcile(ctx, greedy)
		Expect(State(greedy)).To(Equal("Ready=False/LimitReached Stalled observed"))
		Expect(Message(greedy)).To(HaveSuffix(before))

		By("resuming")
		suspended.Spec.Suspend = false
		s.ApplyAndReconcile(ctx, suspended)
		Expect(s.Pool(ctx, suspended).Spec.Template.Spec.Containers[0].Image).To(Equal("platform:2"))
		Expect(Message(suspended)).NotTo(HaveSuffix(before))
	})

	It("keeps the replicas that an autoscaler has set", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev"))
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
		Expect(s.Admin.SubResource("scale").Update(ctx, s.Pool(ctx, e), client.WithSubResourceBody(scale))).To(Succeed())
		s.ExpectReconciled(ctx, s.R, e)
		Expect(s.Pool(ctx, e).Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"), "the old pods take runs")
		s.StartRunners(ctx, e, 4)
		s.ExpectReconciled(ctx, s.R, e)
		Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))
		s.ExpectAtRest(ctx, s.R, e)

		By("changing another field")
		e.Spec.Runner.Concurrency = 7
		s.ApplyAndReconcile(ctx, e)
		Expect(s.Pool(ctx, e).Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
		Expect(s.Pool(ctx, e).Spec.Template.Spec.Containers[0].Args).To(ContainElement("--concurrency=7"))
	})

	It("is polled while it starts", func(ctx SpecContext) {
		s := newScene(ctx)
		e := s.ExpectReady(ctx, s.Environment("dev", func(e *v1alpha1.Environment) { e.Spec.Runner.MinReplicas = ptr.To(int32(3)) }))
		s.StartRunners(ctx, e, 2)
		wait := s.ExpectReconciled(ctx, s.R, e).RequeueAfter
		Expect(wait).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
		Expect(Message(e)).To(Equal("2 of 3 runners ready"))
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene(ctx)
			e := s.Environment("dev")
			s.ExpectApplied(ctx, e)
			s.ExpectSurvives(ctx, fault, s.R, e, environmenttest.ChildrenOfDev...)
			s.StartRunners(ctx, e, 1)
			s.ExpectReconciled(ctx, s.R, e)
			Expect(v1alpha1.IsReady(e)).To(BeTrue())
		})
	}
})

func TestRunnerPool_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "runnerpool")
}

// scene is a namespace with a project and the controller of Environments.
type scene struct{ *environmenttest.Scene }

func newScene(ctx context.Context, changes ...func(*v1alpha1.Project)) *scene {
	GinkgoHelper()
	return &scene{environmenttest.NewWithProject(ctx, changes...)}
}
