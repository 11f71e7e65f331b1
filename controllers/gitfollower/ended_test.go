// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("An Environment that was brought to a commit", func() {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	at := func(commit string) func(*v1alpha1.Environment) {
		return func(e *v1alpha1.Environment) { e.Spec.Git.Commit = v1alpha1.GitCommit(commit) }
	}

	It("follows its source only while the commit is live or in progress", func(ctx SpecContext) {
		f := newFollower(ctx)
		e := f.Environment("dev", at(one))
		f.ApplyAndReconcile(ctx, e)
		said := func() string {
			GinkgoHelper()
			f.ExpectReconciled(ctx, f.R, e)
			condition := e.Status.Condition(v1alpha1.ConditionSourceFollowed)
			_, ended, _ := strings.Cut(condition.Message, `"`+e.Status.Git.Deployment+`"`)
			return string(condition.Status) + condition.Reason + ended
		}
		const remedy = ". Name another commit in spec.git, or create a Deployment of this commit"
		Expect(said()).To(Equal("TrueSucceeded"))

		By("deployed, and another one activated")
		d := f.deployed(ctx, one, true)
		Expect(said()).To(Equal("TrueSucceeded"))
		f.deployed(ctx, one, false)
		Expect(said()).To(Equal("FalseDeploymentFailed, which is not live, because another deployment is" + remedy))
		f.ExpectAtRest(ctx, f.R, e)
		f.ExpectExists(ctx, d)
		d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(f.Clock.Now().Truncate(time.Second))}
		f.ExpectApplied(ctx, d)
		Expect(said()).To(Equal("TrueSucceeded"))

		By("failed and deleted")
		f.ended(ctx, d.Name, v1alpha1.DeploymentFailed)
		Expect(said()).To(Equal("FalseDeploymentFailed, which is Failed; see its conditions" + remedy))
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(d.Name)})
		Expect(said()).To(Equal("FalseDeploymentFailed, which is gone" + remedy))
		Expect(f.commits(ctx)).To(BeEmpty())

		By("suspended, and another commit requested")
		at(two)(e)
		e.Spec.Suspend = true
		f.ApplyAndReconcile(ctx, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed)).To(BeNil(), "it would speak of the commit before")
		e.Spec.Suspend = false

		By("deleted while in progress")
		at(two)(e)
		f.ApplyAndReconcile(ctx, e)
		Expect(said()).To(Equal("TrueSucceeded"))
		f.ExpectGone(ctx, &v1alpha1.Deployment{ObjectMeta: f.At(e.Status.Git.Deployment)})
		Expect(said()).To(Equal("FalseDeploymentFailed, which is gone" + remedy))
	})
})
