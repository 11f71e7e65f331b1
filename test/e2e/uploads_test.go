// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// packed returns a gzipped tar archive of files.
func packed(files map[string]*string) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	archive := tar.NewWriter(z)
	for name, content := range files {
		if content == nil {
			continue
		}
		Expect(archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Size: int64(len(*content)), Mode: 0o644})).To(Succeed())
		_, err := archive.Write([]byte(*content))
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(archive.Close()).To(Succeed())
	Expect(z.Close()).To(Succeed())
	return out.Bytes()
}

// upload deploys files to an environment.
func (t *team) upload(ctx context.Context, environment string, files map[string]*string) (d restDeployment) {
	GinkgoHelper()
	status, answer := call(ctx, http.MethodPost, cluster.api+"/v1/projects/"+t.project.String()+"/deployments/upload?environment_id="+environment,
		http.Header{"Authorization": {"Bearer " + t.key}, "Content-Type": {"application/gzip"}}, packed(files))
	Expect(status).To(Equal(http.StatusCreated), "%s", answer)
	Expect(json.Unmarshal(answer, &d)).To(Succeed())
	return d
}

var _ = Describe("A folder that is uploaded", func() {
	It("goes live in a project without a git repository, and again", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		project := &v1alpha1.Project{ObjectMeta: t.at(v1alpha1.ProjectName)}
		eventually(ctx, project, ready(project))
		before := project.DeepCopy()
		project.Spec.Git = nil
		Expect(cluster.Patch(ctx, project, client.MergeFrom(before))).To(Succeed())
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		greeting := t.hook(ctx, "greeting", v1alpha1.ModeSync, "hello")
		greets := func(version string) {
			GinkgoHelper()
			Eventually(ctx, func() string { return greeting.post(ctx, cluster.gateway, `{}`).Result.Output }).
				WithTimeout(patience).WithPolling(interval).Should(ContainSubstring("hello from " + version))
		}
		refused := t.rest(ctx, http.MethodPost, "/deployments?environment_id="+dev.Status.ID, "", http.StatusBadRequest)
		Expect(string(refused)).To(ContainSubstring("agentctl deploy --upload"))

		first := t.upload(ctx, dev.Status.ID, agents("v1"))
		log := t.follows(ctx, first.ID)
		Expect(log).To(ContainSubstring("fetching the upload, sha256:"))
		Expect(strings.TrimSpace(log)).To(HaveSuffix(`data: {"status":"deployed"}`))
		Expect(t.deployment(ctx, first.ID).IsLive).To(BeTrue())
		greets("v1")

		By("failing a deployment by its tests, and deploying it anyway")
		files := agents("v2")
		files["tests/hello.yaml"] = ptr.To("agent: hello\ncases:\n  - name: greets\n    payload: {}\n    expected_result: output == \"something else\"\n")
		failing := t.upload(ctx, dev.Status.ID, files)
		t.follows(ctx, failing.ID)
		Expect(t.deployment(ctx, failing.ID).Status).To(Equal("failed"))
		greets("v1")
		anyway := t.asks(ctx, "/deployments/"+failing.ID+"/deploy-anyway", "", http.StatusOK)
		t.follows(ctx, anyway.ID)
		greets("v2")

		By("naming what nobody uploaded")
		unknown := &v1alpha1.Deployment{ObjectMeta: t.at("unknown"), Spec: v1alpha1.DeploymentSpec{Environment: "dev", Source: v1alpha1.DeploymentSource{
			Bundle: &v1alpha1.DeploymentBundleSource{Digest: v1alpha1.UploadDigest("sha256:" + strings.Repeat("0", 64))},
		}}}
		t.create(ctx, unknown)
		eventually(ctx, unknown, func() bool { return unknown.Status.Phase == v1alpha1.DeploymentFailed })
		Expect(unknown.Status.Message).To(ContainSubstring("upload the folder again"))
		greets("v2")
		say("%s", unknown.Status.Message)
	}, SpecTimeout(5*time.Minute))
})
