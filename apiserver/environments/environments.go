// SPDX-License-Identifier: Apache-2.0

// Package environments serves environments, their variables and their test sessions.
package environments

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// API serves environments and their test sessions.
type API struct {
	Service   *rest.Service
	Variables *Variables
}

// Section has the endpoints of environments; API serves them.
var Section = rest.Section[*API]{
	Name: "environments", Doc: "Environments in which agents are deployed and run.",
	Endpoints: []rest.EndpointOf[*API]{
		listEnvironments, getEnvironment, createEnvironment, updateEnvironment, deleteEnvironment, setDefaultEnvironment,
		holdTestSession, endTestSession,
	},
}

// Environment is the REST shape of an environment.
type Environment struct {
	ID                string                 `json:"id" format:"uuid" doc:"The environment's ID."`
	ProjectID         string                 `json:"project_id" format:"uuid" doc:"The project's ID."`
	Name              string                 `json:"name" doc:"The display name." example:"Production"`
	KubernetesName    string                 `json:"kubernetes_name" doc:"The name of the Kubernetes object, which never changes. kubectl, manifests and API keys use this name." example:"production-x7k2p"`
	Slug              string                 `json:"slug" doc:"A slug of the name, unique in the project; empty until the platform has processed the environment." example:"production"`
	IsDefault         bool                   `json:"is_default" doc:"Whether this is the project's default environment."`
	Kind              EnvironmentKind        `json:"kind" doc:"The purpose of the environment."`
	GitBranch         *string                `json:"git_branch" doc:"The branch to deploy; null stands for the repository's default branch."`
	GitCommit         *string                `json:"git_commit" doc:"The pinned commit of the Kubernetes object; null if there is none." example:"9f2c1d0e8b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e"`
	AutoDeploy        bool                   `json:"auto_deploy" doc:"Whether each new head of the branch is deployed, as set in the Kubernetes object."`
	GitWebhookURL     *string                `json:"git_webhook_url" format:"uri" doc:"The push webhook for the project's Git provider, the same for all environments; null if the project has no repository." example:"https://hooks.example.com/git/2b1f6c1e-58f5-4f5c-8d0e-6f4b7c0a9d11"`
	Settings          EnvironmentSettings    `json:"settings" doc:"The settings."`
	TestEnvironmentID *string                `json:"test_environment_id" format:"uuid" doc:"The environment whose configuration the tests of deployments use, as set in the Kubernetes object; null if there is none, or if the key does not reach it."`
	Suspended         bool                   `json:"suspended" doc:"Whether the Kubernetes object is suspended: no deployment starts and no runner pod changes. Webhooks and runs continue."`
	Ready             bool                   `json:"ready" doc:"Whether the environment is in effect as its Kubernetes object says, with running runner pods."`
	Message           *string                `json:"message" doc:"Why the environment is not ready; null if it is ready."`
	LiveDeploymentID  *string                `json:"live_deployment_id" format:"uuid" doc:"The live deployment; null before the first one."`
	TestSession       rest.Null[TestSession] `json:"test_session" doc:"The test session; null if there is none."`
	Permissions       []rest.Permission      `json:"permissions" doc:"The caller's permissions in the environment."`
	CreatedAt         time.Time              `json:"created_at" doc:"When the environment was created."`
	UpdatedAt         time.Time              `json:"updated_at" doc:"When the environment was last changed."`
}

func (Environment) Doc() string { return "An environment in which agents are deployed and run." }

func (e Environment) Audited() store.AuditObject {
	return store.AuditObject{Kind: "environment", ID: e.ID, Name: e.Name}
}

// auditedEnvironment returns the environment in the form of the audit log.
func auditedEnvironment(e *v1alpha1.Environment) store.AuditObject {
	return Environment{ID: rest.ObjectID(e), Name: e.Title()}.Audited()
}

// EnvironmentSettings are the settings of an environment.
type EnvironmentSettings struct {
	Runner RunnerSettings `json:"runner" doc:"The pool of runner pods."`
}

func (EnvironmentSettings) Doc() string { return "The settings of an environment." }

// RunnerSettings are the settings of the runner pool.
type RunnerSettings struct {
	MinReplicas int32             `json:"min_replicas" doc:"Number of runner pods, or the minimum if the pool scales."`
	MaxReplicas rest.Null[int32]  `json:"max_replicas" doc:"Maximum number of runner pods; null if the pool does not scale."`
	Concurrency int32             `json:"concurrency" doc:"Number of runs that a pod executes at a time."`
	Requests    map[string]string `json:"requests" doc:"Resource requests of a pod, as Kubernetes quantities."`
	Limits      map[string]string `json:"limits" doc:"Resource limits of a pod, as Kubernetes quantities."`
}

func (RunnerSettings) Doc() string { return "The settings of the pool of runner pods." }

