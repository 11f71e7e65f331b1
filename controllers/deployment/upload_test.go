// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"context"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// uploaded stores an upload of a project and returns its digest.
func (s *scene) uploaded(ctx context.Context, project uuid.UUID) v1alpha1.UploadDigest {
	GinkgoHelper()
	u, err := s.Store.PutUpload(ctx, project, strings.NewReader("an upload"), store.MaxUpload)
	Expect(err).NotTo(HaveOccurred())
	return v1alpha1.UploadDigest(u.Digest)
}

// of makes a deployment use an upload.
func of(digest v1alpha1.UploadDigest) func(*v1alpha1.Deployment) {
	return func(d *v1alpha1.Deployment) {
		d.Spec.Source = v1alpha1.DeploymentSource{Bundle: &v1alpha1.DeploymentBundleSource{Digest: digest}}
	}
}

var _ = Describe("A Deployment of an upload", func() {
	It("is built in a project without a Git repository, by a Job that fetches the upload", func(ctx SpecContext) {
		s := bare()
		s.project = s.ExpectProject(ctx, func(p *v1alpha1.Project) { p.Spec.Git = nil })
		s.environment = s.ExpectEnvironment(ctx, "dev")
		digest := s.uploaded(ctx, s.ProjectID(s.Namespace))
		d := s.reconciled(ctx, s.Deployment("v1", of(digest)))
		Expect(State(d)).To(Equal("Ready=Unknown/Fetching Reconciling"))
		spec := s.job(ctx, d).Spec.Template.Spec
		Expect(spec.InitContainers).To(BeEmpty(), "there is nothing to be fetched from git")
		Expect(spec.Containers[0].Args).To(ContainElement("--upload=" + string(digest)))
		outcome := s.outcome(ctx, d)
		Expect(outcome.SourceType).To(Equal("upload"))
		Expect(outcome.UploadDigest).To(Equal(string(digest)))
		Expect(outcome.Branch).To(BeEmpty())
		opened, err := s.Store.OpenUpload(ctx, s.Key(d))
		Expect(err).NotTo(HaveOccurred())
		Expect(opened.Close()).To(Succeed())

		By("going live and being superseded like a commit")
		live := s.deployed(ctx, d)
		Expect(live.Status.Live).To(BeTrue())
		Expect(live.Status.Commit).To(BeEmpty())
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("fails if its project has no upload with the digest", func(ctx SpecContext) {
		s := newScene(ctx)
		digest := s.uploaded(ctx, uuid.New()) // of another project
		d := s.reconciled(ctx, s.Deployment("v1", of(digest)))
		Expect(State(d)).To(Equal("Ready=False/BuildFailed Stalled observed"))
		Expect(d.Status.Condition(v1alpha1.ConditionSourceFetched).Reason).To(Equal(v1alpha1.ReasonFetchFailed))
		Expect(Message(d)).To(And(ContainSubstring(string(digest)), ContainSubstring("agentctl deploy --upload")))
		Expect(d.Status.FailureReason).To(Equal(v1alpha1.FailureBuild))
		Expect(s.Children(ctx, d.UID)).To(BeEmpty(), "nothing was begun")
		s.ExpectAtRest(ctx, s.r, d)
	})

	It("supersedes and is superseded like a commit", func(ctx SpecContext) {
		s := newScene(ctx)
		first := s.reconciled(ctx, s.Deployment("v1"))
		second := s.reconciled(ctx, s.Deployment("v2", of(s.uploaded(ctx, s.ProjectID(s.Namespace)))))
		Expect(s.outcome(ctx, first).Status).To(Equal(store.DeploymentCancelled))
		s.reconciled(ctx, s.Deployment("v3"))
		Expect(s.outcome(ctx, second).Status).To(Equal(store.DeploymentCancelled))
	})
})
