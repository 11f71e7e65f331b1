// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
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

// isDefault says whether an environment is the project's default.
func isDefault(project *v1alpha1.Project, e *v1alpha1.Environment) bool {
	preferred := cmp.Or(string(project.Spec.DefaultEnvironment), project.Status.DefaultEnvironment)
	return preferred == e.Name || preferred == "" && e.Status.Default
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
	if before, err := s.doneBefore(ctx, c, in.EnvironmentID); before || err != nil {
		return done, err
	}
	if err := notTakenUp(e); err != nil {
		return answer[Done]{}, problem(http.StatusConflict, httpserver.CodeConflict, "the environment is not in effect: "+whyNotReady(e))
	}
	show, err := s.environmentShower(ctx, c)
	if err != nil {
		return answer[Done]{}, err
	}
	was := show(e)
	if err := s.setDefault(ctx, c, e, false); err != nil {
		return answer[Done]{}, err
	}
	if show, err = s.environmentShower(ctx, c); err != nil {
		return answer[Done]{}, err
	}
	after := show(e)
	changed(ctx, after.audited(), was, after)
	return done, nil
}

// setDefault writes into the project which environment is the default; where it is the
// first, only if nobody has said that meanwhile.
func (s *Server) setDefault(ctx context.Context, c *caller, e *v1alpha1.Environment, first bool) error {
	var err error
	for range changeAttempts {
		var project *v1alpha1.Project
		if project, err = s.project(ctx, c); err != nil {
			return err
		}
		name, said := v1alpha1.EnvironmentName(e.Name), project.Spec.DefaultEnvironment
		if said == name || first && said != "" {
			return nil
		}
		before := project.DeepCopy()
		project.Spec.DefaultEnvironment = name
		if err := s.mustOwn(before, project); err != nil {
			return err
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
