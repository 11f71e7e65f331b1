// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// requireDone asks for something that is answered with ok, and returns what ok says.
func requireDone(t testing.TB, w *apiservertest.Project, key, path string, headers ...string) bool {
	t.Helper()
	got := w.Request(t, key, http.MethodPost, path, "", headers...)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	return apiservertest.Decode[rest.Done](t, got.Body.Bytes()).OK
}

func TestCreateDeployment_CreatesObject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments?environment_id="+w.IDs["environment"]
	commit := strings.Repeat("c", 40)
	for body, want := range map[string]deployments.DeploymentSource{
		"":                              {Type: "git"},
		"null":                          {Type: "git"},
		"{}":                            {Type: "git"},
		`{"commit":null,"branch":null}`: {Type: "git"},
		`{"commit":"` + commit + `"}`:   {Type: "git", Commit: &commit},
		`{"branch":"release/1"}`:        {Type: "git", Branch: rest.Optional("release/1")},
	} {
		t.Run(body, func(t *testing.T) {
			made := w.CreateDeployment(t, key, path, body, http.StatusCreated)
			require.Equal(t, deployments.DeploymentStatus("pending"), made.Status)
			require.Equal(t, want, made.Source)
			o := w.DeploymentObject(t, made.ID)
			require.Regexp(t, `^production-[a-z0-9]{5}$`, o.Name)
			require.Equal(t, v1alpha1.ManagedBy, o.Labels[v1alpha1.LabelManagedBy], "it is pruned some day")
			require.EqualValues(t, "production", o.Spec.Environment)
			require.Equal(t, made, w.GetDeployment(t, key, made.ID), "although the store has not heard of it")
			_, list := w.Call(t, key, http.MethodGet, path, "")
			require.Contains(t, string(list), made.ID)
			_, err := w.RecordDeployment(t.Context(), o)
			require.NoError(t, err)
			_, list = w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, 1, strings.Count(string(list), `"id":"`+made.ID), "now that it has")
			require.Equal(t, want, w.GetDeployment(t, key, made.ID).Source)
		})
	}
}

func TestCreateDeployment_RespectsIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments?environment_id="+w.IDs["environment"]
	made := w.CreateDeployment(t, key, path, `{"branch":"main"}`, http.StatusCreated, "Idempotency-Key", "k")
	require.Regexp(t, `^deployment-[a-z0-9]{16}$`, w.DeploymentObject(t, made.ID).Name)
	require.Equal(t, made, w.CreateDeployment(t, key, path, `{"branch":"main"}`, http.StatusCreated, "Idempotency-Key", "k"))
	apiservertest.RequireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.Project, key, http.MethodPost, path, `{"branch":"other"}`, "Idempotency-Key", "k")
	again := w.CreateDeployment(t, key, "/deployments/"+w.IDs["deployment"]+"/redeploy", "", http.StatusOK, "Idempotency-Key", "k")
	require.NotEqual(t, made.ID, again.ID, "a key is one of its call")
	require.Equal(t, again, w.CreateDeployment(t, key, "/deployments/"+w.IDs["deployment"]+"/redeploy", "", http.StatusOK, "Idempotency-Key", "k"))
}

func TestCreateDeployment_RejectsInvalidInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments?environment_id="+w.IDs["environment"]
	for body, location := range map[string]string{
		`{"commit":"abc"}`:     "body.commit",
		`{"branch":"a..b"}`:    "body.branch",
		`{"branch":""}`:        "body.branch",
		`{"skip_tests":true}`:  "body.skip_tests",
		`{"skip_tests":false}`: "body.skip_tests",
	} {
		t.Run(body, func(t *testing.T) {
			got := w.Request(t, key, http.MethodPost, path, body)
			apiservertest.RequireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	status, answer := w.Call(t, key, http.MethodGet, "/deployments/"+w.IDs["deployment"]+"/test-runs?convert_costs_to=GBP", "")
	require.Contains(t, apiservertest.RequireField(t, status, answer, "query.convert_costs_to").Message, "EUR")
	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	unbegun := w.CreateDeployment(t, key, path, "", http.StatusCreated)
	for _, id := range []string{w.IDs["deployment"], unbegun.ID} {
		for _, call := range []string{"POST cancel", "POST activate", "POST redeploy", "POST deploy-anyway", "GET logs", "GET test-runs", "GET "} {
			method, what, _ := strings.Cut(call, " ")
			at := strings.TrimSuffix("/deployments/"+id+"/"+what, "/")
			apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project, limited, method, at, "")
			apiservertest.RequireCode(t, http.StatusNotFound, httpserver.CodeNotFound, w.Project, key, method, strings.Replace(at, id, uuid.NewString(), 1), "")
		}
	}
	apiservertest.RequireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.Project, limited, http.MethodPost, path, "")

	e := w.Project.EnvironmentObject(t, w.IDs["environment"])
	v1alpha1.MarkStalled(e, v1alpha1.ReasonLimitReached, "the project has too many environments")
	require.NoError(t, w.Client.Status().Update(t.Context(), e))
	p := apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeConflict, w.Project, key, http.MethodPost, path, "")
	require.Contains(t, p.Detail, "too many environments")

	project := w.ProjectObject(t)
	project.Spec.Git = nil
	require.NoError(t, w.Client.Update(t.Context(), project))
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.Project, key, http.MethodPost, path, "")
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.Project, key, http.MethodPost, "/deployments/"+w.IDs["deployment"]+"/redeploy", "")
}

