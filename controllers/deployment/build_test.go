// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// waiting returns the status of a pod whose container waits for a reason.
func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "fetch", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

var _ = Describe("The build of a Deployment", func() {
	It("has its own token, which is deleted with the Job", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		Expect(metav1.IsControlledBy(job, d)).To(BeTrue())
		Expect(s.Children(ctx, job.UID)).To(ConsistOf("Secret v1-build-token"))
		secret := &corev1.Secret{ObjectMeta: s.At("v1-build-token")}
		s.ExpectExists(ctx, secret)
		found, err := s.Store.Token(ctx, secrets.Digest(string(secret.Data[base.TokenKey])))
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Kind).To(Equal(store.TokenBuild))
		Expect(found.Deployment()).To(Equal(s.Key(d)))

		By("creating another one after a deletion")
		s.ExpectGone(ctx, secret)
		s.ExpectReconciled(ctx, s.r, d)
		again := &corev1.Secret{ObjectMeta: s.At("v1-build-token")}
		s.ExpectExists(ctx, again)
		Expect(again.Data).NotTo(Equal(secret.Data))
		_, err = s.Store.Token(ctx, secrets.Digest(string(again.Data[base.TokenKey])))
		Expect(err).NotTo(HaveOccurred())
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("starts again after its Job is deleted", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		s.ExpectGone(ctx, job)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(s.job(ctx, d).UID).NotTo(Equal(job.UID))
		Expect(Message(d)).To(ContainSubstring("waiting for Kubernetes to delete"), "the token goes with the Job of before")
		s.ExpectGone(ctx, &corev1.Secret{ObjectMeta: s.At("v1-build-token")}) // like the garbage collector
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		Expect(s.Children(ctx, s.job(ctx, d).UID)).To(ConsistOf("Secret v1-build-token"))
	})

	It("does not start twice while the cache does not have its Job yet", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		s.Cluster.Fail(func(c Call) error {
			if c.Verb == "get" && c.Kind == "Job" {
				s.Cluster.Fail(nil)
				return notFound("jobs")
			}
			return nil
		})
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(BeNumerically(">", 0))
		Expect(s.job(ctx, d).UID).To(Equal(job.UID))
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("reports why its pod does not run, also after its timeout", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		s.pod(ctx, job, waiting("ImagePullBackOff", "no such image"))
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(Equal(base.MaxRetryInterval), "its pod is watched")
		Expect(State(d)).To(Equal("Ready=Unknown/BuildBlocked Reconciling"))
		Expect(Message(d)).To(ContainSubstring(`container "fetch": ImagePullBackOff: no such image`))
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentBuilding))
		s.ExpectAtRest(ctx, s.r, d)

		s.failed(ctx, job, batchv1.JobReasonDeadlineExceeded, "too long")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/DeadlineExceeded Stalled observed"))
		Expect(Message(d)).To(And(ContainSubstring("longer than 900 s"), ContainSubstring("no such image")))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureDeadline))
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("no longer reports the problem when its pod runs", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		pod := s.pod(ctx, s.job(ctx, d), waiting("ErrImagePull", "busy"))
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/BuildBlocked Reconciling"))
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		s.ExpectStatus(ctx, pod)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		s.failed(ctx, s.job(ctx, d), batchv1.JobReasonDeadlineExceeded, "")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(Message(d)).NotTo(ContainSubstring("busy"))
	})

	It("reports after a while that Kubernetes creates no pod", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		job.Status.StartTime = ptr.To(metav1.NewTime(s.Clock.Now()))
		s.ExpectStatus(ctx, job)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		s.Clock.Step(17 * time.Second)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=Unknown/BuildBlocked Reconciling"))
		Expect(Message(d)).To(ContainSubstring("creates no pod"))
	})

	It("fails with the termination message of its pod", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		foreign := s.pod(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.Name, UID: "foreign"}}, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "a stranger's",
		})
		s.ExpectGone(ctx, foreign)
		s.pod(ctx, job, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "pack", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "out of memory"}},
		}}})
		s.failed(ctx, job, batchv1.JobReasonBackoffLimitExceeded, "gone")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/BuildFailed Stalled observed"))
		Expect(Message(d)).To(ContainSubstring("pack: OOMKilled (exit code 137): out of memory"))
		Expect(s.outcome(ctx, d).Status).To(Equal(store.DeploymentFailed))
		Expect(s.live(ctx)).To(BeEmpty())
	})

	DescribeTable("leaves no running pod behind if it does not succeed", func(ctx SpecContext, end func(*scene, *v1alpha1.Deployment)) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		end(s, d)
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Phase.Terminal()).To(BeTrue())
		s.ExpectNotFound(ctx, job)
		s.ExpectAtRest(ctx, s.r, d)
	},
		Entry("failed result", func(s *scene, d *v1alpha1.Deployment) {
			Expect(s.Store.FinishBuild(context.Background(), s.Key(d), store.BuildResult{FailureReason: store.FailureTests, Message: "no"})).To(Succeed())
		}),
		Entry("failed connectors", func(s *scene, d *v1alpha1.Deployment) {
			Expect(s.Store.EndDeployment(context.Background(), s.Key(d), store.DeploymentFailed, store.FailureConnectors, "no")).To(Succeed())
		}),
		Entry("cancellation", func(s *scene, d *v1alpha1.Deployment) {
			Expect(s.Store.EndDeployment(context.Background(), s.Key(d), store.DeploymentCancelled, "", "cancelled on request")).To(Succeed())
		}),
	)

	It("keeps an ended Job, whose pod may have crashed", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		job := s.job(ctx, d)
		s.failed(ctx, job, batchv1.JobReasonBackoffLimitExceeded, "gone")
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentFailed))
		Expect(s.job(ctx, d).UID).To(Equal(job.UID))
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("fails as the runner reported", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(s.Store.FinishBuild(ctx, s.Key(d), store.BuildResult{
			FailureReason: store.FailureBuild, Message: "agents/a.yaml:3:1: unknown field " + strings.Repeat("x", 2000),
		})).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(State(d)).To(Equal("Ready=False/BuildFailed Stalled observed"))
		Expect(Message(d)).To(ContainSubstring("agents/a.yaml:3:1"))
		Expect(d.Status.Condition(v1alpha1.ConditionSourceFetched).Reason).To(Equal(v1alpha1.ReasonFetchFailed), "it reported no other step")
	})

	It("fails at its current step, however fast it reached it", func(ctx SpecContext) {
		s := newScene(ctx)
		d := s.reconciled(ctx, s.Deployment("v1"))
		Expect(d.Status.Step).To(Equal(v1alpha1.StepFetching))
		Expect(s.Store.ReportBuild(ctx, s.Key(d), store.BuildReport{
			Phase: store.PhasePacking, Branch: "main", Commit: "0123456789abcdef0123456789abcdef01234567",
		})).To(Succeed())
		Expect(s.Store.FinishBuild(ctx, s.Key(d), store.BuildResult{
			FailureReason: store.FailureBuild, Message: "agents/a.yaml:3:5: unknown key",
		})).To(Succeed())
		s.ExpectReconciled(ctx, s.r, d)
		Expect(d.Status.IsTrue(v1alpha1.ConditionSourceFetched)).To(BeTrue())
		Expect(d.Status.Branch).To(Equal("main"), "nobody asked for a branch")
		Expect(d.Status.Condition(v1alpha1.ConditionBuilt).Reason).To(Equal(v1alpha1.ReasonBuildFailed))
		Expect(d.Status.Step).To(BeEmpty())
		s.ExpectAtRest(ctx, s.r, d)

		By("being cancelled at that step")
		next := s.reconciled(ctx, s.Deployment("v2"))
		Expect(s.Store.ReportBuild(ctx, s.Key(next), store.BuildReport{Phase: store.PhasePacking})).To(Succeed())
		next.Spec.Cancel = true
		s.reconciled(ctx, next)
		Expect(next.Status.IsTrue(v1alpha1.ConditionSourceFetched)).To(BeTrue())
		Expect(next.Status.Condition(v1alpha1.ConditionBuilt).Reason).To(Equal(v1alpha1.ReasonCancelled))
		s.ExpectAtRest(ctx, s.r, next)
	})

	It("ignores another user's Job", func(ctx SpecContext) {
		s := newScene(ctx)
		job := &batchv1.Job{ObjectMeta: s.At("v1-build"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}},
		}}}}
		d := s.Deployment("v1")
		s.ExpectApplied(ctx, job, d)
		Expect(s.ExpectReconciled(ctx, s.r, d).RequeueAfter).To(Equal(base.MaxRetryInterval))
		Expect(State(d)).To(Equal("Ready=False/NameCollision Stalled observed"))
		d.Spec.Cancel = true
		s.reconciled(ctx, d)
		s.ExpectExists(ctx, job)
		Expect(job.DeletionTimestamp).To(BeNil(), "a cancellation stops nobody else's")
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene(ctx)
			d := s.Deployment("v1")
			s.ExpectApplied(ctx, d)
			s.ExpectSurvives(ctx, fault, s.r, d, "Job v1-build")
			Expect(s.Children(ctx, s.job(ctx, d).UID)).To(ConsistOf("Secret v1-build-token"))
			s.ExpectBuilt(ctx, s.Key(d), "hello")
			s.ExpectReconciled(ctx, s.r, d)
			Expect(v1alpha1.IsReady(d)).To(BeTrue())
		})
	}
})
