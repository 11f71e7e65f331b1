// SPDX-License-Identifier: Apache-2.0

package commitstatus_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// deleted deletes a deployment, notifies the reconciler like the watch, and returns the retry interval.
func (p *provider) deleted(ctx context.Context, d *v1alpha1.Deployment) time.Duration {
	GinkgoHelper()
	p.ExpectGone(ctx, d)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	p.r.DeletionHandler().Delete(ctx, event.DeleteEvent{Object: d}, queue)
	return p.gone(ctx, d)
}

// gone reconciles a missing deployment.
func (p *provider) gone(ctx context.Context, d *v1alpha1.Deployment) time.Duration {
	GinkgoHelper()
	result, err := p.r.Reconcile(ctx, p.Request(d))
	Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

var _ = Describe("The pending status of a commit", func() {
	status := func(p *provider, state string) []string {
		return []string{state + " agentplatform/" + p.Namespace + "/the-dev"}
	}
	pending := func(ctx context.Context) (*provider, *v1alpha1.Deployment) {
		GinkgoHelper()
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		d := p.Deployment("one")
		p.at(ctx, d, v1alpha1.DeploymentBuilding)
		Expect(p.states()).To(Equal(status(p, "pending")))
		return p, d
	}

	It("ends with its Deployment, and is retried until the provider accepts it", func(ctx SpecContext) {
		p, d := pending(ctx)
		p.answers(http.StatusBadGateway)
		Expect(p.deleted(ctx, d)).To(Equal(10 * time.Second))
		p.states()
		p.answers(http.StatusCreated)
		p.Clock.Step(time.Minute)
		Expect(p.gone(ctx, d)).To(BeZero())
		Expect(p.states()).To(Equal(status(p, "error")))
		Expect(p.gone(ctx, d)).To(BeZero())
		Expect(p.states()).To(BeEmpty(), "once")

		By("one that has ended without a report")
		failed := p.Deployment("two")
		p.commit = strings.Repeat("a", 40)
		p.at(ctx, failed, v1alpha1.DeploymentBuilding)
		p.states()
		p.answers(http.StatusBadGateway)
		p.at(ctx, failed, v1alpha1.DeploymentFailed)
		p.states()
		p.answers(http.StatusCreated)
		p.Clock.Step(time.Minute)
		Expect(p.deleted(ctx, failed)).To(BeZero())
		Expect(p.states()).To(Equal(status(p, "failure")))
	})

	It("ends with its Deployment even if another one has its name, which stays unaffected", func(ctx SpecContext) {
		p, d := pending(ctx)
		p.answers(http.StatusBadGateway)
		p.deleted(ctx, d)
		p.states()
		other := p.Deployment("one")
		p.ExpectApplied(ctx, other)
		p.answers(http.StatusCreated)
		p.Clock.Step(time.Minute)
		Expect(p.again(ctx, other)).To(BeZero())
		Expect(p.states()).To(Equal(status(p, "error")))
		Expect(other.Status.CommitStatus).To(BeNil())
	})

	It("is reported by a new Deployment of the same name and commit", func(ctx SpecContext) {
		p, d := pending(ctx)
		p.answers(http.StatusBadGateway)
		d.CreationTimestamp.Time = d.CreationTimestamp.Add(-time.Minute)
		p.deleted(ctx, d)
		p.states()
		p.answers(http.StatusCreated)
		p.Clock.Step(time.Minute)
		other := p.Deployment("one")
		p.at(ctx, other, v1alpha1.DeploymentBuilding)
		Expect(p.states()).To(Equal(status(p, "pending")))
		p.at(ctx, other, v1alpha1.DeploymentDeployed)
		Expect(p.states()).To(Equal(status(p, "success")))
	})

	It("ends if its Deployment is deleted during a request", func(ctx SpecContext) {
		p := newProvider(ctx, map[string]string{"bearerToken": reportToken})
		d := p.Deployment("one")
		p.answers(http.StatusBadGateway)
		p.at(ctx, d, v1alpha1.DeploymentBuilding)
		p.states()
		p.answers(http.StatusCreated)
		p.Clock.Step(time.Minute)
		p.meanwhile = func() { p.ExpectGone(ctx, d.DeepCopy()) }
		Expect(p.gone(ctx, d)).To(Equal(10 * time.Second))
		Expect(p.states()).To(Equal(status(p, "pending")))
		p.meanwhile = nil
		Expect(p.gone(ctx, d)).To(BeZero())
		Expect(p.states()).To(Equal(status(p, "error")))
	})

	It("has only contexts of the namespace", func(ctx SpecContext) {
		p, d := pending(ctx)
		d.Status.CommitStatus.Context = "ci/required"
		p.ExpectStatus(ctx, d)
		p.at(ctx, d, v1alpha1.DeploymentDeployed)
		Expect(p.states()).To(Equal(status(p, "success")))
	})

	It("is reported by another deployment of the commit, and not at all without the project", func(ctx SpecContext) {
		p, d := pending(ctx)
		p.Clock.Step(time.Second)
		newer := p.Deployment("two")
		p.at(ctx, newer, v1alpha1.DeploymentBuilding)
		p.states()
		p.deleted(ctx, d)
		Expect(p.states()).To(BeEmpty())
		p.ExpectGone(ctx, p.project)
		Expect(p.deleted(ctx, newer)).To(BeZero())
		Expect(p.states()).To(BeEmpty())
	})

	It("ends with its known context after the Environment is deleted or renamed", func(ctx SpecContext) {
		p, d := pending(ctx)
		p.environment.Status.Slug = "another"
		p.ExpectStatus(ctx, p.environment)
		second := p.Deployment("two")
		p.commit = strings.Repeat("a", 40)
		p.at(ctx, second, v1alpha1.DeploymentBuilding)
		Expect(p.states()).To(Equal([]string{"pending agentplatform/" + p.Namespace + "/another"}))
		p.at(ctx, second, v1alpha1.DeploymentDeployed)
		Expect(p.states()).To(Equal([]string{"success agentplatform/" + p.Namespace + "/another"}))
		p.ExpectGone(ctx, p.environment)
		p.commit = reportCommit
		Expect(p.at(ctx, d, v1alpha1.DeploymentCancelled)).To(BeZero())
		Expect(p.states()).To(Equal(status(p, "error")))
	})
})
