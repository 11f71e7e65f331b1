// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// The branch is the requested one, else the environment's, else the project's, else the repository's
// HEAD.
func TestBranch_FallsBackToEnvironmentAndProject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked, environment, project v1alpha1.GitBranch
		want                        string
	}{
		"branch of the deployment before all others": {"a", "e", "p", "a"},
		"branch of the environment":                  {"", "e", "p", "e"},
		"branch of the project":                      {"", "", "p", "p"},
		"default branch":                             {"", "", "", ""},
		"branch of the deployment only":              {"a", "", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &deploymentState{
				Deployment:  &v1alpha1.Deployment{Spec: v1alpha1.DeploymentSpec{Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: c.asked}}}},
				environment: &v1alpha1.Environment{Spec: v1alpha1.EnvironmentSpec{Git: v1alpha1.EnvironmentGit{Branch: c.environment}}},
				project:     &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{DefaultBranch: c.project}}},
			}
			require.Equal(t, c.want, v.requestedBranch())
			v.project.Spec.Git = nil
			require.NotEqual(t, "p", v.requestedBranch(), "without a repository")
		})
	}
}

// A live version is rebuilt from its recorded branch.
func TestBranch_RebuildKeepsBranch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		asked v1alpha1.GitBranch
		live  bool
		built string
		want  string
	}{
		{"live", "", true, "built", "built"},
		{"asked for", "a", true, "a", "a"},
		{"unknown", "", true, "", "e"},
		{"not live", "", false, "built", "e"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			v := &deploymentState{
				Deployment: &v1alpha1.Deployment{
					Spec:   v1alpha1.DeploymentSpec{Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: row.asked}}},
					Status: v1alpha1.DeploymentStatus{Live: row.live, Branch: row.built},
				},
				environment: &v1alpha1.Environment{Spec: v1alpha1.EnvironmentSpec{Git: v1alpha1.EnvironmentGit{Branch: "e"}}},
				project:     &v1alpha1.Project{},
			}
			require.Equal(t, row.want, v.requestedBranch())
		})
	}
}

// The fingerprint covers source and environment, and no field that may change later.
func TestFingerprint_CoversSource(t *testing.T) {
	t.Parallel()
	base := v1alpha1.DeploymentSpec{Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}}}
	want, err := base.Fingerprint()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*v1alpha1.DeploymentSpec)
		same   bool
	}{
		"nothing":     {func(*v1alpha1.DeploymentSpec) {}, true},
		"cancel":      {func(s *v1alpha1.DeploymentSpec) { s.Cancel = true }, true},
		"activation":  {func(s *v1alpha1.DeploymentSpec) { s.Activation = &v1alpha1.DeploymentActivation{} }, true},
		"redeploy of": {func(s *v1alpha1.DeploymentSpec) { s.RedeployOf = "a" }, true},
		"environment": {func(s *v1alpha1.DeploymentSpec) { s.Environment = "prod" }, false},
		"branch":      {func(s *v1alpha1.DeploymentSpec) { s.Source.Git.Branch = "main" }, false},
		"connectors":  {func(s *v1alpha1.DeploymentSpec) { s.SkipFailedConnectors = true }, false},
		"tests":       {func(s *v1alpha1.DeploymentSpec) { s.SkipTests = true }, false},
		"commit":      {func(s *v1alpha1.DeploymentSpec) { s.Source.Git.Commit = "main" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := *base.DeepCopy()
			c.change(&spec)
			got, err := spec.Fingerprint()
			require.NoError(t, err)
			require.Equal(t, c.same, got == want)
		})
	}
}

