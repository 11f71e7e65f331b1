// SPDX-License-Identifier: Apache-2.0

package environments_test

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
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

func defaultEnvironment(t testing.TB, w *apiservertest.Project) string {
	t.Helper()
	return string(w.ProjectObject(t).Spec.DefaultEnvironment)
}

func TestEnvironment_CreateAndUpdate(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	got := w.Request(t, key, http.MethodPost, "/environments",
		`{"name":"Köln 2","git_branch":"main","settings":{"runner":{"min_replicas":2,"concurrency":3,"requests":{"cpu":"250m"},"limits":{"memory":"1Gi"}}}}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	made := apiservertest.Decode[environments.Environment](t, got.Body.Bytes())
	require.Equal(t, "/v1/projects/"+w.ProjectID.String()+"/environments/"+made.ID, got.Header().Get("Location"))
	require.Equal(t, "Köln 2", made.Name)
	require.Equal(t, "main", *made.GitBranch)
	require.False(t, made.IsDefault, "there are others")
	require.Empty(t, defaultEnvironment(t, w))
	object := w.EnvironmentObject(t, made.ID)
	require.Regexp(t, `^koln-2-[a-z0-9]{5}$`, object.Name)
	require.EqualValues(t, 2, object.Spec.Runner.Replicas())
	require.EqualValues(t, 3, object.Spec.Runner.Concurrency)
	require.Equal(t, environments.RunnerSettings{MinReplicas: 2, MaxReplicas: rest.Null[int32]{}, Concurrency: 3, Requests: map[string]string{"cpu": "250m"}, Limits: map[string]string{"memory": "1Gi"}}, made.Settings.Runner)

	change := func(body string) environments.Environment {
		got := w.Request(t, key, http.MethodPatch, "/environments/"+made.ID, body)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		return apiservertest.Decode[environments.Environment](t, got.Body.Bytes())
	}
	now := change(`{"settings":{"runner":{"concurrency":4,"requests":{}}}}`)
	require.Equal(t, environments.RunnerSettings{MinReplicas: 2, MaxReplicas: rest.Null[int32]{}, Concurrency: 4, Requests: map[string]string{}, Limits: map[string]string{"memory": "1Gi"}}, now.Settings.Runner, "omitted fields stay")
	require.Equal(t, "main", *now.GitBranch)
	now = change(`{"settings":{"runner":{"min_replicas":0,"max_replicas":5}}}`)
	require.Equal(t, environments.RunnerSettings{MinReplicas: 0, MaxReplicas: rest.Null[int32]{Value: ptr.To(int32(5))}, Concurrency: 4, Requests: map[string]string{}, Limits: map[string]string{"memory": "1Gi"}}, now.Settings.Runner)
	require.Zero(t, w.EnvironmentObject(t, made.ID).Spec.Runner.Replicas())
	require.EqualValues(t, 5, *change(`{"settings":{"runner":{"min_replicas":1}}}`).Settings.Runner.MaxReplicas.Value)
	require.Nil(t, change(`{"settings":{"runner":{"max_replicas":null}}}`).Settings.Runner.MaxReplicas.Value)
	require.Nil(t, w.EnvironmentObject(t, made.ID).Spec.Runner.MaxReplicas)
	require.Nil(t, change(`{"git_branch":null}`).GitBranch)
	require.Equal(t, "release/1", *change(`{"git_branch":"release/1"}`).GitBranch)
	require.Equal(t, "Bonn", change(`{"name":"Bonn"}`).Name)
	require.Equal(t, "Bonn", change(`{}`).Name)
}

// A new branch of an environment with auto deploy starts a deployment.
func TestUpdateEnvironment_RequiresDeployPermissionForBranch(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	all := w.CreateKey(t, nil)
	editor := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.update"}
	})
	got := w.Request(t, all, http.MethodPost, "/environments", `{"name":"Followed","git_branch":"main"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	id := apiservertest.Decode[environments.Environment](t, got.Body.Bytes()).ID
	patch := func(key, body string) int {
		status, _ := w.Call(t, key, http.MethodPatch, "/environments/"+id, body)
		return status
	}
	require.Equal(t, http.StatusOK, patch(editor, `{"git_branch":"next"}`))
	e := w.EnvironmentObject(t, id)
	e.Spec.Git.AutoDeploy = true
	require.NoError(t, w.Client.Update(t.Context(), e))
	require.Equal(t, http.StatusForbidden, patch(editor, `{"git_branch":"other"}`))
	require.Equal(t, http.StatusForbidden, patch(editor, `{"git_branch":null}`))
	require.EqualValues(t, "next", w.EnvironmentObject(t, id).Spec.Git.Branch)
	require.Equal(t, http.StatusOK, patch(editor, `{"git_branch":"next","name":"Renamed"}`))
	require.Equal(t, http.StatusOK, patch(all, `{"git_branch":"other"}`))
}

func TestCreateEnvironment_RejectsInvalidInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
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
			got := w.Request(t, key, http.MethodPost, "/environments", body)
			apiservertest.RequireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	taken := w.Request(t, key, http.MethodPost, "/environments", `{"name":"Staging!"}`)
	require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
	require.Equal(t, httpserver.CodeSlugTaken, apiservertest.Decode[rest.Problem](t, taken.Body.Bytes()).Code)
	taken = w.Request(t, key, http.MethodPatch, "/environments/"+w.EnvironmentID("production"), `{"name":"staging"}`)
	require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
	require.Empty(t, w.EnvironmentObject(t, w.EnvironmentID("production")).Spec.DisplayName)

	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusForbidden, w.Request(t, limited, http.MethodPost, "/environments", `{"name":"mine"}`).Code)
}

