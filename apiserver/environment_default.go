// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// project reads the caller's project as it is now: what it says of the default may have
// been written a moment ago, by another replica.
func (s *Server) project(ctx context.Context, c *caller) (*v1alpha1.Project, error) {
	project := &v1alpha1.Project{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.ProjectName}, project); err != nil {
		return nil, fmt.Errorf("reading the project: %w", err)
	}
	return project, nil
}

// defaultOf says which environment is a project's default: the one that the project names
// while that is there and nothing holds it back, else the one that the platform has chosen.
func (s *Server) defaultOf(ctx context.Context, c *caller, project *v1alpha1.Project) (func(*v1alpha1.Environment) bool, error) {
	name, chosen := string(project.Spec.DefaultEnvironment), project.Status.DefaultEnvironment
	if name != "" && name != chosen {
		counts, err := s.takesEffect(ctx, c, name)
		if err != nil {
			return nil, err
		}
		if !counts {
			name = ""
		}
	}
	name = cmp.Or(name, chosen)
	return func(e *v1alpha1.Environment) bool { return name == e.Name || name == "" && e.Status.Default }, nil
}

// setDefaultEnvironment makes an environment the default: the one that was before is it
// no more.
func (s *Server) setDefaultEnvironment(ctx context.Context, c *caller, in *EnvironmentPath) (answer[Done], error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return answer[Done]{}, err
	}
	if _, err := s.repeats(ctx, c, e); err != nil {
		return answer[Done]{}, err
	}
	done := answer[Done]{Body: Done{OK: true}}
	project, err := s.project(ctx, c)
	if err != nil {
		return answer[Done]{}, err
	}
	if before, err := c.noted(ctx, project); before || err != nil {
		return done, err // whichever is the default since
	}
	if err := s.mustReachDefault(ctx, c, project); err != nil {
		return answer[Done]{}, err
	}
	if err := notTakenUp(e); err != nil {
		return answer[Done]{}, problem(http.StatusConflict, httpserver.CodeConflict, "the environment is not in effect: "+whyNotReady(e))
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return answer[Done]{}, err
	}
	was := show(e)
	if err := s.setDefault(ctx, c, e, false); err != nil {
		return answer[Done]{}, err
	}
	if show, err = s.environmentShower(ctx, c, e); err != nil {
		return answer[Done]{}, err
	}
	after := show(e)
	changed(ctx, after.audited(), was, after)
	return done, nil
}

// mustReachDefault answers 403 to a key that does not reach the environment which is the
// default now: it would take that away from it.
func (s *Server) mustReachDefault(ctx context.Context, c *caller, project *v1alpha1.Project) error {
	var list v1alpha1.EnvironmentList
	if err := s.list(ctx, c, store.KindEnvironment, &list); err != nil {
		return err
	}
	isDefault, err := s.defaultOf(ctx, c, project)
	if err != nil {
		return err
	}
	for i := range list.Items {
		if e := &list.Items[i]; isDefault(e) {
			return c.mustReach(e.Name)
		}
	}
	return nil
}

// isThere says whether the project has an environment of that name.
func (s *Server) isThere(ctx context.Context, c *caller, name string) (bool, error) {
	err := s.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &v1alpha1.Environment{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for environment %q: %w", name, err)
	}
	return true, nil
}

// takesEffect says whether the project has an environment of that name that is in effect, or comes to
// be: one that is held back, as by the limit or its slug, does not.
func (s *Server) takesEffect(ctx context.Context, c *caller, name string) (bool, error) {
	e := &v1alpha1.Environment{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, e)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for environment %q: %w", name, err)
	}
	if !v1alpha1.IsStalled(e) {
		return true, nil
	}
	row, err := s.store.Environment(ctx, c.keyOf(e))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && row.Ref.ObjectUID == string(e.UID), err
}

// setDefault writes into the project which environment is the default, with a note of the call;
// where it is the first, without one and only if nobody has said that meanwhile, of one that is there.
func (s *Server) setDefault(ctx context.Context, c *caller, e *v1alpha1.Environment, first bool) error {
	var err error
	for range changeAttempts {
		var project *v1alpha1.Project
		if project, err = s.project(ctx, c); err != nil {
			return err
		}
		name, said := v1alpha1.EnvironmentName(e.Name), project.Spec.DefaultEnvironment
		if said == name && (first || c.idempotencyKey == "") {
			return nil
		}
		if first && said != "" {
			there, err := s.isThere(ctx, c, string(said))
			if there || err != nil {
				return err
			}
		}
		if err := s.mustStay(ctx, project, e); err != nil {
			return err
		}
		before := project.DeepCopy()
		project.Spec.DefaultEnvironment = name
		if err := s.mustOwn(before, project); err != nil {
			if first && errors.As(err, new(Problem)) {
				return nil // Git says which one it is to be
			}
			return err
		}
		if !first {
			c.note(ctx, project)
		}
		err = s.client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("making environment %q the default: %w", e.Name, err)
	}
	return nil
}