// Deployments of the platform beyond the newest are deleted if they have ended, are not live and are
// not being deleted.
func TestPrunable_SelectsOldDeployments(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	d := func(name string, age time.Duration, change func(*v1alpha1.Deployment)) v1alpha1.Deployment {
		out := v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		out.Status.Phase = v1alpha1.DeploymentDeployed
		change(&out)
		return out
	}
	asIs := func(*v1alpha1.Deployment) {}
	var all []v1alpha1.Deployment
	for i := range maxKeptDeployments {
		all = append(all, d(fmt.Sprintf("new-%02d", i), time.Duration(i)*time.Minute, asIs))
	}
	require.Empty(t, prunable(all), "as many as are kept")
	old := []v1alpha1.Deployment{
		d("deployed", 2*time.Hour, asIs),
		d("failed", 3*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentFailed }),
		d("cancelled", 3*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentCancelled }),
		d("live", 4*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Live = true }),
		d("pending", 4*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentPending }),
		d("building", 4*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentBuilding }),
		d("not-begun", 4*time.Hour, func(d *v1alpha1.Deployment) { d.Status.Phase = "" }),
		d("asked", 4*time.Hour, func(d *v1alpha1.Deployment) {
			d.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(noon)}
		}),
		d("going", 4*time.Hour, func(d *v1alpha1.Deployment) { d.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }),
	}
	for _, order := range [][]v1alpha1.Deployment{append(slices.Clone(all), old...), append(slices.Clone(old), all...)} {
		var names []string
		for _, p := range prunable(order) {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		require.Equal(t, []string{"cancelled", "deployed", "failed"}, names)
	}
}

// A status with the maximum number of agents and the longest names stays below 64 KiB and shows the
// first agents by name.
func TestMirror_StatusFitsSizeLimit(t *testing.T) {
	t.Parallel()
	var agents []store.Agent
	for i := range 1000 {
		agents = append(agents, store.Agent{
			Name: fmt.Sprintf("%03d-%s", 999-i, strings.Repeat("a", 59)), Type: "sequential", VariantOf: strings.Repeat("b", 63),
		})
	}
	shown := shownAgents(agents)
	require.NotEmpty(t, shown)
	require.Less(t, len(shown), len(agents))
	require.True(t, slices.IsSortedFunc(shown, func(a, b v1alpha1.DeploymentAgent) int { return strings.Compare(a.Name, b.Name) }))
	require.True(t, strings.HasPrefix(shown[0].Name, "000-"))
	require.Len(t, shownAgents(agents[:10]), 10, "few are shown all")

	d := &v1alpha1.Deployment{Spec: v1alpha1.DeploymentSpec{Activation: &v1alpha1.DeploymentActivation{}}}
	long := strings.Repeat("<&ä", 4000)
	d.Status.Agents, d.Status.AgentCount, d.Status.Commit, d.Status.Branch = shown, 1000, strings.Repeat("c", 64), strings.Repeat("b", 255)
	for _, step := range []v1alpha1.DeploymentStep{v1alpha1.StepFetching, v1alpha1.StepPacking, v1alpha1.StepTesting, v1alpha1.StepConnecting} {
		d.MarkBuilding(step)
		d.MarkFailed(v1alpha1.FailureDeadline, long)
	}
	d.MarkNotLive()
	d.MarkActivation(v1alpha1.ActivationFailed, long)
	d.MarkBuildBlocked(long)
	text, err := json.Marshal(d.Status)
	require.NoError(t, err)
	require.Less(t, len(text), 64<<10)
}