var listEnvironments = rest.Handle((*API).listEnvironments, rest.Endpoint{
	Method: rest.Get, Path: "/environments", ID: "listEnvironments",
	Permissions: rest.Requires("environments.view"), Errors: rest.CommonErrors,
	Summary: "List environments",
	Doc: "Returns the default environment first, then the other environments by name. A key that is limited to some " +
		"environments sees only those environments.",
	Example: rest.Example{Path: "/environments"},
})

func (s *API) listEnvironments(ctx context.Context, c *rest.Caller, _ *rest.ProjectPath) (rest.Response[[]Environment], error) {
	all, err := s.Service.Environments(ctx, c)
	if err != nil {
		return rest.Response[[]Environment]{}, err
	}
	shown := make([]*v1alpha1.Environment, len(all))
	for i := range all {
		shown[i] = &all[i]
	}
	show, err := s.environmentShower(ctx, c, shown...)
	if err != nil {
		return rest.Response[[]Environment]{}, err
	}
	out := rest.ShowAll(shown, show)
	slices.SortFunc(out, func(a, b Environment) int {
		if a.IsDefault != b.IsDefault {
			if a.IsDefault {
				return -1
			}
			return 1
		}
		return cmp.Or(rest.CompareNames(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return rest.NewResponse(out, nil)
}

var getEnvironment = rest.Handle((*API).getEnvironment, rest.Endpoint{
	Method: rest.Get, Path: "/environments/{environment_id}", ID: "getEnvironment",
	Permissions: rest.Requires("environments.view"), Errors: rest.ReadErrors,
	HasETag: true,
	Summary: "Get an environment",
	Doc:     "Returns the environment with its settings and the caller's permissions in it.",
	Example: rest.Example{Path: "/environments/{environment}"},
})

func (s *API) getEnvironment(ctx context.Context, c *rest.Caller, in *rest.EnvironmentPath) (rest.Response[Environment], error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	return rest.Response[Environment]{Body: show(e), ETag: rest.ETag(e)}, nil
}

// environmentShower returns a function that makes REST shapes of environments. It reads their common data once.
func (s *API) environmentShower(ctx context.Context, c *rest.Caller, of ...*v1alpha1.Environment) (func(*v1alpha1.Environment) Environment, error) {
	may, err := s.Service.Permissions(ctx, c)
	if err != nil {
		return nil, err
	}
	project, err := s.Service.Project(ctx, c)
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
			ID: rest.ObjectID(e), ProjectID: c.ProjectID.String(), Name: e.Title(), KubernetesName: e.Name, Slug: e.Status.Slug,
			IsDefault: isDefault(e),
			Kind:      EnvironmentKind(cmp.Or(e.Spec.Kind, v1alpha1.EnvironmentStandard).EnumValue()),
			GitBranch: rest.Optional(e.Spec.Git.Branch), GitCommit: rest.Optional(e.Spec.Git.Commit), AutoDeploy: e.Spec.Git.AutoDeploy,
			GitWebhookURL: rest.Optional(project.Status.GitWebhookURL), TestEnvironmentID: rest.Optional(tests[e.Spec.TestEnvironment]),
			Suspended: e.Spec.Suspend, Ready: v1alpha1.IsReady(e),
			Settings: EnvironmentSettings{Runner: RunnerSettings{
				MinReplicas: e.Spec.Runner.Replicas(), MaxReplicas: rest.Null[int32]{Value: e.Spec.Runner.MaxReplicas}, Concurrency: e.Spec.Runner.Concurrency,
				Requests: quantities(e.Spec.Runner.Resources.Requests), Limits: quantities(e.Spec.Runner.Resources.Limits),
			}},
			LiveDeploymentID: rest.Optional(e.Status.LiveDeploymentID), Permissions: may,
			TestSession: rest.Null[TestSession]{Value: showTestSession(e.ActiveTestSession(s.Service.Now()))},
			CreatedAt:   e.CreationTimestamp.UTC(), UpdatedAt: rest.UpdatedAt(e),
		}
		if !out.Ready {
			out.Message = rest.Optional(rest.NotReadyMessage(e))
		}
		return out
	}, nil
}

// testEnvironments returns the IDs, by name, of the environments that others name in testEnvironment and that the key
// reaches, or nil if no environment names one.
func (s *API) testEnvironments(ctx context.Context, c *rest.Caller, of []*v1alpha1.Environment) (map[v1alpha1.EnvironmentName]string, error) {
	if !slices.ContainsFunc(of, func(e *v1alpha1.Environment) bool { return e.Spec.TestEnvironment != "" }) {
		return nil, nil //nolint:nilnil // none
	}
	all, err := s.Service.Environments(ctx, c)
	if err != nil {
		return nil, err
	}
	ids := map[v1alpha1.EnvironmentName]string{}
	for i := range all {
		ids[v1alpha1.EnvironmentName(all[i].Name)] = rest.ObjectID(&all[i])
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

func (e *Environment) Texts() []*string { return rest.PresentTexts(e.Message) }

// EnvironmentKind is the purpose of an environment.
type EnvironmentKind string

func (EnvironmentKind) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "EnvironmentKind", "The purpose of an environment.", "standard", "test")
}
