// SPDX-License-Identifier: Apache-2.0

package environments

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// annotationRemovals of a Project lists the calls in progress that delete an environment or change its kind. Each has
// the UID of the environment and a time, such as "2f9d1c4e-5b7a-4e0c-9a35-8c1f0e6d7b21=2030-01-31T12:00:00Z". Two
// concurrent calls cannot see each other's change in the environments. But both write the Project with optimistic
// locking, so the second call checks again without the environment of the first. Users who can write Projects can write
// the annotation. Entries that are malformed or not recent do not count.
const annotationRemovals = "agentplatform.dev/leaving"

// removalTime is how long a call without a known end counts. It is longer than any call, on the clock of any replica.
const removalTime = rest.MaxRequestTime + 2*rest.MaxClockSkew

// removals returns the entries of a project's annotation that count.
func (s *API) removals(project *v1alpha1.Project) (calls []string) {
	now := s.Service.Now()
	for _, call := range strings.Fields(project.Annotations[annotationRemovals]) {
		_, when, _ := strings.Cut(call, "=")
		at, err := time.Parse(time.RFC3339, when)
		if age := now.Sub(at); err == nil && age < removalTime && age > -rest.MaxClockSkew {
			calls = append(calls, call)
		}
	}
	return calls
}

// isBeingRemoved reports whether a call in progress, or Kubernetes, removes an environment.
func isBeingRemoved(e *v1alpha1.Environment, calls []string) bool {
	return e.DeletionTimestamp != nil || slices.ContainsFunc(calls, func(call string) bool {
		uid, _, _ := strings.Cut(call, "=")
		return types.UID(uid) == e.UID
	})
}

// writeRemovals writes the entries into a project. It fails with a conflict if another writer has changed the project.
func (s *API) writeRemovals(ctx context.Context, project *v1alpha1.Project, calls []string) error {
	before := project.DeepCopy()
	delete(project.Annotations, annotationRemovals)
	if len(calls) > 0 {
		if project.Annotations == nil {
			project.Annotations = map[string]string{}
		}
		project.Annotations[annotationRemovals] = strings.Join(calls, " ")
	}
	return s.Service.Client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(rest.FieldManager))
}

// removal is a call that deletes an environment or changes its kind.
type removal struct {
	*API
	caller *rest.Caller
	// call is its entry in the project, or "" before begin.
	call string
}

// begin returns 400 if the project needs the environment; what completes the sentence "the environment cannot …".
// Otherwise no other call counts on the environment or makes it the default until end. begin can be called again.
func (d *removal) begin(ctx context.Context, e *v1alpha1.Environment, what string) error {
	return d.note(ctx, e, func(project *v1alpha1.Project) error { return d.mustBeSpare(ctx, d.caller, project, e, what) })
}

