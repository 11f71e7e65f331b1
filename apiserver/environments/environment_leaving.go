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

// annotationLeaving of a Project names the environments that calls under way delete, or make
// ones for tests or, for as long as that may be put back, standard ones: for each call uid and time, such as
// "2f9d1c4e-5b7a-4e0c-9a35-8c1f0e6d7b21=2030-01-31T12:00:00Z". Of two calls that are judged
// at once neither is seen in the environments yet. They are in the Project, which each writes as it
// read it: the second one is judged again, without the environment of the first.
//
// Who may write Projects may write it; what cannot be read, or is not of now, says nothing.
const annotationLeaving = "agentplatform.dev/leaving"

// leavingFor is how long such a call counts whose end is not known: longer than any lasts, by
// whatever clock of a replica.
const leavingFor = rest.MaxRequestTime + 2*rest.MaxClockSkew

// leaving are the calls of a project's annotation that count.
func (s *API) leaving(project *v1alpha1.Project) (calls []string) {
	now := s.Service.Now()
	for _, call := range strings.Fields(project.Annotations[annotationLeaving]) {
		_, when, _ := strings.Cut(call, "=")
		at, err := time.Parse(time.RFC3339, when)
		if age := now.Sub(at); err == nil && age < leavingFor && age > -rest.MaxClockSkew {
			calls = append(calls, call)
		}
	}
	return calls
}

// isLeaving says whether a call under way, or Kubernetes, is about to take an environment away.
func isLeaving(e *v1alpha1.Environment, calls []string) bool {
	return e.DeletionTimestamp != nil || slices.ContainsFunc(calls, func(call string) bool {
		uid, _, _ := strings.Cut(call, "=")
		return types.UID(uid) == e.UID
	})
}

// writeLeaving writes the calls into a project as it was read: a conflict where somebody else has written it since.
func (s *API) writeLeaving(ctx context.Context, project *v1alpha1.Project, calls []string) error {
	before := project.DeepCopy()
	delete(project.Annotations, annotationLeaving)
	if len(calls) > 0 {
		if project.Annotations == nil {
			project.Annotations = map[string]string{}
		}
		project.Annotations[annotationLeaving] = strings.Join(calls, " ")
	}
	return s.Service.Client.Patch(ctx, project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(rest.FieldManager))
}

// departure is one call that takes an environment away.
type departure struct {
	*API
	caller *rest.Caller
	// call is what stands of it in the project; "" before.
	call string
}

// begin answers 400 where a project cannot do without an environment, of which it says what it cannot. Else
// no other call counts on the environment, or makes it the default, until the end. It may be called again.
func (d *departure) begin(ctx context.Context, e *v1alpha1.Environment, what string) error {
	return d.note(ctx, e, func(project *v1alpha1.Project) error { return d.mustBeSpare(ctx, d.caller, project, e, what) })
}

// note is begin by another judgement.
func (d *departure) note(ctx context.Context, e *v1alpha1.Environment, judge func(*v1alpha1.Project) error) error {
	var err error
	for range rest.MaxChangeAttempts {
		var project *v1alpha1.Project
		if project, err = d.Service.Project(ctx, d.caller); err != nil {
			return err
		}
		calls := d.leaving(project)
		if err := judge(project); err != nil {
			return err
		}
		if slices.Contains(calls, d.call) {
			return nil
		}
		call := string(e.UID) + "=" + d.Service.Now().UTC().Format(time.RFC3339)
		if err = d.writeLeaving(ctx, project, append(calls, call)); err == nil {
			d.call = call
			return nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return fmt.Errorf("noting that environment %q leaves: %w", e.Name, err)
}

// end is for a call that came to an end, also one that was given up. Where that is an error of
// which nobody knows what was done, it counts on for a while.
func (d *departure) end(ctx context.Context, outcome error) {
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
		calls := d.leaving(project)
		i := slices.Index(calls, d.call) // another one that reads the same counts as much
		if i < 0 {
			return
		}
		if err = d.writeLeaving(ctx, project, slices.Delete(calls, i, i+1)); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		d.Service.Logger.WarnContext(ctx, "a call that has ended counts among those that take environments away for a while", "namespace", d.caller.Namespace, "error", err)
	}
}

// mustStay answers 409 for an environment that is about to go, as it is after the project was read.
func (s *API) mustStay(ctx context.Context, project *v1alpha1.Project, e *v1alpha1.Environment) error {
	uid := e.UID
	err := s.Service.Reload(ctx, e)
	switch {
	case apierrors.IsNotFound(err), err == nil && e.UID != uid:
		return rest.NotFound("environment")
	case err != nil:
		return fmt.Errorf("reading environment %q: %w", e.Name, err)
	case isLeaving(e, s.leaving(project)):
		return rest.NewProblem(http.StatusConflict, httpserver.CodeConflict, "the environment is being deleted, or its kind is changing")
	}
	return nil
}

// mustBeSpare answers 400 for the default environment of a project and for the last standard one, of which it
// says what they cannot. Another one is left once the platform has taken it up, which has given it its
// slug: whether its runners run, or anything is live in it, makes it no less of an environment.
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
	calls := s.leaving(project)
	for i := range list.Items {
		if other := &list.Items[i]; other.Name != e.Name && !other.IsTest() && other.Status.Slug != "" && !isLeaving(other, calls) {
			return nil
		}
	}
	return rest.NewProblem(http.StatusBadRequest, httpserver.CodeLastEnvironment, "the last standard environment of a project cannot "+what)
}