// An open deployment shows the message of its controller.
func TestGetDeployment_ShowsMessageOfController(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, id := w.CreateKey(t, nil), w.OpenDeployment(t).String()
	o := w.DeploymentObject(t, id)
	o.MarkBuilding(v1alpha1.StepFetching)
	o.MarkBuildBlocked("no node has room")
	require.NoError(t, w.Client.Status().Update(t.Context(), o))
	require.Contains(t, *w.GetDeployment(t, key, id).Message, "no node has room")
	for phase, want := range map[store.DeploymentPhase]string{store.PhasePacking: "validating and packing", store.PhaseTesting: "running the tests"} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			require.NoError(t, w.Store.ReportBuild(t.Context(), store.Key{ProjectID: w.ProjectID, ID: uuid.MustParse(id)}, store.BuildReport{Phase: phase}))
			shown := w.GetDeployment(t, key, id)
			require.EqualValues(t, phase, *shown.Phase.Value)
			require.Contains(t, *shown.Message, want, "the object is behind")
		})
	}
	require.NoError(t, w.Client.Delete(t.Context(), o))
	require.Nil(t, w.GetDeployment(t, key, id).Message)
}

func TestCancelDeployment_EndsBuild(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, id := w.CreateKey(t, nil), w.OpenDeployment(t).String()
	path := "/deployments/" + id + "/cancel"
	require.True(t, requireDone(t, w.Project, key, path, "Idempotency-Key", "k"))
	require.True(t, w.DeploymentObject(t, id).Spec.Cancel)
	require.Equal(t, deployments.DeploymentStatus("cancelled"), w.GetDeployment(t, key, id).Status)
	require.True(t, requireDone(t, w.Project, key, path, "Idempotency-Key", "k"), "a repetition is answered as the first call")
	require.False(t, requireDone(t, w.Project, key, path), "it is not building any more")
	apiservertest.RequireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.Project, key, http.MethodPost,
		"/deployments/"+w.OpenDeployment(t).String()+"/cancel", "", "Idempotency-Key", "k")
}

// The call writes nothing then.
func TestCancelDeployment_IgnoresEndedDeployment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	pending := w.CreateDeployment(t, key, "/deployments?environment_id="+w.IDs["environment"], "", http.StatusCreated).ID
	for _, id := range []string{w.IDs["deployment"], pending, w.FailedDeployment(t).String()} {
		require.False(t, requireDone(t, w.Project, key, "/deployments/"+id+"/cancel"))
		o := w.DeploymentObject(t, id)
		require.False(t, o.Spec.Cancel)
		require.NoError(t, w.Client.Delete(t.Context(), o))
	}
	gone := w.OpenDeployment(t).String()
	require.NoError(t, w.Client.Delete(t.Context(), w.DeploymentObject(t, gone)))
	require.False(t, requireDone(t, w.Project, key, "/deployments/"+gone+"/cancel"), "it ends by itself")
}

// The deployment was deployed during the call.
func TestCancelDeployment_ReturnsFalseIfTooLate(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, id := w.CreateKey(t, nil), w.OpenDeployment(t)
	w.Server.Service.Client = interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			require.NoError(t, w.Store.EndDeployment(ctx, store.Key{ProjectID: w.ProjectID, ID: id}, store.DeploymentFailed, store.FailureBuild, "no"))
			return c.Patch(ctx, o, p, opts...)
		},
	})
	require.False(t, requireDone(t, w.Project, key, "/deployments/"+id.String()+"/cancel"))
}

