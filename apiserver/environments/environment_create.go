// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// EnvironmentCreate is an environment to create.
type EnvironmentCreate struct {
	Name      rest.Name                `json:"name" minLength:"1" maxLength:"63" doc:"The display name, from which the slug is derived." example:"Staging"`
	Kind      EnvironmentKind          `json:"kind,omitempty" default:"standard" doc:"The purpose of the environment."`
	GitBranch rest.Change[string]      `json:"git_branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch to deploy; null stands for the repository's default branch."`
	Settings  EnvironmentSettingsInput `json:"settings,omitempty" doc:"The settings. Omitted settings get their defaults."`
	CopyFrom  *rest.ID                 `json:"copy_from_environment_id,omitempty" doc:"The environment whose variables and OAuth apps are copied."`
}

func (EnvironmentCreate) Doc() string { return "The environment to create." }

// EnvironmentSettingsInput has settings of an environment in a request.
type EnvironmentSettingsInput struct {
	Runner RunnerSettingsInput `json:"runner,omitempty" doc:"The pool of runner pods."`
}

func (EnvironmentSettingsInput) Doc() string { return "The settings of an environment to set." }

// RunnerSettingsInput has settings of the runner pool in a request.
type RunnerSettingsInput struct {
	MinReplicas *int32                   `json:"min_replicas,omitempty" minimum:"0" maximum:"1000" doc:"Number of runner pods, or the minimum if max_replicas is set. Default: 1."`
	MaxReplicas rest.Change[int32]       `json:"max_replicas,omitempty" minimum:"1" maximum:"1000" doc:"Maximum number of runner pods. The pool scales with its runs between min_replicas and this number; null turns scaling off." example:"5"`
	Concurrency *int32                   `json:"concurrency,omitempty" minimum:"1" maximum:"1000" doc:"Number of runs that a pod executes at a time. Default: 10."`
	Requests    map[string]rest.Quantity `json:"requests,omitempty" maxProperties:"8" doc:"All resource requests of a pod, as Kubernetes quantities. Default: the plan's requests." example:"{\"cpu\":\"500m\",\"memory\":\"512Mi\"}"`
	Limits      map[string]rest.Quantity `json:"limits,omitempty" maxProperties:"8" doc:"All resource limits of a pod, as Kubernetes quantities, at most the plan's limits. Default: the plan's limits." example:"{\"memory\":\"1Gi\"}"`
}

func (RunnerSettingsInput) Doc() string { return "The settings of the runner pool to set." }

// EnvironmentCreateInput is the request that creates an environment.
type EnvironmentCreateInput struct {
	rest.ProjectPath
	Body EnvironmentCreate
}

// mustReachAll returns 403 for a key that is limited to some environments, because it would not reach a new environment.
func mustReachAll(c *rest.Caller) error {
	if c.ReachesAll() {
		return nil
	}
	return rest.NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key is limited to some environments and cannot create environments")
}

var createEnvironment = rest.Handle((*API).createEnvironment, rest.Endpoint{
	Method: rest.Post, Path: "/environments", ID: "createEnvironment",
	Permissions: []rest.Requirement{
		{Permission: "environments.create"},
		{Permission: "variables.view", With: "copy_from_environment_id", InBody: true},
		{Permission: "variables.create", With: "copy_from_environment_id", InBody: true},
	},
	Effect: rest.EffectCreate, Status: 201, Errors: rest.CreateErrors,
	HasETag: true,
	Summary: "Create an environment",
	Doc: "The first standard environment of a project becomes its default. `copy_from_environment_id` copies the variables of " +
		"another environment, including sealed values, and its OAuth apps. The call returns once the platform has processed the environment, or " +
		"after two seconds.\n\n" +
		"Returns 403 if the plan does not allow another environment or the requested resources, 422 if Kubernetes rejects the " +
		"resources, and 400 if another environment has the slug of this name.",
	Example: rest.Example{
		Path: "/environments",
		Body: `{"name":"CRM","git_branch":"main","settings":{"runner":{"min_replicas":2,"max_replicas":5,"limits":{"memory":"1Gi"}}}}`,
	},
})

func (s *API) createEnvironment(ctx context.Context, c *rest.Caller, in *EnvironmentCreateInput) (rest.Response[Environment], error) {
	if err := s.checkCopyFrom(ctx, c, in.Body.CopyFrom); err != nil {
		return rest.Response[Environment]{}, err
	}
	if err := mustReachAll(c); err != nil {
		return rest.Response[Environment]{}, err
	}
	meta, id := c.NewMeta(ctx, "environment", string(in.Body.Name))
	e := &v1alpha1.Environment{ObjectMeta: meta, Spec: v1alpha1.EnvironmentSpec{
		ID: id, DisplayName: v1alpha1.DisplayName(in.Body.Name), Kind: v1alpha1.EnvironmentKindOf(string(in.Body.Kind)),
	}}
	in.Body.GitBranch.ApplyTo(func(branch string) { e.Spec.Git.Branch = v1alpha1.GitBranch(branch) })
	if err := in.Body.Settings.applyTo(&e.Spec.Runner); err != nil {
		return rest.Response[Environment]{}, err
	}
	var others int
	var err error
	if in.Body.CopyFrom != nil {
		e.Spec.Variables, e.Spec.OAuthApps, err = s.Variables.copyVariables(ctx, c, *in.Body.CopyFrom, id)
	}
	if err == nil {
		others, err = s.slugIsFree(ctx, c, e)
	}
	if err == nil {
		err = s.mustHaveCapacity(ctx, c, others)
	}
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	made := rest.Creation{Service: s.Service, Caller: c}
	shown, err := s.makeEnvironment(ctx, &made, e, others == 0)
	if err != nil {
		made.Undo(ctx, err)
		return rest.Response[Environment]{}, err
	}
	return rest.CreatedResponse(ctx, shown, e, "/environments/"+shown.ID), nil
}

