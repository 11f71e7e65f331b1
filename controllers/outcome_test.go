// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// team is a project with one environment in its own namespace.
type team struct {
	*platform
	namespace string
	projectID uuid.UUID
}

func (p *platform) team(ctx context.Context) *team {
	GinkgoHelper()
	t := p.empty()
	t.populate(ctx)
	return t
}

// empty creates an empty namespace.
func (p *platform) empty() *team {
	GinkgoHelper()
	namespace := p.plane.Namespace(GinkgoTB())
	return &team{platform: p, namespace: namespace, projectID: v1alpha1.ProjectID(p.platformID, namespace)}
}

// populate creates the project and the environment.
func (t *team) populate(ctx context.Context) {
	GinkgoHelper()
	for _, o := range []client.Object{
		&v1alpha1.Project{ObjectMeta: t.at("project"), Spec: v1alpha1.ProjectSpec{
			Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/a.git"},
		}},
		&v1alpha1.Environment{ObjectMeta: t.at("dev")},
	} {
		Expect(t.client.Create(ctx, o)).To(Succeed())
	}
}

func (t *team) at(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.namespace, Name: name}
}

// deploy creates a Deployment of a branch and waits until its build starts.
func (t *team) deploy(ctx context.Context, name, branch string) *v1alpha1.Deployment {
	GinkgoHelper()
	d := &v1alpha1.Deployment{ObjectMeta: t.at(name), Spec: v1alpha1.DeploymentSpec{
		Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: v1alpha1.GitBranch(branch)}},
	}}
	Expect(t.client.Create(ctx, d)).To(Succeed())
	return d
}

// deployTo creates a Deployment to an environment.
func (t *team) deployTo(ctx context.Context, name string, environment v1alpha1.EnvironmentName) *v1alpha1.Deployment {
	GinkgoHelper()
	d := &v1alpha1.Deployment{ObjectMeta: t.at(name), Spec: v1alpha1.DeploymentSpec{
		Environment: environment, Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
	}}
	Expect(t.client.Create(ctx, d)).To(Succeed())
	return d
}

// goLive creates a Deployment and waits until it is live.
func (t *team) goLive(ctx context.Context, name string) *v1alpha1.Deployment {
	GinkgoHelper()
	d := t.deploy(ctx, name, name)
	t.eventually(ctx, d, func() bool { return d.Status.Phase == v1alpha1.DeploymentBuilding })
	t.build(ctx, store.Key{ProjectID: t.projectID, ID: uuid.MustParse(d.Status.ID)})
	t.eventually(ctx, d, func() bool { return d.Status.Live })
	return d
}