// The controller rejects an environment over the plan's limit or resources, or with a taken slug.
func TestCreateEnvironment_RemovesRejectedEnvironment(t *testing.T) {
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
			w := apiservertest.NewProject(t)
			w.Server.Service.ReadyTimeout = time.Hour
			w.OnRead(func(o v1alpha1.ConditionedObject) { v1alpha1.MarkStalled(o, reason, "refused") })
			key := w.CreateKey(t, nil)
			got := w.Request(t, key, http.MethodPost, "/environments", `{"name":"one more"}`)
			require.Equal(t, c.status, got.Code, "%s", got.Body)
			require.Equal(t, c.code, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Code)
			var list v1alpha1.EnvironmentList
			require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
			require.Len(t, list.Items, 2)

			w.Server.Service.Client = interceptor.NewClient(w.Options.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					err := c.Patch(ctx, o, p, opts...)
					if e := o.(*v1alpha1.Environment); err == nil && e.Spec.DisplayName == "another" {
						v1alpha1.MarkStalled(e, reason, "refused")
						err = w.Client.Status().Update(ctx, e)
					}
					return err
				},
			})
			got = w.Request(t, key, http.MethodPatch, "/environments/"+w.EnvironmentID("staging"), `{"name":"another","settings":{"runner":{"concurrency":7}}}`, "Idempotency-Key", "k")
			require.Equal(t, c.status, got.Code, "%s", got.Body)
			require.Equal(t, c.code, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Code)
			after := w.EnvironmentObject(t, w.EnvironmentID("staging"))
			require.Empty(t, after.Spec.DisplayName, "it is put back")
			require.EqualValues(t, 10, after.Spec.Runner.Concurrency, "with all of the change")
			require.Empty(t, after.Annotations["agentplatform.dev/requests"], "and a repetition is tried anew")
		})
	}
}

func TestCreateEnvironment_MakesFirstTheDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	require.NoError(t, w.Client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.Namespace)))
	key := w.CreateKey(t, nil)
	create := func(name string) environments.Environment {
		got := w.Request(t, key, http.MethodPost, "/environments", `{"name":"`+name+`"}`)
		require.Equal(t, http.StatusCreated, got.Code, got.Body)
		made := apiservertest.Decode[environments.Environment](t, got.Body.Bytes())
		object := w.EnvironmentObject(t, made.ID)
		w.SetReady(t, object)
		return made
	}
	first := create("first")
	require.True(t, first.IsDefault)
	require.Equal(t, w.EnvironmentObject(t, first.ID).Name, defaultEnvironment(t, w))
	second := create("second")
	require.False(t, second.IsDefault)

	refused := w.Request(t, key, http.MethodDelete, "/environments/"+first.ID, "")
	require.Equal(t, http.StatusBadRequest, refused.Code, refused.Body)
	require.Equal(t, httpserver.CodeDefaultEnvironment, apiservertest.Decode[rest.Problem](t, refused.Body.Bytes()).Code)
	got := w.Request(t, key, http.MethodPost, "/environments/"+second.ID+"/set-default", "", "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, w.EnvironmentObject(t, second.ID).Name, defaultEnvironment(t, w))
	got = w.Request(t, key, http.MethodPost, "/environments/"+first.ID+"/set-default", "")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	got = w.Request(t, key, http.MethodPost, "/environments/"+second.ID+"/set-default", "", "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, w.EnvironmentObject(t, first.ID).Name, defaultEnvironment(t, w), "a repetition does nothing")
	list := apiservertest.Decode[[]environments.Environment](t, w.Request(t, key, http.MethodGet, "/environments", "").Body.Bytes())
	require.True(t, list[0].IsDefault)
	require.False(t, list[1].IsDefault)

	got = w.Request(t, key, http.MethodDelete, "/environments/"+second.ID, "")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Nil(t, w.EnvironmentObject(t, second.ID))
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, "/environments/"+second.ID, "").Code)
}