// note is begin with another check.
func (d *removal) note(ctx context.Context, e *v1alpha1.Environment, judge func(*v1alpha1.Project) error) error {
	var err error
	for range rest.MaxChangeAttempts {
		var project *v1alpha1.Project
		if project, err = d.Service.Project(ctx, d.caller); err != nil {
			return err
		}
		calls := d.removals(project)
		if err := judge(project); err != nil {
			return err
		}
		if slices.Contains(calls, d.call) {
			return nil
		}
		call := string(e.UID) + "=" + d.Service.Now().UTC().Format(time.RFC3339)
		if err = d.writeRemovals(ctx, project, append(calls, call)); err == nil {
			d.call = call
			return nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return fmt.Errorf("noting that environment %q leaves: %w", e.Name, err)
}

// end removes the entry after the call. If the outcome of the call is unknown, the entry stays until it expires.
func (d *removal) end(ctx context.Context, outcome error) {
	if d.call == "" || outcome != nil && d.Service.ProblemOf(ctx, outcome).Status >= http.StatusInternalServerError {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest.UndoTimeout)
	defer cancel()
	var err error
	for range rest.MaxChangeAttempts {
		var project *v1alpha1.Project
		if project, err = d.Service.Project(ctx, d.caller); err != nil {
			break
		}
		calls := d.removals(project)
		i := slices.Index(calls, d.call) // equal entries are interchangeable
		if i < 0 {
			return
		}
		if err = d.writeRemovals(ctx, project, slices.Delete(calls, i, i+1)); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		d.Service.Logger.WarnContext(ctx, "removing the entry of an ended call failed; it counts until it expires", "namespace", d.caller.Namespace, "error", err)
	}
}

// mustStay returns 409 for an environment that is being removed. It reads the environment after the project.
func (s *API) mustStay(ctx context.Context, project *v1alpha1.Project, e *v1alpha1.Environment) error {
	uid := e.UID
	err := s.Service.Reload(ctx, e)
	switch {
	case apierrors.IsNotFound(err), err == nil && e.UID != uid:
		return rest.NotFound("environment")
	case err != nil:
		return fmt.Errorf("reading environment %q: %w", e.Name, err)
	case isBeingRemoved(e, s.removals(project)):
		return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the environment is being deleted, or its kind is changing")
	}
	return nil
}

// mustBeSpare returns 400 for the default environment of a project and for its last standard environment; what completes
// the sentence. Another environment counts once the platform has given it a slug, even if it has no runners or live
// deployment.
func (s *API) mustBeSpare(ctx context.Context, c *rest.Caller, project *v1alpha1.Project, e *v1alpha1.Environment, what string) error {
	isDefault, err := s.defaultOf(ctx, c, project)
	if err != nil {
		return err
	}
	if isDefault(e) {
		return rest.NewProblem(http.StatusBadRequest, httpserver.CodeDefaultEnvironment,
			"the default environment cannot "+what+"; make another environment the default first")
	}
	if e.IsTest() {
		return nil
	}
	var list v1alpha1.EnvironmentList
	if err := s.Service.List(ctx, c, e.ObjectKind(), &list); err != nil {
		return err
	}
	calls := s.removals(project)
	for i := range list.Items {
		if other := &list.Items[i]; other.Name != e.Name && !other.IsTest() && other.Status.Slug != "" && !isBeingRemoved(other, calls) {
			return nil
		}
	}
	return rest.NewProblem(http.StatusBadRequest, httpserver.CodeLastEnvironment, "the last standard environment of a project cannot "+what)
}

var deleteEnvironment = rest.Handle((*API).deleteEnvironment, rest.Endpoint{
	Method: rest.Delete, Path: "/environments/{environment_id}", ID: "deleteEnvironment",
	Permissions: rest.Requires("environments.delete"), Effect: rest.EffectUpdate, Errors: rest.WithStatuses(rest.DeleteErrors, 400),
	Summary: "Delete an environment",
	Doc: "The platform cancels the open runs, takes the deployment out of service and disables the connectors. The call waits " +
		"up to two seconds for that. The history stays until its retention ends.\n\n" +
		"Returns 400 for the default environment and for the last standard environment, and 409 for a test environment during " +
		"a test session.",
	Example: rest.Example{Path: "/environments/{spare_environment}"},
})

// deleteEnvironment deletes the object. Its controller cancels the runs, takes the deployment out of service and
// disables the connectors when it deletes the row.
func (s *API) deleteEnvironment(ctx context.Context, c *rest.Caller, in *rest.EnvironmentPath) (done rest.Response[rest.Done], err error) {
	e, err := s.Service.Environment(ctx, c, in.EnvironmentID)
	if rest.IsNotFound(err) {
		return s.Service.RepeatedDelete(ctx, c, in.EnvironmentID, err)
	}
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return rest.Response[rest.Done]{}, err
	}
	before := show(e)
	leaves := removal{API: s, caller: c}
	defer func() { leaves.end(ctx, err) }()
	judge := func() error {
		if err := c.CheckMatch(e); err != nil {
			return err
		}
		if err := s.mustBeUnused(e); err != nil {
			return err
		}
		if err := leaves.begin(ctx, e, "be deleted"); err != nil {
			return err
		}
		return s.Service.CheckOwnership(e, nil)
	}
	if err := judge(); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	if err := s.Service.DeleteObject(ctx, e, judge); err != nil {
		return rest.Response[rest.Done]{}, err
	}
	s.Service.Wait(ctx, func() bool { // no further runs start
		_, err := s.Service.Store.Environment(ctx, c.ObjectKey(e))
		return err != nil
	})
	return rest.DeletedResponse(ctx, before), nil
}
