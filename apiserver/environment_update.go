// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// EnvironmentUpdate is what is changed of an environment.
type EnvironmentUpdate struct {
	Name      *Name                    `json:"name,omitempty" minLength:"1" maxLength:"63" doc:"Its name for people; with another one the slug changes." example:"Staging"`
	Kind      EnvironmentKind          `json:"kind,omitempty" doc:"What it is for."`
	GitBranch Change[string]           `json:"git_branch,omitempty" minLength:"1" maxLength:"255" doc:"The branch that is built; null: the repository's default branch."`
	Settings  EnvironmentSettingsInput `json:"settings,omitempty" doc:"How its agents run; what is left out stays as it is."`
}

// EnvironmentUpdateInput is the request that changes an environment.
type EnvironmentUpdateInput struct {
	EnvironmentPath
	Body EnvironmentUpdate
}

func (s *Server) updateEnvironment(ctx context.Context, c *caller, in *EnvironmentUpdateInput) (_ answer[Environment], err error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Environment]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return answer[Environment]{}, err
	}
	was := show(e)
	var before *v1alpha1.Environment
	leaves := departure{Server: s, caller: c}
	repeated, err := s.amend(ctx, c, e, func() error {
		before = e.DeepCopy()
		return s.editEnvironment(ctx, &leaves, e, &in.Body)
	})
	defer func() { leaves.end(ctx, err) }() // once it is sure that nothing is put back
	if err != nil {
		return answer[Environment]{}, err
	}
	s.awaitReady(ctx, e)
	if refused := notTakenUp(e); refused != nil && !repeated && notTakenUp(before) == nil {
		s.putBack(ctx, e, func() { e.Spec, e.Annotations = *before.Spec.DeepCopy(), before.Annotations })
		return answer[Environment]{}, refused
	}
	after := show(e)
	changed(ctx, after.audited(), was, after)
	return answer[Environment]{Body: after, ETag: etag(e)}, nil
}

// editEnvironment writes into an environment what a request asks for.
func (s *Server) editEnvironment(ctx context.Context, leaves *departure, e *v1alpha1.Environment, in *EnvironmentUpdate) error {
	c := leaves.caller
	if err := s.changeKind(ctx, leaves, e, in.Kind); err != nil {
		return err
	}
	branch := e.Spec.Git.Branch
	in.GitBranch.applyTo(func(name string) { branch = v1alpha1.GitBranch(name) })
	if branch != e.Spec.Git.Branch && e.Spec.Git.AutoDeploy { // its head is deployed next
		if err := s.require(ctx, c, "deployments.create"); err != nil {
			return err
		}
		if err := c.mayTest(e, false); err != nil {
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

// changeKind makes an environment a standard one, or one for tests where the project can do without it,
// while nobody tests in it.
func (s *Server) changeKind(ctx context.Context, leaves *departure, e *v1alpha1.Environment, kind EnvironmentKind) error {
	to := v1alpha1.EnvironmentKindOf(string(kind))
	if kind == "" || (to == v1alpha1.EnvironmentTest) == e.IsTest() {
		return nil
	}
	if err := s.mustBeUnused(e); err != nil {
		return err
	}
	begin := func() error { return leaves.begin(ctx, e, "become one for tests") }
	if e.IsTest() { // what becomes a standard one counts as such once it is in effect
		begin = func() error { return leaves.note(ctx, e, func(*v1alpha1.Project) error { return nil }) }
	}
	if err := begin(); err != nil {
		return err
	}
	e.Spec.Kind = to
	return nil
}
