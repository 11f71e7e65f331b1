// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Environment is the REST shape of an environment.
type Environment struct {
	ID                string              `json:"id" format:"uuid" doc:"The environment's id."`
	ProjectID         string              `json:"project_id" format:"uuid" doc:"The project's id."`
	Name              string              `json:"name" doc:"Its name for people." example:"Production"`
	KubernetesName    string              `json:"kubernetes_name" doc:"The name of its object in Kubernetes, which never changes: kubectl, manifests and the environments of API keys use it." example:"production-x7k2p"`
	Slug              string              `json:"slug" doc:"Derived from the name, unique within the project; empty until the platform has seen the environment." example:"production"`
	IsDefault         bool                `json:"is_default" doc:"Whether it is the project's default environment."`
	Kind              EnvironmentKind     `json:"kind" doc:"What it is for."`
	GitBranch         *string             `json:"git_branch" doc:"The branch that is built; null: the repository's default branch."`
	GitCommit         *string             `json:"git_commit" doc:"The commit that it is to be at, as its object says; null where it says none." example:"9f2c1d0e8b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e"`
	AutoDeploy        bool                `json:"auto_deploy" doc:"Whether each new head of the branch is deployed, as its object says."`
	GitWebhookURL     *string             `json:"git_webhook_url" format:"uri" doc:"Where the provider of the project's repository may tell of pushes, the same for all environments; null in a project without a repository." example:"https://hooks.example.com/git/2b1f6c1e-58f5-4f5c-8d0e-6f4b7c0a9d11"`
	Settings          EnvironmentSettings `json:"settings" doc:"How its agents run."`
	TestEnvironmentID *string             `json:"test_environment_id" format:"uuid" doc:"The environment with whose configuration the tests of deployments are run, as its object says; null where it names none, or none that the key reaches."`
	Suspended         bool                `json:"suspended" doc:"Whether its object says that no deployment begins and no runner pod changes; webhooks and runs go on."`
	Ready             bool                `json:"ready" doc:"Whether it is in effect as its object says, with runner pods that run."`
	Message           *string             `json:"message" doc:"Why it is not ready; null while it is."`
	LiveDeploymentID  *string             `json:"live_deployment_id" format:"uuid" doc:"The deployment that runs there; null before the first."`
	TestSession       Null[TestSession]   `json:"test_session" doc:"Who tests in a test environment; null while nobody does."`
	Permissions       []Permission        `json:"permissions" doc:"What the caller may do in it."`
	CreatedAt         time.Time           `json:"created_at" doc:"When it was created."`
	UpdatedAt         time.Time           `json:"updated_at" doc:"When it was last changed."`
}

func (e Environment) audited() store.AuditObject {
	return store.AuditObject{Kind: "environment", ID: e.ID, Name: e.Name}
}

// auditedEnvironment is what the audit log calls an environment.
func auditedEnvironment(e *v1alpha1.Environment) store.AuditObject {
	return Environment{ID: idOf(e), Name: e.Title()}.audited()
}

// EnvironmentSettings are the settings of an environment.
type EnvironmentSettings struct {
	Runner RunnerSettings `json:"runner" doc:"The pool of runner pods."`
}

// RunnerSettings say how the pool of runner pods looks.
type RunnerSettings struct {
	MinReplicas int32             `json:"min_replicas" doc:"How many pods there are, at least where the pool scales."`
	MaxReplicas Null[int32]       `json:"max_replicas" doc:"How many pods there are at most; null where the pool does not scale."`
	Concurrency int32             `json:"concurrency" doc:"How many runs one pod executes at once."`
	Requests    map[string]string `json:"requests" doc:"Compute resources that a pod asks for, as Kubernetes writes them."`
	Limits      map[string]string `json:"limits" doc:"Compute resources that a pod may use, as Kubernetes writes them."`
}

// EnvironmentPath names an environment.
type EnvironmentPath struct {
	ProjectPath
	EnvironmentID ID `path:"environment_id" doc:"The environment."`
}

// EnvironmentQuery names the environment that a list is of.
type EnvironmentQuery struct {
	ProjectPath
	EnvironmentID ID `query:"environment_id" required:"true" doc:"The environment."`
}

