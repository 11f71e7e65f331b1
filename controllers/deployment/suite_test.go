// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/deployment"
	"github.com/agentplatform/agentplatform/store"
)

func TestDeployment_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "deployment")
}

// scene is a project with the environment "dev" and a reconciler of deployments.
type scene struct {
	*Fixture
	r           *deployment.Reconciler
	project     *v1alpha1.Project
	environment *v1alpha1.Environment
}

func bare() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &deployment.Reconciler{
		Base: f.Base, Store: f.Store, Keys: f.Keys, Pods: base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"},
	}}
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := bare()
	s.project = s.ExpectProject(ctx)
	s.environment = s.ExpectEnvironment(ctx, "dev")
	return s
}

// look is the poll interval of a build in progress.
const look = time.Second

// reconciled applies a deployment and reconciles it.
func (s *scene) reconciled(ctx context.Context, d *v1alpha1.Deployment) *v1alpha1.Deployment {
	GinkgoHelper()
	s.ExpectApplied(ctx, d)
	s.ExpectReconciled(ctx, s.r, d)
	return d
}

// deployed creates a deployment with the agent "hello" and reconciles it until it ends.
func (s *scene) deployed(ctx context.Context, d *v1alpha1.Deployment) *v1alpha1.Deployment {
	GinkgoHelper()
	s.reconciled(ctx, d)
	s.ExpectBuilt(ctx, s.Key(d), "hello")
	s.ExpectReconciled(ctx, s.r, d)
	Expect(d.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed), Message(d))
	return d
}

// job returns the build Job of a deployment.
func (s *scene) job(ctx context.Context, d *v1alpha1.Deployment) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{ObjectMeta: s.At(d.Name + "-build")}
	s.ExpectExists(ctx, job)
	return job
}

// failed makes a Job fail like Kubernetes' Job controller.
func (s *scene) failed(ctx context.Context, job *batchv1.Job, reason, message string) {
	GinkgoHelper()
	now := metav1.Now()
	job.Status.StartTime = &now
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
	s.ExpectStatus(ctx, job)
}

// pod creates the pod of a Job with a status.
func (s *scene) pod(ctx context.Context, job *batchv1.Job, status corev1.PodStatus) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: s.At(job.Name + "-pod"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "pack", Image: "a"}}}}
	pod.Labels = map[string]string{batchv1.JobNameLabel: job.Name}
	maps.Copy(pod.Labels, job.Spec.Template.Labels) // the cache selects by these labels
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	s.ExpectApplied(ctx, pod)
	pod.Status = status
	s.ExpectStatus(ctx, pod)
	return pod
}

// live returns the name of the live deployment of "dev" in the store, or "".
func (s *scene) live(ctx context.Context) string {
	GinkgoHelper()
	row, err := s.Store.Environment(ctx, s.Key(s.environment))
	Expect(err).NotTo(HaveOccurred())
	if row.LiveDeploymentID == nil {
		return ""
	}
	d, err := s.Store.Deployment(ctx, store.Key{ProjectID: row.ProjectID, ID: *row.LiveDeploymentID})
	Expect(err).NotTo(HaveOccurred())
	return d.Ref.Name
}

// outcome returns the row of a deployment.
func (s *scene) outcome(ctx context.Context, d *v1alpha1.Deployment) store.Deployment {
	GinkgoHelper()
	row, err := s.Store.Deployment(ctx, s.Key(d))
	Expect(err).NotTo(HaveOccurred())
	return row
}
