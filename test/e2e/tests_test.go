// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("A repository with tests", func() {
	It("is deployed once they pass, or where they are left out", func(ctx SpecContext) {
		t := newTeam(ctx, 0)

		By("failing one case")
		broken := pushTested(ctx, "v1", "hello from v2")
		failed := t.deploy(ctx, "v1", broken)
		eventually(ctx, failed, func() bool { return failed.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(failed.Status.FailureReason).To(Equal(v1alpha1.FailureTests))
		Expect(failed.Status.Message).To(ContainSubstring("1 of 2 test cases failed: hello/says-its-version"))
		Expect(failed.Status.Tests).To(HaveValue(Equal(v1alpha1.DeploymentTests{Total: 2, Failed: 1})))
		Expect(failed.Status.Live).To(BeFalse())
		say("%s", failed.Status.Message)

		By("being left out")
		untested := &v1alpha1.Deployment{ObjectMeta: t.at("v1-untested"), Spec: v1alpha1.DeploymentSpec{
			Environment: "dev", SkipTests: true,
			Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(broken)}},
		}}
		t.create(ctx, untested)
		eventually(ctx, untested, func() bool { return untested.Status.Live })
		Expect(untested.Status.Tests).To(BeNil())
		Expect(untested.Status.Condition(v1alpha1.ConditionTestsPassed).Reason).To(Equal(v1alpha1.ReasonSkipped))

		By("passing")
		mended := t.deploy(ctx, "v2", pushTested(ctx, "v2", "hello from v2"))
		eventually(ctx, mended, func() bool { return mended.Status.Live })
		Expect(mended.Status.Tests).To(HaveValue(Equal(v1alpha1.DeploymentTests{Total: 2})))
		Expect(mended.Status.Condition(v1alpha1.ConditionTestsPassed).Reason).To(Equal(v1alpha1.ReasonSucceeded))
	}, SpecTimeout(5*time.Minute))
})

// pushTested commits a version of the agents with two test cases. One of the cases expects the given answer.
func pushTested(ctx context.Context, version, want string) string {
	GinkgoHelper()
	files := agents(version)
	files["tests/hello.yaml"] = ptr.To(`agent: hello
cases:
  - {name: answers, payload: {}}
  - {name: says-its-version, payload: {}, runs: 3, expected_result: output == "` + want + `"}
`)
	return commit(ctx, version, files)
}
