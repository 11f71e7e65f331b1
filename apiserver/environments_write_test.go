// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// stored is an environment as Kubernetes has it, by its id.
func (w *world) stored(t testing.TB, id string) *v1alpha1.Environment {
	t.Helper()
	var list v1alpha1.EnvironmentList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		if string(list.Items[i].Spec.ID) == id || v1alpha1.ProjectObjectID(w.projectID, "Environment", list.Items[i].Name).String() == id {
			return &list.Items[i]
		}
	}
	return nil
}

// chosenProject is the project as Kubernetes has it, and chosen what it says of the default.
func (w *world) chosenProject(t testing.TB) *v1alpha1.Project {
	t.Helper()
	project := &v1alpha1.Project{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.ProjectName}, project))
	return project
}

func (w *world) chosen(t testing.TB) string {
	t.Helper()
	return string(w.chosenProject(t).Spec.DefaultEnvironment)
}

func TestAnEnvironmentIsCreatedAndChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	got := w.ask(t, key, http.MethodPost, "/environments",
		`{"name":"Köln 2","git_branch":"main","settings":{"runner":{"min_replicas":2,"concurrency":3,"requests":{"cpu":"250m"},"limits":{"memory":"1Gi"}}}}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	made := decode[Environment](t, got.Body.Bytes())
	require.Equal(t, "/v1/projects/"+w.projectID.String()+"/environments/"+made.ID, got.Header().Get("Location"))
	require.Equal(t, "Köln 2", made.Name)
	require.Equal(t, "main", *made.GitBranch)
	require.False(t, made.IsDefault, "there are others")
	require.Empty(t, w.chosen(t))
	object := w.stored(t, made.ID)
	require.Regexp(t, `^koln-2-[a-z0-9]{5}$`, object.Name)
	require.EqualValues(t, 2, object.Spec.Runner.Replicas())
	require.EqualValues(t, 3, object.Spec.Runner.Concurrency)
	require.Equal(t, RunnerSettings{2, Null[int32]{}, 3, map[string]string{"cpu": "250m"}, map[string]string{"memory": "1Gi"}}, made.Settings.Runner)

	change := func(body string) Environment {
		got := w.ask(t, key, http.MethodPatch, "/environments/"+made.ID, body)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		return decode[Environment](t, got.Body.Bytes())
	}
	now := change(`{"settings":{"runner":{"concurrency":4,"requests":{}}}}`)
	require.Equal(t, RunnerSettings{2, Null[int32]{}, 4, map[string]string{}, map[string]string{"memory": "1Gi"}}, now.Settings.Runner, "what is left out stays")
	require.Equal(t, "main", *now.GitBranch)
	now = change(`{"settings":{"runner":{"min_replicas":0,"max_replicas":5}}}`)
	require.Equal(t, RunnerSettings{0, Null[int32]{Value: ptr.To(int32(5))}, 4, map[string]string{}, map[string]string{"memory": "1Gi"}}, now.Settings.Runner)
	require.Zero(t, w.stored(t, made.ID).Spec.Runner.Replicas())
	require.EqualValues(t, 5, *change(`{"settings":{"runner":{"min_replicas":1}}}`).Settings.Runner.MaxReplicas.Value)
	require.Nil(t, change(`{"settings":{"runner":{"max_replicas":null}}}`).Settings.Runner.MaxReplicas.Value)
	require.Nil(t, w.stored(t, made.ID).Spec.Runner.MaxReplicas)
	require.Nil(t, change(`{"git_branch":null}`).GitBranch)
	require.Equal(t, "release/1", *change(`{"git_branch":"release/1"}`).GitBranch)
	require.Equal(t, "Bonn", change(`{"name":"Bonn"}`).Name)
	require.Equal(t, "Bonn", change(`{}`).Name)
}

// TestAnotherBranchThatIsFollowedDeploys: so it takes the right to deploy.
func TestAnotherBranchThatIsFollowedDeploys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.key(t, nil)
	editor := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.update"}
	})
	got := w.ask(t, all, http.MethodPost, "/environments", `{"name":"Followed","git_branch":"main"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	id := decode[Environment](t, got.Body.Bytes()).ID
	patch := func(key, body string) int {
		status, _ := w.call(t, key, http.MethodPatch, "/environments/"+id, body)
		return status
	}
	require.Equal(t, http.StatusOK, patch(editor, `{"git_branch":"next"}`))
	e := w.stored(t, id)
	e.Spec.Git.AutoDeploy = true
	require.NoError(t, w.client.Update(t.Context(), e))
	require.Equal(t, http.StatusForbidden, patch(editor, `{"git_branch":"other"}`))
	require.Equal(t, http.StatusForbidden, patch(editor, `{"git_branch":null}`))
	require.EqualValues(t, "next", w.stored(t, id).Spec.Git.Branch)
	require.Equal(t, http.StatusOK, patch(editor, `{"git_branch":"next","name":"Renamed"}`))
	require.Equal(t, http.StatusOK, patch(all, `{"git_branch":"other"}`))
}

func TestEnvironmentsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	for body, location := range map[string]string{
		`{}`:                               "body.name",
		`{"name":""}`:                      "body.name",
		`{"name":"a","kind":"quiet"}`:      "body.kind",
		`{"name":"a","git_branch":""}`:     "body.git_branch",
		`{"name":"a","git_branch":"a..b"}`: "body.git_branch",
		`{"name":"a","copy_from_environment_id":"staging"}`:                      "body.copy_from_environment_id",
		`{"name":"a","settings":{"runner":{"min_replicas":-1}}}`:                 "body.settings.runner.min_replicas",
		`{"name":"a","settings":{"runner":{"max_replicas":0}}}`:                  "body.settings.runner.max_replicas",
		`{"name":"a","settings":{"runner":{"min_replicas":3,"max_replicas":2}}}`: "body.settings.runner.max_replicas",
		`{"name":"a","settings":{"runner":{"limits":{"memory":"much"}}}}`:        "body.settings.runner.limits.memory",
		`{"name":"a","settings":{"runner":{"limits":{"cpu":"1e-999999999"}}}}`:   "body.settings.runner.limits.cpu", // over which its parser broods
		`{"name":"a","settings":{"runner":{"requests":{"cpu":"1e999999999"}}}}`:  "body.settings.runner.requests.cpu",
		`{"name":"a","settings":{"runner":{"limits":{"memories":"1Gi"}}}}`:       "body.settings.runner.limits",
	} {
		t.Run(body, func(t *testing.T) {
			got := w.ask(t, key, http.MethodPost, "/environments", body)
			requireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	taken := w.ask(t, key, http.MethodPost, "/environments", `{"name":"Staging!"}`)
	require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
	require.Equal(t, httpserver.CodeSlugTaken, decode[Problem](t, taken.Body.Bytes()).Code)
	taken = w.ask(t, key, http.MethodPatch, "/environments/"+w.environmentID("production"), `{"name":"staging"}`)
	require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
	require.Empty(t, w.stored(t, w.environmentID("production")).Spec.DisplayName)

	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusForbidden, w.ask(t, limited, http.MethodPost, "/environments", `{"name":"mine"}`).Code)
}

// TestWhatAControllerRefusesIsTakenBack: the plan's limit, its resources, and a slug that
// somebody was faster to take.
func TestWhatAControllerRefusesIsTakenBack(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		status int
		code   httpserver.Code
	}{
		v1alpha1.ReasonLimitReached: {http.StatusForbidden, httpserver.CodePlan},
		v1alpha1.ReasonNotAllowed:   {http.StatusForbidden, httpserver.CodePlan},
		v1alpha1.ReasonRefused:      {http.StatusUnprocessableEntity, httpserver.CodeInvalid},
		v1alpha1.ReasonSlugTaken:    {http.StatusBadRequest, httpserver.CodeSlugTaken},
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			w.server.patience = time.Hour
			w.controllers(func(o v1alpha1.ConditionedObject) { v1alpha1.MarkStalled(o, reason, "refused") })
			key := w.key(t, nil)
			got := w.ask(t, key, http.MethodPost, "/environments", `{"name":"one more"}`)
			require.Equal(t, c.status, got.Code, "%s", got.Body)
			require.Equal(t, c.code, decode[Problem](t, got.Body.Bytes()).Code)
			var list v1alpha1.EnvironmentList
			require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
			require.Len(t, list.Items, 2)

			w.server.client = interceptor.NewClient(w.options.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					err := c.Patch(ctx, o, p, opts...)
					if e := o.(*v1alpha1.Environment); err == nil && e.Spec.DisplayName == "another" {
						v1alpha1.MarkStalled(e, reason, "refused")
						err = w.client.Status().Update(ctx, e)
					}
					return err
				},
			})
			got = w.ask(t, key, http.MethodPatch, "/environments/"+w.environmentID("staging"), `{"name":"another","settings":{"runner":{"concurrency":7}}}`, "Idempotency-Key", "k")
			require.Equal(t, c.status, got.Code, "%s", got.Body)
			require.Equal(t, c.code, decode[Problem](t, got.Body.Bytes()).Code)
			after := w.stored(t, w.environmentID("staging"))
			require.Empty(t, after.Spec.DisplayName, "it is put back")
			require.EqualValues(t, 10, after.Spec.Runner.Concurrency, "with all of the change")
			require.Empty(t, after.Annotations[annotationRequests], "and a repetition is tried anew")
		})
	}
}

func TestTheFirstEnvironmentIsTheDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.namespace)))
	key := w.key(t, nil)
	create := func(name string) Environment {
		got := w.ask(t, key, http.MethodPost, "/environments", `{"name":"`+name+`"}`)
		require.Equal(t, http.StatusCreated, got.Code, got.Body)
		made := decode[Environment](t, got.Body.Bytes())
		object := w.stored(t, made.ID)
		w.settle(t, object)
		return made
	}
	first := create("first")
	require.True(t, first.IsDefault)
	require.Equal(t, w.stored(t, first.ID).Name, w.chosen(t))
	second := create("second")
	require.False(t, second.IsDefault)

	refused := w.ask(t, key, http.MethodDelete, "/environments/"+first.ID, "")
	require.Equal(t, http.StatusBadRequest, refused.Code, refused.Body)
	require.Equal(t, httpserver.CodeDefaultEnvironment, decode[Problem](t, refused.Body.Bytes()).Code)
	got := w.ask(t, key, http.MethodPost, "/environments/"+second.ID+"/set-default", "", "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, w.stored(t, second.ID).Name, w.chosen(t))
	got = w.ask(t, key, http.MethodPost, "/environments/"+first.ID+"/set-default", "")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	got = w.ask(t, key, http.MethodPost, "/environments/"+second.ID+"/set-default", "", "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, w.stored(t, first.ID).Name, w.chosen(t), "a repetition does nothing")
	list := decode[[]Environment](t, w.ask(t, key, http.MethodGet, "/environments", "").Body.Bytes())
	require.True(t, list[0].IsDefault)
	require.False(t, list[1].IsDefault)

	got = w.ask(t, key, http.MethodDelete, "/environments/"+second.ID, "")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Nil(t, w.stored(t, second.ID))
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, "/environments/"+second.ID, "").Code)
}

