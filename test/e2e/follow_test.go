// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("An environment whose commits come from Git", func() {
	It("follows its branch, and another one is promoted and taken back by one line", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		change := func(e *v1alpha1.Environment, git v1alpha1.EnvironmentGit) {
			GinkgoHelper()
			before := e.DeepCopy()
			e.Spec.Git = git
			Expect(cluster.Patch(ctx, e, client.MergeFrom(before))).To(Succeed())
		}
		one := push(ctx, "one")
		change(dev, v1alpha1.EnvironmentGit{AutoDeploy: true, IntervalSeconds: ptr.To(int32(10))})
		eventually(ctx, dev, func() bool { return dev.Status.LiveCommit == one })
		two := push(ctx, "two")
		eventually(ctx, dev, func() bool { return dev.Status.LiveCommit == two })
		Expect(dev.Status.Git.Commit).To(Equal(two))
		change(dev, v1alpha1.EnvironmentGit{}) // other specs push, too

		production := &v1alpha1.Environment{ObjectMeta: t.at("production")}
		production.Spec.Git.Commit = v1alpha1.GitCommit(one)
		t.create(ctx, production)
		eventually(ctx, production, func() bool { return production.Status.LiveCommit == one })
		first := production.Status.LiveDeployment
		change(production, v1alpha1.EnvironmentGit{Commit: v1alpha1.GitCommit(two)})
		eventually(ctx, production, func() bool { return production.Status.LiveCommit == two })
		change(production, v1alpha1.EnvironmentGit{Commit: v1alpha1.GitCommit(one)})
		eventually(ctx, production, func() bool { return production.Status.LiveCommit == one })
		Expect(production.Status.LiveDeployment).To(Equal(first), "it was not built again")
	})

	It("follows a push that the gateway receives, long before its interval ends", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, ready(dev))
		one, before := push(ctx, "one"), dev.DeepCopy()
		dev.Spec.Git = v1alpha1.EnvironmentGit{AutoDeploy: true, IntervalSeconds: ptr.To(int32(3600))}
		Expect(cluster.Patch(ctx, dev, client.MergeFrom(before))).To(Succeed())
		eventually(ctx, dev, func() bool { return dev.Status.LiveCommit == one })

		two := push(ctx, "two")
		project := &v1alpha1.Project{ObjectMeta: t.at(v1alpha1.ProjectName)}
		eventually(ctx, project, func() bool { return strings.HasSuffix(project.Status.GitWebhookURL, "/git/"+t.project.String()) })
		url := cluster.gateway + "/git/" + t.project.String()
		status, answer := call(ctx, http.MethodPost, url, http.Header{"X-Gitea-Event": {"push"}}, []byte(`{"ref":"refs/heads/main"}`))
		Expect(status).To(Equal(http.StatusAccepted), string(answer))
		eventually(ctx, dev, func() bool { return dev.Status.LiveCommit == two })

		status, answer = call(ctx, http.MethodPost, url, http.Header{"X-Gitea-Event": {"release"}}, []byte(`{}`))
		Expect(status).To(Equal(http.StatusOK), string(answer))
		status, _ = call(ctx, http.MethodPost, cluster.gateway+"/git/"+uuid.NewString(), http.Header{}, []byte(`{}`))
		Expect(status).To(Equal(http.StatusNotFound))
	})
})