// checkCopyFrom returns 403 if the caller lacks a permission to copy variables, before any lookup.
func (s *API) checkCopyFrom(ctx context.Context, c *rest.Caller, source *rest.ID) error {
	for _, g := range c.Endpoint.Permissions {
		if !g.InBody || source == nil {
			continue
		}
		if err := s.Service.Require(ctx, c, g.Permission); err != nil {
			return err
		}
	}
	return nil
}

// makeEnvironment creates an environment. The first one becomes the default.
func (s *API) makeEnvironment(ctx context.Context, n *rest.Creation, e *v1alpha1.Environment, first bool) (Environment, error) {
	if err := n.Create(ctx, e); err != nil {
		return Environment{}, err
	}
	n.Service.WaitReady(ctx, e)
	if err := rejection(e); err != nil {
		return Environment{}, err
	}
	if first {
		if err := s.setDefault(ctx, n.Caller, e, true); err != nil {
			return Environment{}, err
		}
	}
	show, err := s.environmentShower(ctx, n.Caller, e)
	if err != nil {
		return Environment{}, err
	}
	return show(e), nil
}

// rejection returns why the platform rejects an environment, or nil.
func rejection(e *v1alpha1.Environment) error {
	switch {
	case rest.IsStalledBy(e, v1alpha1.ReasonSlugTaken):
		return slugTaken(e)
	case rest.IsStalledBy(e, v1alpha1.ReasonLimitReached), rest.IsStalledBy(e, v1alpha1.ReasonNotAllowed):
		return rest.NewProblem(http.StatusForbidden, httpserver.CodePlan, rest.NotReadyMessage(e))
	case rest.IsStalledBy(e, v1alpha1.ReasonRefused):
		return rest.InvalidField("body.settings.runner", rest.NotReadyMessage(e))
	}
	return nil
}

// slugIsFree returns 400 if another environment has or will get the slug of the name, and the number of other
// environments.
func (s *API) slugIsFree(ctx context.Context, c *rest.Caller, e *v1alpha1.Environment) (others int, err error) {
	var list v1alpha1.EnvironmentList
	if err := s.Service.List(ctx, c, e.ObjectKind(), &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == e.Name {
			continue
		}
		others++
		if cmp.Or(other.Status.Slug, other.WantedSlug()) == e.WantedSlug() {
			return 0, slugTaken(e)
		}
	}
	return others, nil
}

// mustHaveCapacity returns 403 if the project has as many environments as its plan allows. Two concurrent calls can both
// pass; the controller then rejects one of the environments.
func (s *API) mustHaveCapacity(ctx context.Context, c *rest.Caller, others int) error {
	project, err := s.Service.Project(ctx, c)
	if err != nil {
		return err
	}
	if most := project.Status.Limits.Environments; most != nil && others >= int(*most) {
		return rest.NewProblem(http.StatusForbidden, httpserver.CodePlan, fmt.Sprintf("the project has %d environments, which is the limit of its plan", others))
	}
	return nil
}

func slugTaken(e *v1alpha1.Environment) error {
	p := rest.NewProblem(http.StatusBadRequest, httpserver.CodeSlugTaken,
		fmt.Sprintf("another environment of the project has the slug %q, which is derived from the name; choose another name", e.WantedSlug()))
	p.Errors = []rest.FieldError{{Location: "body.name", Message: "has the slug of another environment"}}
	return p
}

// ApplyTo writes the settings of a request into a pool. Other settings stay.
func (in EnvironmentSettingsInput) applyTo(pool *v1alpha1.RunnerPool) error {
	runner := in.Runner
	if runner.MinReplicas != nil {
		pool.MinReplicas = runner.MinReplicas
	}
	if runner.MaxReplicas.Given {
		pool.MaxReplicas = runner.MaxReplicas.To.Value
	}
	if runner.Concurrency != nil {
		pool.Concurrency = *runner.Concurrency
	}
	if err := replaceResources(&pool.Resources.Requests, runner.Requests); err != nil {
		return err
	}
	return replaceResources(&pool.Resources.Limits, runner.Limits)
}

// replaceResources replaces the resources if the request has any.
func replaceResources(to *corev1.ResourceList, given map[string]rest.Quantity) error {
	if given == nil {
		return nil
	}
	resources := corev1.ResourceList{}
	for name, text := range given {
		quantity, err := resource.ParseQuantity(string(text)) // the pattern makes the quantity valid
		if err != nil {
			return fmt.Errorf("reading the quantity of %s: %w", name, err)
		}
		resources[corev1.ResourceName(name)] = quantity
	}
	*to = resources
	return nil
}