// TestTheLastStandardEnvironmentStays: also where it is not the default.
func TestTheLastStandardEnvironmentStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	staging := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "staging"}}
	require.NoError(t, w.client.Patch(t.Context(), staging, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"kind":"Test"}}`))))
	refused := w.ask(t, key, http.MethodDelete, "/environments/"+w.environmentID("production"), "")
	require.Equal(t, http.StatusBadRequest, refused.Code, refused.Body)
	require.Equal(t, httpserver.CodeLastEnvironment, decode[Problem](t, refused.Body.Bytes()).Code)

	other := &v1alpha1.Environment{ObjectMeta: w.meta("other")}
	w.create(t, other)
	v1alpha1.MarkWaiting(other, v1alpha1.ReasonProgressing, "its runners have not come up")
	require.NoError(t, w.client.Status().Update(t.Context(), other))
	gone := w.ask(t, key, http.MethodDelete, "/environments/"+w.environmentID("production"), "")
	require.Equal(t, http.StatusOK, gone.Code, "another one is left, whether its runners run or not: %s", gone.Body)
}

// TestADefaultThatGitSaysStays: what a GitOps manager owns is not taken over.
func TestADefaultThatGitSaysStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := &v1alpha1.Project{ObjectMeta: w.meta(v1alpha1.ProjectName)}
	require.NoError(t, w.client.Patch(t.Context(), project, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"defaultEnvironment":"production"}}`)),
		client.FieldOwner("argocd-controller")))
	got := w.ask(t, w.key(t, nil), http.MethodPost, "/environments/"+w.environmentID("staging")+"/set-default", "")
	require.Equal(t, http.StatusConflict, got.Code, got.Body)
	require.Equal(t, httpserver.CodeGitOps, decode[Problem](t, got.Body.Bytes()).Code)
	require.Contains(t, got.Body.String(), "argocd-controller owns spec.defaultEnvironment")
	require.Equal(t, "production", w.chosen(t))
}

