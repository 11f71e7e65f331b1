// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// requireCode says that a call was answered with a status and a code.
func requireCode(t testing.TB, status int, code httpserver.Code, w *world, key, method, path, body string, headers ...string) Problem {
	t.Helper()
	got := w.ask(t, key, method, path, body, headers...)
	require.Equal(t, status, got.Code, got.Body)
	p := decode[Problem](t, got.Body.Bytes())
	require.Equal(t, code, p.Code, got.Body)
	return p
}

// deployed asks for a deployment and returns it.
func (w *world) deployed(t testing.TB, key, path, body string, status int, headers ...string) Deployment {
	t.Helper()
	got := w.ask(t, key, http.MethodPost, path, body, headers...)
	require.Equal(t, status, got.Code, got.Body)
	d := decode[Deployment](t, got.Body.Bytes())
	require.Equal(t, "/v1/projects/"+w.projectID.String()+"/deployments/"+d.ID, got.Header().Get("Location"))
	return d
}

func (w *world) shownDeployment(t testing.TB, key, id string) Deployment {
	t.Helper()
	status, body := w.call(t, key, http.MethodGet, "/deployments/"+id, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	return decode[Deployment](t, body)
}

// ok asks for something that is answered with ok, and returns what ok says.
func (w *world) ok(t testing.TB, key, path string, headers ...string) bool {
	t.Helper()
	got := w.ask(t, key, http.MethodPost, path, "", headers...)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	return decode[Done](t, got.Body.Bytes()).OK
}

func TestADeploymentIsCreated(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments?environment_id="+w.ids["environment"]
	commit := strings.Repeat("c", 40)
	for body, want := range map[string]DeploymentSource{
		"":                              {Type: "git"},
		"null":                          {Type: "git"},
		"{}":                            {Type: "git"},
		`{"commit":null,"branch":null}`: {Type: "git"},
		`{"commit":"` + commit + `"}`:   {Type: "git", Commit: &commit},
		`{"branch":"release/1"}`:        {Type: "git", Branch: opt("release/1")},
	} {
		t.Run(body, func(t *testing.T) {
			made := w.deployed(t, key, path, body, http.StatusCreated)
			require.Equal(t, DeploymentStatus("pending"), made.Status)
			require.Equal(t, want, made.Source)
			o := w.deploymentObject(t, made.ID)
			require.Regexp(t, `^production-[a-z0-9]{5}$`, o.Name)
			require.Equal(t, v1alpha1.ManagedBy, o.Labels[v1alpha1.LabelManagedBy], "it is pruned some day")
			require.EqualValues(t, "production", o.Spec.Environment)
			require.Equal(t, made, w.shownDeployment(t, key, made.ID), "although the store has not heard of it")
			_, list := w.call(t, key, http.MethodGet, path, "")
			require.Contains(t, string(list), made.ID)
			_, err := w.begin(t.Context(), o)
			require.NoError(t, err)
			_, list = w.call(t, key, http.MethodGet, path, "")
			require.Equal(t, 1, strings.Count(string(list), `"id":"`+made.ID), "now that it has")
			require.Equal(t, want, w.shownDeployment(t, key, made.ID).Source)
		})
	}
}

// TestADeploymentIsCreatedOnce: under its key, and no other one by it.
func TestADeploymentIsCreatedOnce(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments?environment_id="+w.ids["environment"]
	made := w.deployed(t, key, path, `{"branch":"main"}`, http.StatusCreated, "Idempotency-Key", "k")
	require.Regexp(t, `^deployment-[a-z0-9]{16}$`, w.deploymentObject(t, made.ID).Name)
	require.Equal(t, made, w.deployed(t, key, path, `{"branch":"main"}`, http.StatusCreated, "Idempotency-Key", "k"))
	requireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.world, key, http.MethodPost, path, `{"branch":"other"}`, "Idempotency-Key", "k")
	again := w.deployed(t, key, "/deployments/"+w.ids["deployment"]+"/redeploy", "", http.StatusOK, "Idempotency-Key", "k")
	require.NotEqual(t, made.ID, again.ID, "a key is one of its call")
	require.Equal(t, again, w.deployed(t, key, "/deployments/"+w.ids["deployment"]+"/redeploy", "", http.StatusOK, "Idempotency-Key", "k"))
}

func TestDeploymentsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments?environment_id="+w.ids["environment"]
	for body, location := range map[string]string{
		`{"commit":"abc"}`:     "body.commit",
		`{"branch":"a..b"}`:    "body.branch",
		`{"branch":""}`:        "body.branch",
		`{"skip_tests":true}`:  "body.skip_tests",
		`{"skip_tests":false}`: "body.skip_tests",
	} {
		t.Run(body, func(t *testing.T) {
			got := w.ask(t, key, http.MethodPost, path, body)
			requireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	status, answer := w.call(t, key, http.MethodGet, "/deployments/"+w.ids["deployment"]+"/test-runs?convert_costs_to=GBP", "")
	require.Contains(t, requireField(t, status, answer, "query.convert_costs_to").Message, "EUR")
	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	unbegun := w.deployed(t, key, path, "", http.StatusCreated)
	for _, id := range []string{w.ids["deployment"], unbegun.ID} {
		for _, call := range []string{"POST cancel", "POST activate", "POST redeploy", "POST deploy-anyway", "GET logs", "GET test-runs", "GET "} {
			method, what, _ := strings.Cut(call, " ")
			at := strings.TrimSuffix("/deployments/"+id+"/"+what, "/")
			requireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.world, limited, method, at, "")
			requireCode(t, http.StatusNotFound, httpserver.CodeNotFound, w.world, key, method, strings.Replace(at, id, uuid.NewString(), 1), "")
		}
	}
	requireCode(t, http.StatusForbidden, httpserver.CodeForbidden, w.world, limited, http.MethodPost, path, "")

	e := w.world.stored(t, w.ids["environment"])
	v1alpha1.MarkStalled(e, v1alpha1.ReasonLimitReached, "the project has too many environments")
	require.NoError(t, w.client.Status().Update(t.Context(), e))
	p := requireCode(t, http.StatusConflict, httpserver.CodeConflict, w.world, key, http.MethodPost, path, "")
	require.Contains(t, p.Detail, "too many environments")

	project := w.chosenProject(t)
	project.Spec.Git = nil
	require.NoError(t, w.client.Update(t.Context(), project))
	requireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.world, key, http.MethodPost, path, "")
	requireCode(t, http.StatusBadRequest, httpserver.CodeNoGit, w.world, key, http.MethodPost, "/deployments/"+w.ids["deployment"]+"/redeploy", "")
}

// TestADeploymentThatIsOpenSaysWhatItWaitsFor: in the words of its controller.
func TestADeploymentThatIsOpenSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, id := w.key(t, nil), w.building(t).String()
	o := w.deploymentObject(t, id)
	o.MarkBuilding(v1alpha1.StepFetching)
	o.MarkBuildBlocked("no node has room")
	require.NoError(t, w.client.Status().Update(t.Context(), o))
	require.Contains(t, *w.shownDeployment(t, key, id).Message, "no node has room")
	for phase, want := range map[store.DeploymentPhase]string{store.PhasePacking: "validating and packing", store.PhaseTesting: "running the tests"} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			require.NoError(t, w.db.ReportBuild(t.Context(), store.Key{ProjectID: w.projectID, ID: uuid.MustParse(id)}, store.BuildReport{Phase: phase}))
			shown := w.shownDeployment(t, key, id)
			require.EqualValues(t, phase, *shown.Phase.Value)
			require.Contains(t, *shown.Message, want, "the object is behind")
		})
	}
	require.NoError(t, w.client.Delete(t.Context(), o))
	require.Nil(t, w.shownDeployment(t, key, id).Message)
}

func TestABuildingDeploymentIsCancelled(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, id := w.key(t, nil), w.building(t).String()
	path := "/deployments/" + id + "/cancel"
	require.True(t, w.ok(t, key, path, "Idempotency-Key", "k"))
	require.True(t, w.deploymentObject(t, id).Spec.Cancel)
	require.Equal(t, DeploymentStatus("cancelled"), w.shownDeployment(t, key, id).Status)
	require.True(t, w.ok(t, key, path, "Idempotency-Key", "k"), "a repetition is answered as the first call")
	require.False(t, w.ok(t, key, path), "it is not building any more")
	requireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.world, key, http.MethodPost,
		"/deployments/"+w.building(t).String()+"/cancel", "", "Idempotency-Key", "k")
}

// TestWhatIsNotBuildingIsNotCancelled: nothing is written then.
func TestWhatIsNotBuildingIsNotCancelled(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	pending := w.deployed(t, key, "/deployments?environment_id="+w.ids["environment"], "", http.StatusCreated).ID
	for _, id := range []string{w.ids["deployment"], pending, w.failTests(t).String()} {
		require.False(t, w.ok(t, key, "/deployments/"+id+"/cancel"))
		o := w.deploymentObject(t, id)
		require.False(t, o.Spec.Cancel)
		require.NoError(t, w.client.Delete(t.Context(), o))
	}
	gone := w.building(t).String()
	require.NoError(t, w.client.Delete(t.Context(), w.deploymentObject(t, gone)))
	require.False(t, w.ok(t, key, "/deployments/"+gone+"/cancel"), "it ends by itself")
}

// TestACancellationThatCameTooLateSaysSo: the deployment was deployed in the meantime.
func TestACancellationThatCameTooLateSaysSo(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, id := w.key(t, nil), w.building(t)
	w.server.client = interceptor.NewClient(w.alone, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			require.NoError(t, w.db.EndDeployment(ctx, store.Key{ProjectID: w.projectID, ID: id}, store.DeploymentFailed, store.FailureBuild, "no"))
			return c.Patch(ctx, o, p, opts...)
		},
	})
	require.False(t, w.ok(t, key, "/deployments/"+id.String()+"/cancel"))
}