// Deployments are reconciled like environments. They are also reconciled if their live state is
// outdated.
func TestWatches_PassRelevantChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Project)
		enqueued bool
	}{
		"another spec":  {func(p *v1alpha1.Project) { p.Generation++ }, true},
		"its id":        {func(p *v1alpha1.Project) { p.Status.ID = "a" }, true},
		"its network":   {(*v1alpha1.Project).MarkNetworkReady, true},
		"the default":   {func(p *v1alpha1.Project) { p.Status.DefaultEnvironment = "dev" }, false},
		"an annotation": {func(p *v1alpha1.Project) { p.Annotations = map[string]string{"a": "b"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Project{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(projectState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Environment)
		enqueued bool
	}{
		"another spec":              {func(e *v1alpha1.Environment) { e.Generation++ }, true},
		"environment limit reached": {func(e *v1alpha1.Environment) { e.MarkLimitReached(1, true) }, true},
		"its runner state":          {func(e *v1alpha1.Environment) { e.MarkRunnersStarting(0, 1) }, false},
		"its live deployment":       {func(e *v1alpha1.Environment) { e.Status.LiveDeploymentID = "a" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.Environment{}
			after := before.DeepCopy()
			c.change(after)
			require.Equal(t, c.enqueued, base.Changed(environmentState).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
}

// A deployment is reconciled if its environment has another live deployment than its status says.
func TestOutOfDate_ComparesTheLiveDeployment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environment, id string
		live            bool
		phase           v1alpha1.DeploymentPhase
		concerns        bool
	}{
		"shown live, and still live":           {"a", "a", true, v1alpha1.DeploymentDeployed, false},
		"not shown live, but live":             {"a", "a", false, v1alpha1.DeploymentDeployed, true},
		"shown live, but another is live":      {"b", "a", true, v1alpha1.DeploymentDeployed, true},
		"not shown live, and another is live":  {"b", "a", false, v1alpha1.DeploymentDeployed, false},
		"shown live, but none is live":         {"", "a", true, v1alpha1.DeploymentDeployed, true},
		"none is live, and it can become live": {"", "a", false, v1alpha1.DeploymentDeployed, true},
		"none is live, and it failed":          {"", "a", false, v1alpha1.DeploymentFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}
			e.Status.LiveDeploymentID = c.environment
			d := &v1alpha1.Deployment{Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
			d.Status.ID, d.Status.Live, d.Status.Phase = c.id, c.live, c.phase
			require.Equal(t, c.concerns, hasStaleLiveState(e, d))
			d.Spec.Environment = "prod"
			require.False(t, hasStaleLiveState(e, d), "of another environment")
			require.False(t, hasStaleLiveState(&corev1.Pod{}, d))
		})
	}
}

// A step of an autoscaler does not queue deployments that have ended.
func TestOfEnvironment_SelectsDeployments(t *testing.T) {
	t.Parallel()
	d := func(name string, phase v1alpha1.DeploymentPhase, live bool) *v1alpha1.Deployment {
		d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
		d.Status.ID, d.Status.Phase, d.Status.Live = name, phase, live
		return d
	}
	r := &base.Base{Client: controllertest.Cached(t, d("new", "", false), d("open", v1alpha1.DeploymentBuilding, false),
		d("live", v1alpha1.DeploymentDeployed, true), d("old", v1alpha1.DeploymentDeployed, false), d("failed", v1alpha1.DeploymentFailed, false))}
	before := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "dev"}}
	before.Status.ID, before.Status.LiveDeploymentID = "e", "live"
	for name, c := range map[string]struct {
		change func(*v1alpha1.Environment)
		want   []string
	}{
		"another spec":                    {func(e *v1alpha1.Environment) { e.Generation++ }, []string{"new", "open"}},
		"environment limit reached":       {func(e *v1alpha1.Environment) { e.MarkLimitReached(1, true) }, []string{"new", "open"}},
		"its runner state":                {func(e *v1alpha1.Environment) { e.MarkRunnersStarting(0, 1) }, nil},
		"shown live, but another is live": {func(e *v1alpha1.Environment) { e.Status.LiveDeploymentID = "old" }, []string{"live", "old"}},
		"a re-created environment":        {func(e *v1alpha1.Environment) { e.Status.ID = "" }, []string{"failed", "live", "new", "old", "open"}},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			c.change(after)
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
			update := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			for _, change := range environmentWatches {
				if change.when.Update(update) {
					r.EnqueueBy(base.ByEnvironment, &v1alpha1.DeploymentList{}, change.pick).Update(t.Context(), update, queue)
				}
			}
			var enqueued []string
			for queue.Len() > 0 {
				request, _ := queue.Get()
				enqueued = append(enqueued, request.Name)
			}
			queue.ShutDown()
			slices.Sort(enqueued)
			require.Equal(t, c.want, enqueued)
		})
	}
}