// TestWhatThePlatformHasNotTakenUpYetCounts: its name, and its place.
func TestWhatThePlatformHasNotTakenUpYetCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	require.Equal(t, http.StatusCreated, w.ask(t, key, http.MethodPost, "/environments", `{"name":"New one"}`).Code)
	for method, path := range map[string]string{http.MethodPost: "/environments", http.MethodPatch: "/environments/" + w.environmentID("staging")} {
		t.Run(method, func(t *testing.T) {
			taken := w.ask(t, key, method, path, `{"name":"new ONE"}`)
			require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
			require.Equal(t, httpserver.CodeSlugTaken, decode[Problem](t, taken.Body.Bytes()).Code)
		})
	}
	project := w.chosenProject(t)
	project.Status.Limits.Environments = ptr.To(int32(3))
	require.NoError(t, w.client.Status().Update(t.Context(), project))
	full := w.ask(t, key, http.MethodPost, "/environments", `{"name":"beyond"}`)
	require.Equal(t, http.StatusForbidden, full.Code, full.Body)
	require.Equal(t, httpserver.CodePlan, decode[Problem](t, full.Body.Bytes()).Code)
}

// TestAnEnvironmentThatIsRefusedAlreadyMayChange: after the plan was lowered, say; what it is
// refused for may be mended step by step.
func TestAnEnvironmentThatIsRefusedAlreadyMayChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refuse := func(e *v1alpha1.Environment) error {
		v1alpha1.MarkStalled(e, v1alpha1.ReasonNotAllowed, "too much memory")
		return w.client.Status().Update(t.Context(), e)
	}
	require.NoError(t, refuse(w.stored(t, w.environmentID("staging"))))
	w.server.client = interceptor.NewClient(w.alone, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			return refuse(o.(*v1alpha1.Environment))
		},
	})
	got := w.ask(t, w.key(t, nil), http.MethodPatch, "/environments/"+w.environmentID("staging"), `{"git_branch":"main"}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.EqualValues(t, "main", w.stored(t, w.environmentID("staging")).Spec.Git.Branch)
}

// TestADefaultIsNotTakenFromWhoCannotBeSeen: nor does a key that is limited to some
// environments say so for others.
func TestADefaultIsNotTakenFromWhoCannotBeSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/environments/" + w.environmentID("staging") + "/set-default"
	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusOK, w.ask(t, w.key(t, nil), http.MethodPost, "/environments/"+w.environmentID("production")+"/set-default", "").Code)
	got := w.ask(t, limited, http.MethodPost, path, "")
	require.Equal(t, http.StatusForbidden, got.Code, got.Body)
	require.Equal(t, "production", w.chosen(t))
}

// TestALateRepetitionMovesNoDefault: whatever the audit log has kept, and also where the first
// call had nothing to change.
func TestALateRepetitionMovesNoDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	set := func(name string, headers ...string) *httptest.ResponseRecorder {
		return w.ask(t, key, http.MethodPost, "/environments/"+w.environmentID(name)+"/set-default", "", headers...)
	}
	for _, first := range []string{"moves", "has nothing to change"} {
		require.Equal(t, http.StatusOK, set("staging", "Idempotency-Key", first).Code)
		require.Equal(t, "staging", w.chosen(t))
	}
	require.Equal(t, http.StatusOK, set("production").Code)
	w.exec(t, `DELETE FROM audit_outcomes`)
	w.exec(t, `DELETE FROM audit_log`)
	for _, first := range []string{"moves", "has nothing to change"} {
		require.Equal(t, http.StatusOK, set("staging", "Idempotency-Key", first).Code)
		require.Equal(t, "production", w.chosen(t), first)
	}
	reused := set("production", "Idempotency-Key", "moves")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, reused.Body)
	require.Equal(t, httpserver.CodeKeyReused, decode[Problem](t, reused.Body.Bytes()).Code)
}

// TestADefaultThatWasNotSetIsSetByARepetition: what failed is not done.
func TestADefaultThatWasNotSetIsSetByARepetition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/environments/"+w.environmentID("staging")+"/set-default"
	working := w.server.client
	w.server.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewServiceUnavailable("away")
		},
	})
	require.Equal(t, http.StatusServiceUnavailable, w.ask(t, key, http.MethodPost, path, "", "Idempotency-Key", "k").Code)
	w.server.client = working
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPost, path, "", "Idempotency-Key", "k").Code)
	require.Equal(t, "staging", w.chosen(t))
}

// TestADefaultThatIsGoneIsNone: the next first environment is it.
func TestADefaultThatIsGoneIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := w.chosenProject(t)
	project.Spec.DefaultEnvironment = "taken-back"
	require.NoError(t, w.client.Update(t.Context(), project))
	require.NoError(t, w.client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.namespace)))
	got := w.ask(t, w.key(t, nil), http.MethodPost, "/environments", `{"name":"first"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	require.True(t, decode[Environment](t, got.Body.Bytes()).IsDefault)
	require.Regexp(t, "^first-", w.chosen(t))
}

// TestADefaultThatIsDeletedBesideTheAPIIsSucceeded: by the one that the platform chose then.
func TestADefaultThatIsDeletedBesideTheAPIIsSucceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	project := w.chosenProject(t)
	project.Spec.DefaultEnvironment = "deleted"
	require.NoError(t, w.client.Update(t.Context(), project))
	project.Status.DefaultEnvironment = "staging"
	require.NoError(t, w.client.Status().Update(t.Context(), project))
	list := decode[[]Environment](t, w.ask(t, w.key(t, nil), http.MethodGet, "/environments", "").Body.Bytes())
	require.Equal(t, w.environmentID("staging"), list[0].ID)
	require.True(t, list[0].IsDefault)
	require.False(t, list[1].IsDefault)
}

// TestADefaultThatIsHeldBackIsSucceeded: the project's status says the same.
func TestADefaultThatIsHeldBackIsSucceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "held"}}
	require.NoError(t, w.client.Create(t.Context(), held))
	project := w.chosenProject(t)
	project.Spec.DefaultEnvironment = "held"
	require.NoError(t, w.client.Update(t.Context(), project))
	project.Status.DefaultEnvironment = "staging"
	require.NoError(t, w.client.Status().Update(t.Context(), project))
	isDefault := func() bool {
		got := w.ask(t, w.key(t, nil), http.MethodGet, "/environments/"+w.environmentID("staging"), "")
		return decode[Environment](t, got.Body.Bytes()).IsDefault
	}
	require.False(t, isDefault(), "the one that it names comes into effect")
	held.MarkSlugTaken("held", "Environment team/other")
	require.NoError(t, w.client.Status().Update(t.Context(), held))
	require.True(t, isDefault())
}