func TestRedeploy_DeploysSameCode(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	made := w.CreateDeployment(t, key, "/deployments/"+w.IDs["deployment"]+"/redeploy", "", http.StatusOK)
	require.Equal(t, w.IDs["deployment"], *made.RedeployOf)
	require.Equal(t, w.IDs["environment"], made.EnvironmentID)
	git := w.DeploymentObject(t, made.ID).Spec.Source.Git
	require.Equal(t, v1alpha1.DeploymentGitSource{Branch: "main", Commit: v1alpha1.GitCommit(strings.Repeat("a", 40))}, *git, "the head of main at that time")
	unfetched := w.OpenDeployment(t).String()
	made = w.CreateDeployment(t, key, "/deployments/"+unfetched+"/redeploy", "", http.StatusOK)
	require.Equal(t, v1alpha1.DeploymentGitSource{Branch: "main"}, *w.DeploymentObject(t, made.ID).Spec.Source.Git, "the requested source")

	require.NoError(t, w.Client.Delete(t.Context(), w.Project.EnvironmentObject(t, w.IDs["environment"])))
	apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeGone, w.Project, key, http.MethodPost, "/deployments/"+w.IDs["deployment"]+"/redeploy", "")
	apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeGone, w.Project, key, http.MethodPost, "/deployments/"+w.IDs["deployment"]+"/activate", "")
}

// TestRedeploy_KeepsSkipFlags: a version that went live by deploy-anyway can be deployed again.
func TestRedeploy_KeepsSkipFlags(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, test := range []struct {
		name              string
		tests, connectors bool
	}{
		{"none", false, false},
		{"tests", true, false},
		{"connectors", false, true},
		{"both", true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			of := &v1alpha1.Deployment{ObjectMeta: w.Meta("skips-" + test.name), Spec: v1alpha1.DeploymentSpec{
				Environment: "production", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
				SkipTests: test.tests, SkipFailedConnectors: test.connectors,
			}}
			w.Create(t, of)
			begun, err := w.RecordDeployment(t.Context(), of)
			require.NoError(t, err)
			made := w.CreateDeployment(t, key, "/deployments/"+begun.ID.String()+"/redeploy", "", http.StatusOK)
			require.Equal(t, test.tests, made.SkipTests)
			require.Equal(t, test.connectors, made.SkipFailedConnectors)
			spec := w.DeploymentObject(t, made.ID).Spec
			require.Equal(t, test.tests, spec.SkipTests)
			require.Equal(t, test.connectors, spec.SkipFailedConnectors)
		})
	}
}

// The deployment skips the failed step and the step that was skipped before.
func TestDeployAnyway_SkipsFailedStep(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	made := w.CreateDeployment(t, key, "/deployments/"+w.FailedDeployment(t).String()+"/deploy-anyway", "", http.StatusOK)
	require.True(t, made.SkipTests)
	require.False(t, made.SkipFailedConnectors)
	o := w.DeploymentObject(t, made.ID)
	require.True(t, o.Spec.SkipTests)
	begun, err := w.RecordDeployment(t.Context(), o)
	require.NoError(t, err)
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeNothingToOverride, w.Project, key, http.MethodPost, "/deployments/"+made.ID+"/deploy-anyway", "")
	require.NoError(t, w.Store.EndDeployment(t.Context(), begun, store.DeploymentFailed, store.FailureConnectors, "a name is taken"))
	made = w.CreateDeployment(t, key, "/deployments/"+made.ID+"/deploy-anyway", "", http.StatusOK)
	require.True(t, made.SkipTests, "they would fail again")
	require.True(t, made.SkipFailedConnectors)
	require.True(t, w.DeploymentObject(t, made.ID).Spec.SkipFailedConnectors)

	broken := w.OpenDeployment(t)
	require.NoError(t, w.Store.EndDeployment(t.Context(), store.Key{ProjectID: w.ProjectID, ID: broken}, store.DeploymentFailed, store.FailureBuild, "no"))
	for _, id := range []string{w.IDs["deployment"], broken.String(), w.OpenDeployment(t).String()} {
		apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeNothingToOverride, w.Project, key, http.MethodPost, "/deployments/"+id+"/deploy-anyway", "")
	}
}

// The call returns once the deployment has started or the client has disconnected.
func TestCreateDeployment_WaitsForStart(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	w.Server.Service.ReadyTimeout = time.Hour
	w.Server.Service.Client = interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			d, ok := o.(*v1alpha1.Deployment)
			if !ok {
				return nil
			}
			_, err := w.RecordDeployment(ctx, d.DeepCopy())
			return err
		},
	})
	superseded := w.OpenDeployment(t).String()
	key := w.CreateKey(t, nil)
	made := w.CreateDeployment(t, key, "/deployments?environment_id="+w.IDs["environment"], "", http.StatusCreated)
	_, err := w.Store.Deployment(t.Context(), store.Key{ProjectID: w.ProjectID, ID: uuid.MustParse(made.ID)})
	require.NoError(t, err)
	require.Equal(t, deployments.DeploymentStatus("cancelled"), w.GetDeployment(t, key, superseded).Status)
}
