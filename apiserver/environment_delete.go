// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// deleteEnvironment deletes the object; that its runs are cancelled, its deployment is no
// longer live and its connectors are disabled is done when its row goes.
func (s *Server) deleteEnvironment(ctx context.Context, c *caller, in *EnvironmentPath) (answer[Done], error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if isNotFound(err) {
		return s.repeatedDelete(ctx, c, in.EnvironmentID, err)
	}
	if err != nil {
		return answer[Done]{}, err
	}
	judge := func() error {
		if err := c.mustMatch(e); err != nil {
			return err
		}
		if err := s.mustBeUnused(e); err != nil {
			return err
		}
		if err := s.mustBeSpare(ctx, c, e, "be deleted"); err != nil {
			return err
		}
		return s.mustOwn(e, nil)
	}
	if err := judge(); err != nil {
		return answer[Done]{}, err
	}
	show, err := s.environmentShower(ctx, c)
	if err != nil {
		return answer[Done]{}, err
	}
	before := show(e)
	if err := s.deleteExactly(ctx, e, judge); err != nil {
		return answer[Done]{}, err
	}
	s.await(ctx, func() bool { // no run of it begins any more
		_, err := s.store.Environment(ctx, c.keyOf(e))
		return err != nil
	})
	return deleted(ctx, before), nil
}

// mustBeSpare answers 400 for the default environment and for the last standard one, of which it says what
// they cannot.
func (s *Server) mustBeSpare(ctx context.Context, c *caller, e *v1alpha1.Environment, what string) error {
	project, err := s.project(ctx, c)
	if err != nil {
		return err
	}
	isDefault, err := s.defaultOf(ctx, c, project)
	if err != nil {
		return err
	}
	if isDefault(e) {
		return problem(http.StatusBadRequest, httpserver.CodeDefaultEnvironment,
			"the default environment cannot "+what+"; make another one the default before")
	}
	if e.IsTest() {
		return nil
	}
	var list v1alpha1.EnvironmentList
	if err := s.list(ctx, c, e.ObjectKind(), &list); err != nil {
		return err
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.Name != e.Name && !other.IsTest() && other.Status.Slug != "" {
			return nil
		}
	}
	return problem(http.StatusBadRequest, httpserver.CodeLastEnvironment, "the last standard environment of a project cannot "+what)
}
