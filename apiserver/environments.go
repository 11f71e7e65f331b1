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
)

// Environment is the REST shape of an environment.
type Environment struct {
	ID               string              `json:"id" format:"uuid"`
	ProjectID        string              `json:"project_id" format:"uuid"`
	Name             string              `json:"name"`
	Slug             string              `json:"slug"`
	IsDefault        bool                `json:"is_default"`
	Kind             string              `json:"kind" enum:"standard,test"`
	GitBranch        *string             `json:"git_branch" doc:"null: the repository's default branch is built."`
	Settings         EnvironmentSettings `json:"settings"`
	LiveDeploymentID *string             `json:"live_deployment_id" format:"uuid"`
	Permissions      []string            `json:"permissions" nullable:"false" doc:"What the caller may do in it."`
	CreatedAt        time.Time           `json:"created_at"`
	UpdatedAt        time.Time           `json:"updated_at"`
}

// EnvironmentSettings are the settings of an environment.
type EnvironmentSettings struct {
	Runner RunnerSettings `json:"runner"`
}

// RunnerSettings say how the pool of runner pods looks.
type RunnerSettings struct {
	MinReplicas int32             `json:"min_replicas"`
	Concurrency int32             `json:"concurrency" doc:"How many runs one pod executes at once."`
	Requests    map[string]string `json:"requests" nullable:"false" doc:"Compute resources that a pod asks for."`
	Limits      map[string]string `json:"limits" nullable:"false" doc:"Compute resources that a pod may use."`
}

// EnvironmentPath names an environment.
type EnvironmentPath struct {
	ProjectPath
	EnvironmentID string `path:"environment_id" format:"uuid"`
}

// EnvironmentQuery names the environment that a list is of.
type EnvironmentQuery struct {
	ProjectPath
	EnvironmentID string `query:"environment_id" required:"true" format:"uuid"`
}

func (s *Server) listEnvironments(ctx context.Context, c *caller, _ *ProjectPath) ([]Environment, error) {
	all, err := s.environments(ctx, c)
	if err != nil {
		return nil, err
	}
	out := make([]Environment, 0, len(all))
	for i := range all {
		shown, err := s.showEnvironment(ctx, c, &all[i])
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	slices.SortFunc(out, func(a, b Environment) int {
		if a.IsDefault != b.IsDefault {
			if a.IsDefault {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out, nil
}

func (s *Server) getEnvironment(ctx context.Context, c *caller, in *EnvironmentPath) (Environment, error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return Environment{}, err
	}
	return s.showEnvironment(ctx, c, e)
}

func (s *Server) showEnvironment(ctx context.Context, c *caller, e *v1alpha1.Environment) (Environment, error) {
	may, err := s.allowed(ctx, c)
	if err != nil {
		return Environment{}, err
	}
	project, err := s.project(ctx, c.namespace)
	if err != nil {
		return Environment{}, err
	}
	preferred := cmp.Or(string(project.Spec.DefaultEnvironment), project.Status.DefaultEnvironment)
	return Environment{
		ID: idOf(e), ProjectID: c.projectID.String(), Name: e.Title(), Slug: e.Status.Slug,
		IsDefault: preferred == e.Name || preferred == "" && e.Status.Default,
		Kind:      string(cmp.Or(e.Spec.Kind, v1alpha1.EnvironmentStandard)),
		GitBranch: opt(e.Spec.Git.Branch),
		Settings: EnvironmentSettings{Runner: RunnerSettings{
			MinReplicas: e.Spec.Runner.Replicas(), Concurrency: e.Spec.Runner.Concurrency,
			Requests: quantities(e.Spec.Runner.Resources.Requests), Limits: quantities(e.Spec.Runner.Resources.Limits),
		}},
		LiveDeploymentID: opt(e.Status.LiveDeploymentID), Permissions: may,
		CreatedAt: e.CreationTimestamp.UTC(), UpdatedAt: updatedAt(e),
	}, nil
}

func quantities(resources corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range resources {
		out[string(name)] = quantity.String()
	}
	return out
}
