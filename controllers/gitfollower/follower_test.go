// SPDX-License-Identifier: Apache-2.0

package gitfollower_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/controllertest/environmenttest"
	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
)

// follower is a scene with a Git repository of its project.
type follower struct {
	*environmenttest.Scene
	repository *gittest.Repository
	branches   *gitfollower.Reconciler
	project    *v1alpha1.Project
	metrics    *prometheus.Registry
	// requests counts the requests to the repository. refused has the method that it rejects.
	requests atomic.Int32
	refused  atomic.Value
	// slow is how long the repository takes to send folders.
	slow atomic.Int64
}

func newFollower(ctx context.Context) *follower {
	GinkgoHelper()
	f := &follower{repository: gittest.New(GinkgoTB()), metrics: prometheus.NewRegistry()}
	url, ca := f.repository.HTTPS(GinkgoTB(), func(_ http.ResponseWriter, req *http.Request) int {
		if f.requests.Add(1); f.refused.Load() == req.Method {
			return http.StatusServiceUnavailable
		}
		if req.Method == http.MethodPost {
			f.Clock.Step(time.Duration(f.slow.Load()))
		}
		return 0
	})
	f.Scene = environmenttest.New()
	f.ExpectApplied(ctx, f.Secret("git", map[string]string{"ca.crt": ca}))
	f.project = f.ExpectProject(ctx, func(p *v1alpha1.Project) {
		p.Spec.Git = &v1alpha1.ProjectGit{URL: url, SecretRef: &v1alpha1.SecretReference{Name: "git"}}
	})
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	Expect(err).NotTo(HaveOccurred())
	f.branches = &gitfollower.Reconciler{Base: f.Base, Guard: egress.New(rules), Heads: f.Heads, Changed: f.Changed, Metrics: metrics.NewManager(f.metrics)}
	return f
}

// looks returns the number of polls with a result.
func (f *follower) looks(result string) float64 {
	GinkgoHelper()
	return metrictest.Of(GinkgoTB(), f.metrics).Value(GinkgoTB(), "agentplatform_git_looks_total", "result", result)
}

// look polls the repository and returns the queued environments.
func (f *follower) look(ctx context.Context) (woken []string, after time.Duration) {
	GinkgoHelper()
	f.Clock.Step(10 * time.Minute)
	after = f.ExpectReconciled(ctx, f.branches, f.project).RequeueAfter
	return f.Queued(), after
}

// deployments returns the deployments of the namespace.
func (f *follower) deployments(ctx context.Context) (list v1alpha1.DeploymentList) {
	GinkgoHelper()
	Expect(f.Admin.List(ctx, &list, client.InNamespace(f.Namespace))).To(Succeed())
	return list
}

// commits returns the commits of the deployments.
func (f *follower) commits(ctx context.Context) (commits []string) {
	GinkgoHelper()
	for _, d := range f.deployments(ctx).Items {
		commits = append(commits, string(d.Spec.Source.Git.Commit))
	}
	return commits
}

// deployed sets the status of a commit's only deployment to deployed.
func (f *follower) deployed(ctx context.Context, commit string, live bool) *v1alpha1.Deployment {
	GinkgoHelper()
	list := f.deployments(ctx)
	for i := range list.Items {
		d := &list.Items[i]
		if string(d.Spec.Source.Git.Commit) != commit {
			continue
		}
		d.Status.Phase, d.Status.Commit, d.Status.Path, d.Status.Live = v1alpha1.DeploymentDeployed, commit, &f.project.Spec.Git.Path, live
		f.ExpectStatus(ctx, d)
		return d
	}
	Fail("no deployment of " + commit)
	return nil
}

// built sets the status of a deployment to live, with a folder of the repository.
func (f *follower) built(ctx context.Context, name, commit, path string) {
	GinkgoHelper()
	list := f.deployments(ctx)
	for i := range list.Items {
		d := &list.Items[i]
		if d.Status.Live = d.Name == name; d.Status.Live {
			d.Status.Phase, d.Status.Commit, d.Status.Path = v1alpha1.DeploymentDeployed, commit, &path
		}
		f.ExpectStatus(ctx, d)
	}
}

// ended sets the status of a deployment to an ended phase.
func (f *follower) ended(ctx context.Context, name string, phase v1alpha1.DeploymentPhase) {
	GinkgoHelper()
	d := &v1alpha1.Deployment{ObjectMeta: f.At(name)}
	f.ExpectExists(ctx, d)
	d.Status.Phase = phase
	f.ExpectStatus(ctx, d)
}

