// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// EnvironmentCreate is what an environment is made of.
type EnvironmentCreate struct {
	Name      Name                     `json:"name" minLength:"1" maxLength:"63" doc:"Its name for people, from which its slug is made." example:"Staging"`
	Kind      EnvironmentKind          `json:"kind,omitempty" default:"standard" doc:"What it is for."`
	GitBranch Change[string]           `json:"git_branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch that is built; null: the repository's default branch."`
	Settings  EnvironmentSettingsInput `json:"settings,omitempty" doc:"How its agents run; what is left out gets its default."`
	CopyFrom  *ID                      `json:"copy_from_environment_id,omitempty" doc:"The environment whose variables it gets."`
}

// EnvironmentSettingsInput are settings of an environment that are asked for.
type EnvironmentSettingsInput struct {
	Runner RunnerSettingsInput `json:"runner,omitempty" doc:"The pool of runner pods."`
}

// RunnerSettingsInput say how the pool of runner pods is to look.
type RunnerSettingsInput struct {
	MinReplicas *int32              `json:"min_replicas,omitempty" minimum:"0" maximum:"1000" doc:"How many pods there are, at least where there is a max_replicas; 1 where nobody has said."`
	MaxReplicas Change[int32]       `json:"max_replicas,omitempty" minimum:"1" maximum:"1000" doc:"How many pods there are at most: the pool scales by its runs, from min_replicas up to this. null: it does not scale." example:"5"`
	Concurrency *int32              `json:"concurrency,omitempty" minimum:"1" maximum:"1000" doc:"How many runs one pod executes at once; 10 where nobody has said."`
	Requests    map[string]Quantity `json:"requests,omitempty" maxProperties:"8" doc:"Compute resources that a pod asks for, all of them, as Kubernetes writes them; what the plan says where nobody has said." example:"{\"cpu\":\"500m\",\"memory\":\"512Mi\"}"`
	Limits      map[string]Quantity `json:"limits,omitempty" maxProperties:"8" doc:"Compute resources that a pod may use, all of them, as Kubernetes writes them, at most what the plan allows; what the plan says where nobody has said." example:"{\"memory\":\"1Gi\"}"`
}

// EnvironmentCreateInput is the request that creates an environment.
type EnvironmentCreateInput struct {
	ProjectPath
	Body EnvironmentCreate
}

// mustReachAll answers 403 to a key that is limited to some environments: another one
// would be none that it reaches.
func (c *caller) mustReachAll() error {
	if c.reachesAll() {
		return nil
	}
	return problem(http.StatusForbidden, httpserver.CodeForbidden, "the key is limited to some environments and can create no other")
}

func (s *Server) createEnvironment(ctx context.Context, c *caller, in *EnvironmentCreateInput) (answer[Environment], error) {
	if err := s.mayCopyFrom(ctx, c, in.Body.CopyFrom); err != nil {
		return answer[Environment]{}, err
	}
	if err := c.mustReachAll(); err != nil {
		return answer[Environment]{}, err
	}
	meta, id := c.meta(ctx, "environment", string(in.Body.Name))
	e := &v1alpha1.Environment{ObjectMeta: meta, Spec: v1alpha1.EnvironmentSpec{
		ID: id, DisplayName: v1alpha1.DisplayName(in.Body.Name), Kind: v1alpha1.EnvironmentKindOf(string(in.Body.Kind)),
	}}
	in.Body.GitBranch.applyTo(func(branch string) { e.Spec.Git.Branch = v1alpha1.GitBranch(branch) })
	if err := in.Body.Settings.applyTo(&e.Spec.Runner); err != nil {
		return answer[Environment]{}, err
	}
	var others int
	var err error
	if in.Body.CopyFrom != nil {
		e.Spec.Variables, err = s.copyVariables(ctx, c, *in.Body.CopyFrom, id)
	}
	if err == nil {
		others, err = s.slugIsFree(ctx, c, e)
	}
	if err == nil {
		err = s.mustHaveRoom(ctx, c, others)
	}
	if err != nil {
		return answer[Environment]{}, err
	}
	made := creation{Server: s, caller: c}
	shown, err := made.environment(ctx, e, others == 0)
	if err != nil {
		made.takeBack(ctx, err)
		return answer[Environment]{}, err
	}
	return created(ctx, shown, e, "/environments/"+shown.ID), nil
}

