// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// defaultOf returns a predicate for the default environment of a project: the environment that the project names if it
// exists and the platform does not reject it, else the environment that the platform chose.
func (s *API) defaultOf(ctx context.Context, c *rest.Caller, project *v1alpha1.Project) (func(*v1alpha1.Environment) bool, error) {
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

var setDefaultEnvironment = rest.Handle((*API).setDefaultEnvironment, rest.Endpoint{
	Method: rest.Post, Path: "/environments/{environment_id}/set-default", ID: "setDefaultEnvironment",
	Permissions: rest.Requires("environments.update"), Effect: rest.EffectAction, Errors: rest.ActionErrors,
	Summary: "Set the default environment",
	Doc: "The previous default environment loses that role. Returns 409 for an environment that is being deleted or changed " +
		"into a test environment.",
	Example: rest.Example{Path: "/environments/{spare_environment}/set-default"},
})

// setDefaultEnvironment makes an environment the default.
func (s *API) setDefaultEnvironment(ctx context.Context, c *rest.Caller, in *rest.EnvironmentPath) (rest.Response[rest.Done], error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if _, err := s.Service.IsRepeated(ctx, c, e); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	done := rest.Response[rest.Done]{Body: rest.Done{OK: true}}
	project, err := s.Service.Project(ctx, c)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if before, err := c.HasNoted(ctx, project); before || err != nil {
		return done, err // even if another environment is the default since
	}
	if err := s.mustReachDefault(ctx, c, project); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if err := rejection(e); err != nil {
		return rest.Response[rest.Done]{}, rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the environment is not in effect: "+rest.NotReadyMessage(e))
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	was := show(e)
	if err := s.setDefault(ctx, c, e, false); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if show, err = s.environmentShower(ctx, c, e); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	after := show(e)
	rest.RecordChange(ctx, after.Audited(), was, after)
	return done, nil
}

// mustReachDefault returns 403 if the key does not reach the current default environment, which would lose its role.
func (s *API) mustReachDefault(ctx context.Context, c *rest.Caller, project *v1alpha1.Project) error {
	var list v1alpha1.EnvironmentList
	if err := s.Service.List(ctx, c, store.KindEnvironment, &list); err != nil {
		return err
	}
	isDefault, err := s.defaultOf(ctx, c, project)
	if err != nil {
		return err
	}
	for i := range list.Items {
		if e := &list.Items[i]; isDefault(e) {
			return c.CheckReach(e.Name)
		}
	}
	return nil
}

// exists reports whether the project has an environment with the name.
func (s *API) exists(ctx context.Context, c *rest.Caller, name string) (bool, error) {
	err := s.Service.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &v1alpha1.Environment{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for environment %q: %w", name, err)
	}
	return true, nil
}

// takesEffect reports whether the project has an environment with the name that is in effect or will be. A rejected
// environment is not, for example because of a limit or its slug.
func (s *API) takesEffect(ctx context.Context, c *rest.Caller, name string) (bool, error) {
	e := &v1alpha1.Environment{}
	err := s.Service.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, e)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for environment %q: %w", name, err)
	}
	if !v1alpha1.IsStalled(e) {
		return true, nil
	}
	row, err := s.Service.Store.Environment(ctx, c.ObjectKey(e))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && row.Ref.ObjectUID == string(e.UID), err
}

// setDefault writes the default environment and the Idempotency-Key of the call into the project. For the first
// environment it writes no key, and only if the project names no existing environment.
func (s *API) setDefault(ctx context.Context, c *rest.Caller, e *v1alpha1.Environment, first bool) error {
	var err error
	for range rest.MaxChangeAttempts {
		var project *v1alpha1.Project
		if project, err = s.Service.Project(ctx, c); err != nil {
			return err
		}
		name, said := v1alpha1.EnvironmentName(e.Name), project.Spec.DefaultEnvironment
		if said == name && (first || c.IdempotencyKey == "") {
			return nil
		}
		if first && said != "" {
			there, err := s.exists(ctx, c, string(said))
			if there || err != nil {
				return err
			}
		}
		if err := s.mustStay(ctx, project, e); err != nil {
			return err
		}
		before := project.DeepCopy()
		project.Spec.DefaultEnvironment = name
		if err := s.Service.CheckOwnership(before, project); err != nil {
			if first && errors.As(err, new(rest.Problem)) {
				return nil // a GitOps manager sets the field
			}
			return err
		}
		if !first {
			c.NoteRequest(ctx, project)
		}
		err = s.Service.Client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(rest.FieldManager))
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("making environment %q the default: %w", e.Name, err)
	}
	return nil
}