func following(e *v1alpha1.Environment) { e.Spec.Git.AutoDeploy = true }

var _ = Describe("An Environment that follows a branch", func() {
	It("deploys each new head once", func(ctx SpecContext) {
		f := newFollower(ctx)
		first := f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		Expect(f.commits(ctx)).To(BeEmpty(), "nobody has looked yet")
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed)).To(BeNil())

		Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen)).To(BeNil())
		f.Events.Sent()
		woken, after := f.look(ctx)
		Expect(woken).To(ConsistOf("dev"))
		Expect(after).To(And(BeNumerically(">=", time.Minute), BeNumerically("<=", 66*time.Second)))
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first))
		d := f.deployments(ctx).Items[0]
		Expect(f.Events.Sent()).To(ConsistOf("Normal CommitSeen: the repository's default branch is at commit " + first))
		Expect(e.Status.SeenCommit).To(Equal(first))
		Expect(e.Status.IsTrue("SourceSeen")).To(BeTrue(), "as kubectl wait calls it")
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFetched)).To(BeNil(), "which is a Deployment's own")
		Expect(e.Status.Git).To(Equal(&v1alpha1.EnvironmentGitStatus{Commit: first, Path: ptr.To(""), Deployment: d.Name, Revision: 1}))
		Expect(e.Status.IsTrue(v1alpha1.ConditionSourceFollowed)).To(BeTrue())
		Expect(d.Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "agentplatform"))

		By("the same head again, also after its status was lost")
		woken, _ = f.look(ctx)
		Expect(woken).To(BeEmpty())
		f.ExpectAtRest(ctx, f.R, e)
		e.Status.Git = nil
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first))
		Expect(e.Status.Git.Deployment).To(Equal(d.Name))

		By("another head, which waits for the earlier build")
		between := f.repository.Commit("main", "agents/c.yaml", "name: c")
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first))
		Expect(e.Status.SeenCommit).To(Equal(between), "it is seen all the same")
		Expect(f.Events.Sent()).To(ContainElement(HaveSuffix(between)))
		Expect(e.Status.Git.Commit).To(Equal(first))
		f.deployed(ctx, first, true)
		second := f.repository.Commit("main", "agents/b.yaml", "name: b")
		woken, _ = f.look(ctx)
		Expect(woken).To(ConsistOf("dev"))
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first, second))

		By("a failed commit is not retried")
		list := f.deployments(ctx)
		for i := range list.Items {
			list.Items[i].Status.Phase = v1alpha1.DeploymentFailed
			f.ExpectStatus(ctx, &list.Items[i])
		}
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(HaveLen(2))
		condition := e.Status.Condition(v1alpha1.ConditionSourceFollowed)
		Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonDeploymentFailed))
		Expect(condition.Message).To(HavePrefix("the Deployment of commit " + second + ` is "` + e.Status.Git.Deployment + `", which is Failed`))

		By("another branch without a poll")
		e.Spec.Git.Branch = "other"
		f.ApplyAndReconcile(ctx, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed)).To(BeNil())
		Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen)).To(BeNil())
		Expect(e.Status.SeenCommit).To(BeEmpty())
		Expect(e.Status.Git).NotTo(BeNil())

		By("no longer following")
		e.Spec.Git.AutoDeploy = false
		f.ApplyAndReconcile(ctx, e)
		Expect(e.Status.Git).To(BeNil())
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed)).To(BeNil())
		Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen)).To(BeNil())
		_, after = f.look(ctx)
		Expect(after).To(BeZero())
	})

	It("skips commits that do not change the project's folder", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
		f.project.Spec.Git.Path = "teams/support/"
		f.ExpectApplied(ctx, f.project)
		first := f.repository.Commit("main", "teams/support/agents/a.yaml", "name: a", "README.md", "one")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		moves := func() []string {
			GinkgoHelper()
			f.look(ctx)
			f.ExpectReconciled(ctx, f.R, e)
			f.deployed(ctx, e.Status.Git.Commit, false)
			return f.commits(ctx)
		}
		Expect(moves()).To(ConsistOf(first))
		f.repository.Commit("main", "README.md", "two", "teams/other/agents/a.yaml", "name: a")
		Expect(moves()).To(ConsistOf(first))
		Expect(e.Status.Git.Commit).To(Equal(first))
		third := f.repository.Commit("main", "teams/support/agents/b.yaml", "name: b")
		Expect(moves()).To(ConsistOf(first, third))

		By("deleting the folder is a change too")
		f.repository.Git(f.repository.Work, "rm", "-rq", "teams/support")
		fourth := f.repository.Commit("main")
		Expect(moves()).To(ConsistOf(first, third, fourth))

		By("a server that does not support the query of folders")
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "false")
		fifth := f.repository.Commit("main", "README.md", "three")
		Expect(moves()).To(ConsistOf(first, third, fourth, fifth))
	})

	It("waits for a bounded time for a server that cannot read folders", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
		first := f.repository.Commit("main", "agents/a.yaml", "name: a", "README.md", "one")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		f.deployed(ctx, first, true)
		Expect(e.Status.Git.Tree).To(BeEmpty())

		By("a new path in the project builds the same commit again")
		f.project.Spec.Git.Path = "agents"
		f.ExpectApplied(ctx, f.project)
		woken, _ := f.look(ctx)
		Expect(woken).To(ConsistOf("dev"))
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Git.Tree).To(Equal(f.repository.Git(f.repository.Work, "rev-parse", "main:agents")))
		Expect(e.Status.Git.Path).To(HaveValue(Equal("agents")))
		Expect(f.commits(ctx)).To(ConsistOf(first, first))
		f.built(ctx, e.Status.Git.Deployment, first, "agents")

		By("the server fails for a while")
		second := f.repository.Commit("main", "README.md", "two")
		f.refused.Store(http.MethodPost)
		for i := range 4 {
			woken, _ := f.look(ctx)
			Expect(woken).To(HaveLen(max(0, 1-i)), "one wake-up per push")
			f.ExpectReconciled(ctx, f.R, e)
			Expect(f.commits(ctx)).To(ConsistOf(first, first))
			Expect(e.Status.SeenCommit).To(Equal(second))
			Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen).Reason).To(Equal(v1alpha1.ReasonFolderUnseen))
			Expect(e.Status.IsTrue(v1alpha1.ConditionSourceFollowed)).To(BeTrue(), "the commit of before is live")
		}
		Expect(f.looks("folder_unseen")).To(Equal(4.0))
		woken, _ = f.look(ctx)
		Expect(woken).To(ConsistOf("dev"))
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first, first, second))
		Expect(e.Status.IsTrue(v1alpha1.ConditionSourceSeen)).To(BeTrue())
	})

	It("polls a server with slow folders less often", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
		f.project.Spec.Git.Path = "agents"
		f.ExpectApplied(ctx, f.project)
		f.ApplyAndReconcile(ctx, f.Environment("dev", following))
		for _, c := range []struct{ takes, apart time.Duration }{{9 * time.Second, 270 * time.Second}, {time.Second / 10, time.Minute}} {
			f.repository.Commit("main", "agents/a.yaml", "name: "+c.takes.String())
			f.slow.Store(int64(c.takes))
			woken, after := f.look(ctx)
			Expect(woken).To(ConsistOf("dev"), "it has answered")
			Expect(after).To(BeNumerically("~", c.apart, 6*time.Second))
		}
		Expect(f.looks("answered")).To(Equal(2.0))
	})

	It("builds its head from a changed folder after the current build", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
		f.project.Spec.Git.Path = "a"
		f.ExpectApplied(ctx, f.project)
		first := f.repository.Commit("main", "a/agents/a.yaml", "name: a", "b/agents/b.yaml", "name: b")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		before := e.Status.Git.Deployment
		tree := e.Status.Git.Tree

		f.project.Spec.Git.Path = "b"
		f.ExpectApplied(ctx, f.project)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first), "one build at a time")
		Expect(e.Status.Git.Tree).To(Equal(tree), "the tree of the commit that is built")
		Expect(e.Status.Git.Path).To(HaveValue(Equal("a")))
		f.built(ctx, before, first, "a")
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first, first))
		Expect(e.Status.Git.Deployment).NotTo(Equal(before))
		Expect(e.Status.Git.Path).To(HaveValue(Equal("b")))
		f.built(ctx, e.Status.Git.Deployment, first, "b")
		f.ExpectAtRest(ctx, f.R, e)

		By("a status of an earlier release without the folder")
		e.Status.Git.Path = nil
		f.ExpectStatus(ctx, e)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(ConsistOf(first, first))
		Expect(e.Status.Git.Path).To(HaveValue(Equal("b")))
	})

	It("reports a successful fetch while the folder cannot be read", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Git(f.repository.Dir+"/repo.git", "config", "uploadpack.allowFilter", "true")
		f.project.Spec.Git.Path = "agents"
		f.ExpectApplied(ctx, f.project)
		first := f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		says := func(fetched, followed string) {
			GinkgoHelper()
			f.look(ctx)
			f.ExpectReconciled(ctx, f.R, e)
			for condition, want := range map[string]string{v1alpha1.ConditionSourceSeen: fetched, v1alpha1.ConditionSourceFollowed: followed} {
				is := e.Status.Condition(condition)
				Expect(string(is.Status)+"/"+is.Reason).To(Equal(want), is.Message)
			}
		}
		f.Events.Sent()
		f.refused.Store(http.MethodGet)
		says("False/FetchFailed", "False/FetchFailed")
		says("False/FetchFailed", "False/FetchFailed")
		Expect(f.Events.Sent()).To(ConsistOf(HavePrefix("Warning FetchFailed: cannot fetch")), "once")
		Expect(e.Status.SeenCommit).To(BeEmpty())

		f.refused.Store(http.MethodPost)
		says("False/FolderUnseen", "False/FolderUnseen")
		Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen).Message).To(
			HavePrefix("the repository's default branch is at commit " + first + `; the files in "agents" cannot be read now`))
		Expect(f.Events.Sent()).To(ConsistOf(HavePrefix("Normal CommitSeen"), HavePrefix("Warning FolderUnseen")))
		Expect(f.commits(ctx)).To(BeEmpty())

		f.refused.Store("")
		says("True/Succeeded", "True/Succeeded")
		Expect(f.Events.Sent()).To(ConsistOf("Normal FetchedAgain: the repository's default branch is at commit " + first))
		Expect(f.commits(ctx)).To(ConsistOf(first))
		for result, count := range map[string]float64{"answered": 1, "failed": 2, "folder_unseen": 1, "late": 0} {
			Expect(f.looks(result)).To(Equal(count), result)
		}

		By("suspending it, which stops the polls")
		e.Spec.Suspend = true
		f.ApplyAndReconcile(ctx, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceSeen)).To(BeNil())
	})

	It("polls without metrics", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		f.ApplyAndReconcile(ctx, f.Environment("dev", following))
		f.branches.Metrics = nil
		woken, _ := f.look(ctx)
		Expect(woken).To(ConsistOf("dev"))
	})

	It("polls a repository at most every ten seconds, whatever triggers the poll", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following)
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		asked := f.requests.Load()
		f.Clock.Step(4 * time.Second)
		Expect(f.ExpectReconciled(ctx, f.branches, f.project).RequeueAfter).To(Equal(6 * time.Second))
		Expect(f.requests.Load()).To(Equal(asked))
		f.Clock.Step(6 * time.Second)
		Expect(f.ExpectReconciled(ctx, f.branches, f.project).RequeueAfter).To(BeNumerically(">=", time.Minute))
		Expect(f.requests.Load()).To(BeNumerically(">", asked))
	})

	It("reports why the head is unknown, and waits", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following, func(e *v1alpha1.Environment) { e.Spec.Git.Branch = "release" })
		f.ApplyAndReconcile(ctx, e)
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		condition := e.Status.Condition(v1alpha1.ConditionSourceFollowed)
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonFetchFailed))
		Expect(condition.Message).To(Equal(`the repository has no branch "release"; push it or correct the name`))
		Expect(f.commits(ctx)).To(BeEmpty())

		By("deleting the credentials")
		f.ExpectGone(ctx, f.Secret("git", nil))
		f.look(ctx)
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed).Message).To(ContainSubstring(`Secret "git"`))

		By("the project has no repository")
		f.project.Spec.Git = nil
		f.ExpectApplied(ctx, f.project)
		_, after := f.look(ctx)
		Expect(after).To(BeZero())
		f.ExpectReconciled(ctx, f.R, e)
		Expect(e.Status.Condition(v1alpha1.ConditionSourceFollowed).Reason).To(Equal(v1alpha1.ReasonGitMissing))
	})

	It("does nothing while it is suspended", func(ctx SpecContext) {
		f := newFollower(ctx)
		f.repository.Commit("main", "agents/a.yaml", "name: a")
		e := f.Environment("dev", following, func(e *v1alpha1.Environment) { e.Spec.Suspend = true })
		f.ApplyAndReconcile(ctx, e)
		_, after := f.look(ctx)
		Expect(after).To(BeZero())
		f.ExpectReconciled(ctx, f.R, e)
		Expect(f.commits(ctx)).To(BeEmpty())
	})
})