// mayCopyFrom answers 403 to who may not copy variables, before anything is looked for.
func (s *Server) mayCopyFrom(ctx context.Context, c *caller, source *ID) error {
	for _, g := range c.route.needs {
		if !g.inBody || source == nil {
			continue
		}
		if err := s.require(ctx, c, g.permission); err != nil {
			return err
		}
	}
	return nil
}

// environment creates an environment; the first one becomes the default.
func (n *creation) environment(ctx context.Context, e *v1alpha1.Environment, first bool) (Environment, error) {
	if err := n.create(ctx, e); err != nil {
		return Environment{}, err
	}
	n.awaitReady(ctx, e)
	if err := notTakenUp(e); err != nil {
		return Environment{}, err
	}
	if first {
		if err := n.setDefault(ctx, n.caller, e, true); err != nil {
			return Environment{}, err
		}
	}
	show, err := n.environmentShower(ctx, n.caller, e)
	if err != nil {
		return Environment{}, err
	}
	return show(e), nil
}

// notTakenUp is why a controller does not take an environment up; nil where it does, or
// may yet.
func notTakenUp(e *v1alpha1.Environment) error {
	switch {
	case stalledBy(e, v1alpha1.ReasonSlugTaken):
		return slugTaken(e)
	case stalledBy(e, v1alpha1.ReasonLimitReached), stalledBy(e, v1alpha1.ReasonNotAllowed):
		return problem(http.StatusForbidden, httpserver.CodePlan, whyNotReady(e))
	case stalledBy(e, v1alpha1.ReasonRefused):
		return wrong("body.settings.runner", whyNotReady(e))
	}
	return nil
}

// slugIsFree answers 400 for a name whose slug another environment has, or gets once the
// platform takes it up, and says how many others there are.
func (s *Server) slugIsFree(ctx context.Context, c *caller, e *v1alpha1.Environment) (others int, err error) {
	var list v1alpha1.EnvironmentList
	if err := s.list(ctx, c, e.ObjectKind(), &list); err != nil {
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

// mustHaveRoom answers 403 where a project has as many environments as its plan allows, as
// far as the platform has said how many these are. Two calls at once both have room for one:
// the controller judges then.
func (s *Server) mustHaveRoom(ctx context.Context, c *caller, others int) error {
	project, err := s.project(ctx, c)
	if err != nil {
		return err
	}
	if most := project.Status.Limits.Environments; most != nil && others >= int(*most) {
		return problem(http.StatusForbidden, httpserver.CodePlan, fmt.Sprintf("the project has %d environments, as many as its plan allows", others))
	}
	return nil
}

func slugTaken(e *v1alpha1.Environment) error {
	p := problem(http.StatusBadRequest, httpserver.CodeSlugTaken,
		fmt.Sprintf("another environment of the project has the slug %q, which is made from the name; choose another name", e.WantedSlug()))
	p.Errors = []FieldError{{Location: "body.name", Message: "has the slug of another environment"}}
	return p
}

// applyTo writes what is given into a pool, and leaves the rest as it is.
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

// replaceResources puts those that are given, if any are, in place of what is there.
func replaceResources(to *corev1.ResourceList, given map[string]Quantity) error {
	if given == nil {
		return nil
	}
	resources := corev1.ResourceList{}
	for name, text := range given {
		quantity, err := resource.ParseQuantity(string(text)) // which is as the pattern says
		if err != nil {
			return fmt.Errorf("reading the quantity of %s: %w", name, err)
		}
		resources[corev1.ResourceName(name)] = quantity
	}
	*to = resources
	return nil
}