// activate requests the activation of a deployment at a time of the requester's clock.
func (t *team) activate(ctx context.Context, d *v1alpha1.Deployment, at time.Time) {
	GinkgoHelper()
	before := d.DeepCopy()
	d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(at)}
	Expect(t.client.Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("The outcome of a deployment", func() {
	It("is rolled back by an activation, and is not built again after a restore", func(ctx SpecContext) {
		t := start().team(ctx)
		first := t.goLive(ctx, "v1")
		second := t.goLive(ctx, "v2")
		t.eventually(ctx, first, func() bool { return !first.Status.Live })

		t.activate(ctx, first, time.Now())
		t.eventually(ctx, first, func() bool { return first.Status.Live && first.Status.Activation != nil })
		Expect(first.Status.Activation.Result).To(Equal(v1alpha1.ActivationActivated))
		t.eventually(ctx, second, func() bool { return !second.Status.Live })

		By("restoring the same live one when all come back, in any order")
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		t.eventually(ctx, environment, func() bool { return environment.Status.ID != "" })
		environmentID := environment.Status.ID
		for _, o := range []client.Object{environment, first, second} {
			Expect(t.client.Delete(ctx, o)).To(Succeed())
		}
		second, first = t.deploy(ctx, "v2", "v2"), t.deploy(ctx, "v1", "v1")
		Expect(t.client.Create(ctx, &v1alpha1.Environment{ObjectMeta: t.at("dev")})).To(Succeed())
		t.eventually(ctx, second, func() bool { return second.Status.Phase == v1alpha1.DeploymentDeployed })
		t.eventually(ctx, first, func() bool { return first.Status.Live })
		t.eventually(ctx, second, func() bool { return !second.Status.Live })

		By("restoring it when only the environment comes back")
		Expect(t.client.Delete(ctx, environment)).To(Succeed())
		Eventually(ctx, func() error {
			_, err := t.store.Environment(ctx, store.Key{ProjectID: t.projectID, ID: uuid.MustParse(environmentID)})
			return err
		}).Should(MatchError(store.ErrNotFound))
		Expect(t.client.Create(ctx, &v1alpha1.Environment{ObjectMeta: t.at("dev")})).To(Succeed())
		Eventually(ctx, func() string {
			e, err := t.store.Environment(ctx, store.Key{ProjectID: t.projectID, ID: uuid.MustParse(environmentID)})
			if err != nil || e.LiveDeploymentID == nil {
				return ""
			}
			return e.LiveDeploymentID.String()
		}).WithTimeout(30 * time.Second).Should(Equal(first.Status.ID))

		By("taking the outcome from the store")
		Expect(t.client.Delete(ctx, second)).To(Succeed())
		job := &batchv1.Job{ObjectMeta: t.at("v2-build")}
		Expect(client.IgnoreNotFound(t.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
		again := t.deploy(ctx, "v2", "v2")
		t.eventually(ctx, again, func() bool { return again.Status.Phase == v1alpha1.DeploymentDeployed })
		Expect(again.Status.Live).To(BeFalse())
		jobs := &batchv1.JobList{}
		Expect(t.client.List(ctx, jobs, client.InNamespace(t.namespace), client.MatchingLabels{v1alpha1.LabelDeployment: "v2"})).To(Succeed())
		for _, j := range jobs.Items {
			Expect(j.DeletionTimestamp).NotTo(BeNil(), "nothing is built again")
		}

		By("rejecting another source with the same name")
		Expect(t.client.Delete(ctx, again)).To(Succeed())
		reused := t.deploy(ctx, "v2", "another")
		t.eventually(ctx, reused, func() bool {
			stalled := reused.Status.Condition(v1alpha1.ConditionStalled)
			return stalled != nil && stalled.Reason == v1alpha1.ReasonNameReused
		})
	}, SpecTimeout(2*time.Minute))

	It("goes live on request, whatever was requested earlier", func(ctx SpecContext) {
		t := start().team(ctx)
		first, second := t.goLive(ctx, "v1"), t.goLive(ctx, "v2")
		t.activate(ctx, first, time.Now().Add(2*time.Minute)) // with a clock that is ahead
		// A status may be stale.
		t.eventually(ctx, first, func() bool { return first.Status.Live && !first.ActivationPending() })
		back := func() bool { return second.Status.Live && !second.ActivationPending() }
		t.activate(ctx, second, time.Now().Add(-time.Second))
		t.eventually(ctx, second, back)
		third := t.goLive(ctx, "v3")
		t.activate(ctx, second, time.Now())
		t.eventually(ctx, second, back)
		Expect(second.Status.Activation.Result).To(Equal(v1alpha1.ActivationActivated))
		t.eventually(ctx, third, func() bool { return !third.Status.Live })

		By("carrying out no request twice after its response was lost")
		Expect(t.client.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		before := first.DeepCopy()
		first.Status.Activation = nil
		Expect(t.client.Status().Patch(ctx, first, client.MergeFrom(before))).To(Succeed())
		t.eventually(ctx, first, func() bool { return first.Status.Activation != nil })
		Expect(first.Status.Activation.Message).To(ContainSubstring("another deployment was activated since"))
		Expect(first.Status.Live).To(BeFalse())

		By("handling a request that is older than the live one")
		t.activate(ctx, third, time.Now().Add(-time.Minute))
		t.eventually(ctx, third, func() bool { return third.Status.Activation != nil })
		Expect(third.Status.Activation.Result).To(Equal(v1alpha1.ActivationSuperseded))
		t.eventually(ctx, second, func() bool { return second.Status.Live })
	}, SpecTimeout(2*time.Minute))

	It("is failed if the build could not report, and cancelled on request", func(ctx SpecContext) {
		t := start().team(ctx)
		failed := t.deploy(ctx, "v1", "main")
		job := &batchv1.Job{ObjectMeta: t.at("v1-build")}
		t.eventually(ctx, job, func() bool { return job.UID != "" })
		now := metav1.Now()
		job.Status.StartTime = &now
		job.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded},
			{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded, Message: "gone"},
		}
		Expect(t.client.Status().Update(ctx, job)).To(Succeed())
		t.eventually(ctx, failed, func() bool { return failed.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(failed.Status.Message).To(ContainSubstring("gone"))

		cancelled := t.deploy(ctx, "v2", "main")
		t.eventually(ctx, cancelled, func() bool { return cancelled.Status.Phase == v1alpha1.DeploymentBuilding })
		before := cancelled.DeepCopy()
		cancelled.Spec.Cancel = true
		Expect(t.client.Patch(ctx, cancelled, client.MergeFrom(before))).To(Succeed())
		t.eventually(ctx, cancelled, func() bool { return cancelled.Status.Phase == v1alpha1.DeploymentCancelled })
	}, SpecTimeout(2*time.Minute))
})
