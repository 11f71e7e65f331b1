// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A Deployment whose tests wait for an Environment", func() {
	It("is built as soon as that one comes", func(ctx SpecContext) {
		t := start().team(ctx)
		DeferCleanup(t.clear)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		Expect(t.client.Get(ctx, client.ObjectKeyFromObject(dev), dev)).To(Succeed())
		dev.Spec.TestEnvironment = "lab"
		Expect(t.client.Update(ctx, dev)).To(Succeed())
		d := &v1alpha1.Deployment{ObjectMeta: t.at("v1"), Spec: v1alpha1.DeploymentSpec{
			Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
		}}
		Expect(t.client.Create(ctx, d)).To(Succeed())
		t.eventually(ctx, d, func() bool {
			ready := d.Status.Condition(v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonReferenceMissing
		})

		Expect(t.client.Create(ctx, &v1alpha1.Environment{ObjectMeta: t.at("lab")})).To(Succeed())
		job := &batchv1.Job{ObjectMeta: t.at("v1-build")}
		// Sooner than what is looked at again by itself.
		Eventually(ctx, func() error { return t.client.Get(ctx, client.ObjectKeyFromObject(job), job) }).
			WithTimeout(15 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})