func TestCodeIsDeployedAgain(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	made := w.deployed(t, key, "/deployments/"+w.ids["deployment"]+"/redeploy", "", http.StatusOK)
	require.Equal(t, w.ids["deployment"], *made.RedeployOf)
	require.Equal(t, w.ids["environment"], made.EnvironmentID)
	git := w.deploymentObject(t, made.ID).Spec.Source.Git
	require.Equal(t, v1alpha1.DeploymentGitSource{Branch: "main", Commit: v1alpha1.GitCommit(strings.Repeat("a", 40))}, *git, "what was the head of main")
	unfetched := w.building(t).String()
	made = w.deployed(t, key, "/deployments/"+unfetched+"/redeploy", "", http.StatusOK)
	require.Equal(t, v1alpha1.DeploymentGitSource{Branch: "main"}, *w.deploymentObject(t, made.ID).Spec.Source.Git, "what was asked for")

	require.NoError(t, w.client.Delete(t.Context(), w.world.stored(t, w.ids["environment"])))
	requireCode(t, http.StatusConflict, httpserver.CodeGone, w.world, key, http.MethodPost, "/deployments/"+w.ids["deployment"]+"/redeploy", "")
	requireCode(t, http.StatusConflict, httpserver.CodeGone, w.world, key, http.MethodPost, "/deployments/"+w.ids["deployment"]+"/activate", "")
}

// TestRedeploy_KeepsSkipFlags: a version that went live by deploy-anyway can be deployed again.
func TestRedeploy_KeepsSkipFlags(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
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
			of := &v1alpha1.Deployment{ObjectMeta: w.meta("skips-" + test.name), Spec: v1alpha1.DeploymentSpec{
				Environment: "production", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{}},
				SkipTests: test.tests, SkipFailedConnectors: test.connectors,
			}}
			w.create(t, of)
			begun, err := w.begin(t.Context(), of)
			require.NoError(t, err)
			made := w.deployed(t, key, "/deployments/"+begun.ID.String()+"/redeploy", "", http.StatusOK)
			require.Equal(t, test.tests, made.SkipTests)
			require.Equal(t, test.connectors, made.SkipFailedConnectors)
			spec := w.deploymentObject(t, made.ID).Spec
			require.Equal(t, test.tests, spec.SkipTests)
			require.Equal(t, test.connectors, spec.SkipFailedConnectors)
		})
	}
}

// TestWhatFailedIsDeployedAnyway: without what failed, and without what was overridden before.
func TestWhatFailedIsDeployedAnyway(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	made := w.deployed(t, key, "/deployments/"+w.failTests(t).String()+"/deploy-anyway", "", http.StatusOK)
	require.True(t, made.SkipTests)
	require.False(t, made.SkipFailedConnectors)
	o := w.deploymentObject(t, made.ID)
	require.True(t, o.Spec.SkipTests)
	begun, err := w.begin(t.Context(), o)
	require.NoError(t, err)
	requireCode(t, http.StatusBadRequest, httpserver.CodeNothingToOverride, w.world, key, http.MethodPost, "/deployments/"+made.ID+"/deploy-anyway", "")
	require.NoError(t, w.db.EndDeployment(t.Context(), begun, store.DeploymentFailed, store.FailureConnectors, "a name is taken"))
	made = w.deployed(t, key, "/deployments/"+made.ID+"/deploy-anyway", "", http.StatusOK)
	require.True(t, made.SkipTests, "they would fail again")
	require.True(t, made.SkipFailedConnectors)
	require.True(t, w.deploymentObject(t, made.ID).Spec.SkipFailedConnectors)

	broken := w.building(t)
	require.NoError(t, w.db.EndDeployment(t.Context(), store.Key{ProjectID: w.projectID, ID: broken}, store.DeploymentFailed, store.FailureBuild, "no"))
	for _, id := range []string{w.ids["deployment"], broken.String(), w.building(t).String()} {
		requireCode(t, http.StatusBadRequest, httpserver.CodeNothingToOverride, w.world, key, http.MethodPost, "/deployments/"+id+"/deploy-anyway", "")
	}
}

// TestADeploymentIsAnsweredOnceItHasBegun: not before, as long as somebody is there.
func TestADeploymentIsAnsweredOnceItHasBegun(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	w.server.patience = time.Hour
	w.server.client = interceptor.NewClient(w.alone, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			d, ok := o.(*v1alpha1.Deployment)
			if !ok {
				return nil
			}
			_, err := w.begin(ctx, d.DeepCopy())
			return err
		},
	})
	superseded := w.building(t).String()
	key := w.key(t, nil)
	made := w.deployed(t, key, "/deployments?environment_id="+w.ids["environment"], "", http.StatusCreated)
	_, err := w.db.Deployment(t.Context(), store.Key{ProjectID: w.projectID, ID: uuid.MustParse(made.ID)})
	require.NoError(t, err)
	require.Equal(t, DeploymentStatus("cancelled"), w.shownDeployment(t, key, superseded).Status)
}