// usersOf returns the open deployments of a project whose repository needs the Secret.
func TestUsersOf_FindsOpenDeployments(t *testing.T) {
	t.Parallel()
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	open, ended := &v1alpha1.Deployment{ObjectMeta: at("team", "open")}, &v1alpha1.Deployment{ObjectMeta: at("team", "ended")}
	ended.Status.Phase = v1alpha1.DeploymentFailed
	project := func(namespace string, git *v1alpha1.ProjectGit) *v1alpha1.Project {
		return &v1alpha1.Project{ObjectMeta: at(namespace, "project"), Spec: v1alpha1.ProjectSpec{Git: git}}
	}
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		open, ended, &v1alpha1.Deployment{ObjectMeta: at("public", "open")}, &v1alpha1.Deployment{ObjectMeta: at("none", "open")},
		project("team", &v1alpha1.ProjectGit{SecretRef: &v1alpha1.SecretReference{Name: "git"}}),
		project("public", &v1alpha1.ProjectGit{}), project("none", nil),
	)}}
	for _, c := range []struct {
		secret metav1.ObjectMeta
		want   []string
	}{
		{at("team", "git"), []string{"open"}}, {at("team", "other"), nil}, {at("public", "git"), nil}, {at("none", "git"), nil}, {at("nobody", "git"), nil},
	} {
		t.Run(c.secret.Namespace+"/"+c.secret.Name, func(t *testing.T) {
			require.Equal(t, c.want, controllertest.Names(r.usersOf(t.Context(), &corev1.Secret{ObjectMeta: c.secret})), "%s/%s", c.secret.Namespace, c.secret.Name)
		})
	}
}

// deploymentsTestedIn returns the open deployments to environments that name the test environment.
func TestDeploymentsTestedIn_FindsOpenDeployments(t *testing.T) {
	t.Parallel()
	environment := func(namespace, name, tests string) *v1alpha1.Environment {
		return &v1alpha1.Environment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.EnvironmentSpec{TestEnvironment: v1alpha1.EnvironmentName(tests)},
		}
	}
	to := func(namespace, name, environment string, phase v1alpha1.DeploymentPhase) *v1alpha1.Deployment {
		return &v1alpha1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.DeploymentSpec{Environment: v1alpha1.EnvironmentName(environment)},
			Status: v1alpha1.DeploymentStatus{Phase: phase},
		}
	}
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		environment("team", "dev", "lab"), environment("team", "staging", "lab"), environment("team", "plain", ""), environment("team", "own", "own"),
		environment("other", "dev", "lab"),
		to("team", "open", "dev", ""), to("team", "ended", "dev", v1alpha1.DeploymentFailed), to("team", "staged", "staging", v1alpha1.DeploymentBuilding),
		to("team", "unrelated", "plain", ""), to("team", "itself", "own", ""), to("other", "theirs", "dev", ""),
	)}}
	for name, want := range map[string][]string{"lab": {"open", "staged"}, "plain": nil, "dev": nil, "own": nil} {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, want, controllertest.Names(r.deploymentsTestedIn(t.Context(), environment("team", name, ""))))
		})
	}
}

// Times have whole seconds like in kube-apiserver, so that fractions cause no writes.
func TestClock_TruncatesToSeconds(t *testing.T) {
	t.Parallel()
	require.Nil(t, statusTime(nil))
	at := time.Date(2026, 1, 2, 12, 0, 0, 999, time.UTC)
	require.True(t, statusTime(&at).Time.Equal(at.Truncate(time.Second)))
}

// The wait starts when the bundle is stored.
func TestWaited_StartsWithLastStep(t *testing.T) {
	t.Parallel()
	v := &deploymentState{Deployment: &v1alpha1.Deployment{}}
	require.Zero(t, v.timeAtStep(time.Now()))
	v.MarkBuilding(v1alpha1.StepConnecting)
	since := v.Status.Condition(v1alpha1.ConditionConnectorsApplied).LastTransitionTime
	require.Equal(t, time.Minute, v.timeAtStep(since.Add(time.Minute)))
}