func (s *Server) listEnvironments(ctx context.Context, c *caller, _ *ProjectPath) (answer[[]Environment], error) {
	all, err := s.environments(ctx, c)
	if err != nil {
		return answer[[]Environment]{}, err
	}
	shown := make([]*v1alpha1.Environment, len(all))
	for i := range all {
		shown[i] = &all[i]
	}
	show, err := s.environmentShower(ctx, c, shown...)
	if err != nil {
		return answer[[]Environment]{}, err
	}
	out := make([]Environment, 0, len(all))
	for _, e := range shown {
		out = append(out, show(e))
	}
	slices.SortFunc(out, func(a, b Environment) int {
		if a.IsDefault != b.IsDefault {
			if a.IsDefault {
				return -1
			}
			return 1
		}
		return cmp.Or(compareNames(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return plainly(out, nil)
}

func (s *Server) getEnvironment(ctx context.Context, c *caller, in *EnvironmentPath) (answer[Environment], error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Environment]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return answer[Environment]{}, err
	}
	return answer[Environment]{Body: show(e), ETag: etag(e)}, nil
}

// environmentShower makes REST shapes of environments: what all of an answer share is
// asked for once.
func (s *Server) environmentShower(ctx context.Context, c *caller, of ...*v1alpha1.Environment) (func(*v1alpha1.Environment) Environment, error) {
	may, err := s.allowed(ctx, c)
	if err != nil {
		return nil, err
	}
	project, err := s.project(ctx, c)
	if err != nil {
		return nil, err
	}
	isDefault, err := s.defaultOf(ctx, c, project)
	if err != nil {
		return nil, err
	}
	tests, err := s.testEnvironments(ctx, c, of)
	if err != nil {
		return nil, err
	}
	return func(e *v1alpha1.Environment) Environment {
		out := Environment{
			ID: idOf(e), ProjectID: c.projectID.String(), Name: e.Title(), KubernetesName: e.Name, Slug: e.Status.Slug,
			IsDefault: isDefault(e),
			Kind:      EnvironmentKind(cmp.Or(e.Spec.Kind, v1alpha1.EnvironmentStandard).Word()),
			GitBranch: opt(e.Spec.Git.Branch), GitCommit: opt(e.Spec.Git.Commit), AutoDeploy: e.Spec.Git.AutoDeploy,
			GitWebhookURL: opt(project.Status.GitWebhookURL), TestEnvironmentID: opt(tests[e.Spec.TestEnvironment]),
			Suspended: e.Spec.Suspend, Ready: v1alpha1.IsReady(e),
			Settings: EnvironmentSettings{Runner: RunnerSettings{
				MinReplicas: e.Spec.Runner.Replicas(), MaxReplicas: Null[int32]{Value: e.Spec.Runner.MaxReplicas}, Concurrency: e.Spec.Runner.Concurrency,
				Requests: quantities(e.Spec.Runner.Resources.Requests), Limits: quantities(e.Spec.Runner.Resources.Limits),
			}},
			LiveDeploymentID: opt(e.Status.LiveDeploymentID), Permissions: may,
			TestSession: Null[TestSession]{Value: showTestSession(e.ActiveTestSession(s.now()))},
			CreatedAt:   e.CreationTimestamp.UTC(), UpdatedAt: updatedAt(e),
		}
		if !out.Ready {
			out.Message = opt(whyNotReady(e))
		}
		return out
	}, nil
}

// testEnvironments are the ids, by name, of the environments that others name for their tests,
// as far as the caller's key reaches them; nil where none of them names one.
func (s *Server) testEnvironments(ctx context.Context, c *caller, of []*v1alpha1.Environment) (map[v1alpha1.EnvironmentName]string, error) {
	if !slices.ContainsFunc(of, func(e *v1alpha1.Environment) bool { return e.Spec.TestEnvironment != "" }) {
		return nil, nil //nolint:nilnil // none
	}
	all, err := s.environments(ctx, c)
	if err != nil {
		return nil, err
	}
	ids := map[v1alpha1.EnvironmentName]string{}
	for i := range all {
		ids[v1alpha1.EnvironmentName(all[i].Name)] = idOf(&all[i])
	}
	return ids, nil
}

func quantities(resources corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range resources {
		out[string(name)] = quantity.String()
	}
	return out
}
