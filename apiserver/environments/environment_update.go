// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"context"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// EnvironmentUpdate has the fields of an environment to change.
type EnvironmentUpdate struct {
	Name      *rest.Name               `json:"name,omitempty" minLength:"1" maxLength:"63" doc:"The display name. A new name changes the slug." example:"Staging"`
	Kind      EnvironmentKind          `json:"kind,omitempty" doc:"The purpose of the environment."`
	GitBranch rest.Change[string]      `json:"git_branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch to deploy; null stands for the repository's default branch."`
	Settings  EnvironmentSettingsInput `json:"settings,omitempty" doc:"The settings. Omitted settings keep their values."`
}

func (EnvironmentUpdate) Doc() string { return "The fields of an environment to change." }

// EnvironmentUpdateInput is the request that changes an environment.
type EnvironmentUpdateInput struct {
	rest.EnvironmentPath
	Body EnvironmentUpdate
}

var updateEnvironment = rest.Handle((*API).updateEnvironment, rest.Endpoint{
	Method: rest.Patch, Path: "/environments/{environment_id}", ID: "updateEnvironment",
	Permissions: rest.Requires("environments.update"), Effect: rest.EffectUpdate, Errors: rest.UpdateErrors,
	HasETag: true,
	Summary: "Update an environment",
	Doc: "Fields that the request leaves out keep their values. `requests` and `limits` are each replaced as a whole. A new " +
		"name changes the slug; the call returns 400 if another environment has that slug. If `auto_deploy` is on, a new " +
		"`git_branch` also needs `deployments.create`.\n\n" +
		"A change of `kind` to `test` returns 400 for the default environment and for the last standard environment. A change " +
		"of `kind` returns 409 during a test session.",
	Example: rest.Example{Path: "/environments/{spare_environment}", Body: `{"name":"CRM","git_branch":null}`},
})

func (s *API) updateEnvironment(ctx context.Context, c *rest.Caller, in *EnvironmentUpdateInput) (_ rest.Response[Environment], err error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	was := show(e)
	var before *v1alpha1.Environment
	leaves := removal{API: s, caller: c}
	repeated, err := s.Service.UpdateObject(ctx, c, e, func() error {
		before = e.DeepCopy()
		return s.editEnvironment(ctx, &leaves, e, &in.Body)
	})
	defer func() { leaves.end(ctx, err) }() // the change stays
	if err != nil {
		return rest.Response[Environment]{}, err
	}
	s.Service.WaitReady(ctx, e)
	if refused := rejection(e); refused != nil && !repeated && rejection(before) == nil {
		s.Service.Revert(ctx, e, func() { e.Spec, e.Annotations = *before.Spec.DeepCopy(), before.Annotations })
		return rest.Response[Environment]{}, refused
	}
	after := show(e)
	rest.RecordChange(ctx, after.Audited(), was, after)
	return rest.Response[Environment]{Body: after, ETag: rest.ETag(e)}, nil
}

// editEnvironment writes the fields of a request into an environment.
func (s *API) editEnvironment(ctx context.Context, leaves *removal, e *v1alpha1.Environment, in *EnvironmentUpdate) error {
	c := leaves.caller
	if err := s.changeKind(ctx, leaves, e, in.Kind); err != nil {
		return err
	}
	branch := e.Spec.Git.Branch
	in.GitBranch.ApplyTo(func(name string) { branch = v1alpha1.GitBranch(name) })
	if branch != e.Spec.Git.Branch && e.Spec.Git.AutoDeploy { // the platform deploys its head next
		if err := s.Service.Require(ctx, c, "deployments.create"); err != nil {
			return err
		}
		if err := rest.CheckTestEnvironment(c, e, false); err != nil {
			return err
		}
	}
	e.Spec.Git.Branch = branch
	if err := in.Settings.applyTo(&e.Spec.Runner); err != nil {
		return err
	}
	if in.Name == nil || string(*in.Name) == e.Title() {
		return nil
	}
	e.Spec.DisplayName = v1alpha1.DisplayName(*in.Name)
	_, err := s.slugIsFree(ctx, c, e)
	return err
}

// changeKind changes the kind of an environment without a test session. An environment can become a test environment if
// the project does not need it.
func (s *API) changeKind(ctx context.Context, leaves *removal, e *v1alpha1.Environment, kind EnvironmentKind) error {
	to := v1alpha1.EnvironmentKindOf(string(kind))
	if kind == "" || (to == v1alpha1.EnvironmentTest) == e.IsTest() {
		return nil
	}
	if err := s.mustBeUnused(e); err != nil {
		return err
	}
	begin := func() error { return leaves.begin(ctx, e, "become a test environment") }
	if e.IsTest() { // it counts as a standard environment once it is in effect
		begin = func() error { return leaves.note(ctx, e, func(*v1alpha1.Project) error { return nil }) }
	}
	if err := begin(); err != nil {
		return err
	}
	e.Spec.Kind = to
	return nil
}