// The rule also holds if the environment is not the default.
func TestDeleteEnvironment_KeepsLastStandardEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	staging := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "staging"}}
	require.NoError(t, w.Client.Patch(t.Context(), staging, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"kind":"Test"}}`))))
	refused := w.Request(t, key, http.MethodDelete, "/environments/"+w.EnvironmentID("production"), "")
	require.Equal(t, http.StatusBadRequest, refused.Code, refused.Body)
	require.Equal(t, httpserver.CodeLastEnvironment, apiservertest.Decode[rest.Problem](t, refused.Body.Bytes()).Code)

	other := &v1alpha1.Environment{ObjectMeta: w.Meta("other")}
	w.Create(t, other)
	v1alpha1.MarkWaiting(other, v1alpha1.ReasonProgressing, "its runners have not come up")
	require.NoError(t, w.Client.Status().Update(t.Context(), other))
	gone := w.Request(t, key, http.MethodDelete, "/environments/"+w.EnvironmentID("production"), "")
	require.Equal(t, http.StatusOK, gone.Code, "another one is left, whether its runners run or not: %s", gone.Body)
}

// A default that a GitOps manager owns stays.
func TestUpdateEnvironment_RejectsDefaultOwnedByGitOps(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	project := &v1alpha1.Project{ObjectMeta: w.Meta(v1alpha1.ProjectName)}
	require.NoError(t, w.Client.Patch(t.Context(), project, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"defaultEnvironment":"production"}}`)),
		client.FieldOwner("argocd-controller")))
	got := w.Request(t, w.CreateKey(t, nil), http.MethodPost, "/environments/"+w.EnvironmentID("staging")+"/set-default", "")
	require.Equal(t, http.StatusConflict, got.Code, got.Body)
	require.Equal(t, httpserver.CodeGitOps, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Code)
	require.Contains(t, got.Body.String(), "argocd-controller owns spec.defaultEnvironment")
	require.Equal(t, "production", defaultEnvironment(t, w))
}

// Names and quota include environments that no controller has processed.
func TestCreateEnvironment_CountsUnprocessedEnvironments(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	require.Equal(t, http.StatusCreated, w.Request(t, key, http.MethodPost, "/environments", `{"name":"New one"}`).Code)
	for method, path := range map[string]string{http.MethodPost: "/environments", http.MethodPatch: "/environments/" + w.EnvironmentID("staging")} {
		t.Run(method, func(t *testing.T) {
			taken := w.Request(t, key, method, path, `{"name":"new ONE"}`)
			require.Equal(t, http.StatusBadRequest, taken.Code, taken.Body)
			require.Equal(t, httpserver.CodeSlugTaken, apiservertest.Decode[rest.Problem](t, taken.Body.Bytes()).Code)
		})
	}
	project := w.ProjectObject(t)
	project.Status.Limits.Environments = ptr.To(int32(3))
	require.NoError(t, w.Client.Status().Update(t.Context(), project))
	full := w.Request(t, key, http.MethodPost, "/environments", `{"name":"beyond"}`)
	require.Equal(t, http.StatusForbidden, full.Code, full.Body)
	require.Equal(t, httpserver.CodePlan, apiservertest.Decode[rest.Problem](t, full.Body.Bytes()).Code)
}

// An environment that exceeds a lowered plan can be corrected in steps.
func TestUpdateEnvironment_ChangesRejectedEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	refuse := func(e *v1alpha1.Environment) error {
		v1alpha1.MarkStalled(e, v1alpha1.ReasonNotAllowed, "too much memory")
		return w.Client.Status().Update(t.Context(), e)
	}
	require.NoError(t, refuse(w.EnvironmentObject(t, w.EnvironmentID("staging"))))
	w.Server.Service.Client = interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			return refuse(o.(*v1alpha1.Environment))
		},
	})
	got := w.Request(t, w.CreateKey(t, nil), http.MethodPatch, "/environments/"+w.EnvironmentID("staging"), `{"git_branch":"main"}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.EqualValues(t, "main", w.EnvironmentObject(t, w.EnvironmentID("staging")).Spec.Git.Branch)
}

// A limited key cannot change the default of environments that it does not reach.
func TestUpdateEnvironment_RejectsDefaultForLimitedKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	path := "/environments/" + w.EnvironmentID("staging") + "/set-default"
	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusOK, w.Request(t, w.CreateKey(t, nil), http.MethodPost, "/environments/"+w.EnvironmentID("production")+"/set-default", "").Code)
	got := w.Request(t, limited, http.MethodPost, path, "")
	require.Equal(t, http.StatusForbidden, got.Code, got.Body)
	require.Equal(t, "production", defaultEnvironment(t, w))
}

// A repeated call does not move the default, also if the audit log has expired or the first call changed nothing.
func TestUpdateEnvironment_RepetitionKeepsLaterDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	set := func(name string, headers ...string) *httptest.ResponseRecorder {
		return w.Request(t, key, http.MethodPost, "/environments/"+w.EnvironmentID(name)+"/set-default", "", headers...)
	}
	for _, first := range []string{"moves", "has nothing to change"} {
		require.Equal(t, http.StatusOK, set("staging", "Idempotency-Key", first).Code)
		require.Equal(t, "staging", defaultEnvironment(t, w))
	}
	require.Equal(t, http.StatusOK, set("production").Code)
	w.ExecuteSQL(t, `DELETE FROM audit_outcomes`)
	w.ExecuteSQL(t, `DELETE FROM audit_log`)
	for _, first := range []string{"moves", "has nothing to change"} {
		require.Equal(t, http.StatusOK, set("staging", "Idempotency-Key", first).Code)
		require.Equal(t, "production", defaultEnvironment(t, w), first)
	}
	reused := set("production", "Idempotency-Key", "moves")
	require.Equal(t, http.StatusUnprocessableEntity, reused.Code, reused.Body)
	require.Equal(t, httpserver.CodeKeyReused, apiservertest.Decode[rest.Problem](t, reused.Body.Bytes()).Code)
}

// A repeated call completes a call that failed before it set the default.
func TestUpdateEnvironment_RepetitionSetsMissingDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/environments/"+w.EnvironmentID("staging")+"/set-default"
	working := w.Server.Service.Client
	w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewServiceUnavailable("away")
		},
	})
	require.Equal(t, http.StatusServiceUnavailable, w.Request(t, key, http.MethodPost, path, "", "Idempotency-Key", "k").Code)
	w.Server.Service.Client = working
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPost, path, "", "Idempotency-Key", "k").Code)
	require.Equal(t, "staging", defaultEnvironment(t, w))
}

// The next first environment becomes the default.
func TestCreateEnvironment_ReplacesDeletedDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	project := w.ProjectObject(t)
	project.Spec.DefaultEnvironment = "taken-back"
	require.NoError(t, w.Client.Update(t.Context(), project))
	require.NoError(t, w.Client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.Namespace)))
	got := w.Request(t, w.CreateKey(t, nil), http.MethodPost, "/environments", `{"name":"first"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	require.True(t, apiservertest.Decode[environments.Environment](t, got.Body.Bytes()).IsDefault)
	require.Regexp(t, "^first-", defaultEnvironment(t, w))
}

// The platform selects the next default after a deletion in Kubernetes.
func TestDefaultEnvironment_FollowsDeletionInKubernetes(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	project := w.ProjectObject(t)
	project.Spec.DefaultEnvironment = "deleted"
	require.NoError(t, w.Client.Update(t.Context(), project))
	project.Status.DefaultEnvironment = "staging"
	require.NoError(t, w.Client.Status().Update(t.Context(), project))
	list := apiservertest.Decode[[]environments.Environment](t, w.Request(t, w.CreateKey(t, nil), http.MethodGet, "/environments", "").Body.Bytes())
	require.Equal(t, w.EnvironmentID("staging"), list[0].ID)
	require.True(t, list[0].IsDefault)
	require.False(t, list[1].IsDefault)
}

// The status of the project names the same environment.
func TestDefaultEnvironment_SkipsTerminatingDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	held := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "held"}}
	require.NoError(t, w.Client.Create(t.Context(), held))
	project := w.ProjectObject(t)
	project.Spec.DefaultEnvironment = "held"
	require.NoError(t, w.Client.Update(t.Context(), project))
	project.Status.DefaultEnvironment = "staging"
	require.NoError(t, w.Client.Status().Update(t.Context(), project))
	isDefault := func() bool {
		got := w.Request(t, w.CreateKey(t, nil), http.MethodGet, "/environments/"+w.EnvironmentID("staging"), "")
		return apiservertest.Decode[environments.Environment](t, got.Body.Bytes()).IsDefault
	}
	require.False(t, isDefault(), "the one that it names comes into effect")
	held.MarkSlugTaken("held", "Environment team/other")
	require.NoError(t, w.Client.Status().Update(t.Context(), held))
	require.True(t, isDefault())
}
