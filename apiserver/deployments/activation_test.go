// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// activateSecond makes another deployment live, of the same bundle.
func activateSecond(t testing.TB, p *apiservertest.ProjectWithHistory) string {
	t.Helper()
	key := p.StartDeployment(t, "production-2")
	first, err := p.Store.Deployment(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "deployment")})
	require.NoError(t, err)
	require.NoError(t, p.Store.FinishBuild(t.Context(), key, store.BuildResult{BundleDigest: first.BundleDigest, Agents: first.Agents}))
	_, err = p.Store.Activate(t.Context(), store.Activation{Deployment: key})
	require.NoError(t, err)
	return key.ID.String()
}

func liveDeployment(t testing.TB, p *apiservertest.ProjectWithHistory) string {
	t.Helper()
	e, err := p.Store.Environment(t.Context(), store.Key{ProjectID: p.ProjectID, ID: p.ObjectID(t, "environment")})
	require.NoError(t, err)
	return e.LiveDeploymentID.String()
}

func TestActivateDeployment_MakesItLive(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, first, second := w.CreateKey(t, nil), w.IDs["deployment"], activateSecond(t, w)
	require.Equal(t, second, liveDeployment(t, w))
	for _, id := range []string{first, second, first, first, second} { // within one second, as likely as not
		require.True(t, requireDone(t, w.Project, key, "/deployments/"+id+"/activate"))
		require.Equal(t, id, liveDeployment(t, w))
	}
	require.False(t, w.DeploymentObject(t, first).Spec.Activation.Force)
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+first+"/activate?force=true", "Idempotency-Key", "k"))
	require.True(t, w.DeploymentObject(t, first).Spec.Activation.Force)
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+second+"/activate?force=false"))
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+first+"/activate?force=true", "Idempotency-Key", "k"))
	require.Equal(t, second, liveDeployment(t, w), "a repetition does nothing")
	apiservertest.RequireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.Project, key, http.MethodPost, "/deployments/"+first+"/activate", "", "Idempotency-Key", "k")
	apiservertest.RequireCode(t, http.StatusUnprocessableEntity, httpserver.CodeKeyReused, w.Project, key, http.MethodPost, "/deployments/"+second+"/activate?force=true", "", "Idempotency-Key", "k")
	for _, id := range []string{w.OpenDeployment(t).String(), w.FailedDeployment(t).String()} {
		apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeNotDeployed, w.Project, key, http.MethodPost, "/deployments/"+id+"/activate", "")
	}
}

// A pruned deployment can be activated: the facade creates its object again.
func TestActivateDeployment_RestoresPrunedObject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, first := w.CreateKey(t, nil), w.IDs["deployment"]
	now := time.Now()
	w.Server.Service.Now = func() time.Time { return now } // all within one second
	second := activateSecond(t, w)
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+first+"/activate"))
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+second+"/activate"))
	was := w.DeploymentObject(t, first)
	require.NoError(t, w.Client.Delete(t.Context(), was))
	require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, w.ObjectRef(was)))
	require.Equal(t, first, w.GetDeployment(t, key, first).ID, "the store knows it")
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+first+"/activate", "Idempotency-Key", "k"))
	require.Equal(t, first, liveDeployment(t, w))
	is := w.DeploymentObject(t, first)
	require.NotNil(t, is)
	require.NotEqual(t, was.UID, is.UID)
	require.Equal(t, was.Name, is.Name)
	require.Equal(t, was.Spec.Source, is.Spec.Source)
	require.Equal(t, v1alpha1.ManagedBy, is.Labels[v1alpha1.LabelManagedBy])
	_, err := w.RecordDeployment(t.Context(), is)
	require.NoError(t, err, "to the store it is the same one")

	require.NoError(t, w.Client.Delete(t.Context(), is))
	require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, w.ObjectRef(is)))
	require.True(t, requireDone(t, w.Project, key, "/deployments/"+first+"/activate", "Idempotency-Key", "k"))
	require.Nil(t, w.DeploymentObject(t, first), "a repetition does nothing")

	w.ExecuteSQL(t, `DELETE FROM bundles`)
	apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeBundleGone, w.Project, key, http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Nil(t, w.DeploymentObject(t, first))
}

// The response repeats the message of the controller.
func TestActivateDeployment_ReturnsReasonOfController(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, first := w.CreateKey(t, nil), w.IDs["deployment"]
	second := activateSecond(t, w)
	path := "/deployments/" + first + "/activate"
	for result, code := range map[v1alpha1.ActivationResult]httpserver.Code{
		v1alpha1.ActivationSuperseded:           httpserver.CodeSuperseded,
		v1alpha1.ActivationModelProviderMissing: httpserver.CodeModelProvider,
		v1alpha1.ActivationConnectorsFailed:     httpserver.CodeConnectorsFailed,
		v1alpha1.ActivationNotDeployed:          httpserver.CodeNotDeployed,
		v1alpha1.ActivationBundleGone:           httpserver.CodeBundleGone,
		v1alpha1.ActivationFailed:               httpserver.CodeConflict,
	} {
		t.Run(string(result), func(t *testing.T) {
			w.Server.Service.Client = interceptor.NewClient(w.FacadeClient, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if err := c.Patch(ctx, o, p, opts...); err != nil {
						return err
					}
					d := o.(*v1alpha1.Deployment)
					d.MarkActivation(result, "because of that")
					return w.Client.Status().Update(ctx, d)
				},
			})
			p := apiservertest.RequireCode(t, http.StatusConflict, code, w.Project, key, http.MethodPost, path, "", "Idempotency-Key", string(result))
			require.Contains(t, p.Detail, "because of that")
			apiservertest.RequireCode(t, http.StatusConflict, code, w.Project, key, http.MethodPost, path, "", "Idempotency-Key", string(result))
		})
	}
	w.Server.Service.Client = w.FacadeClient // nobody is there
	p := apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.Project, key, http.MethodPost, path, "", "Idempotency-Key", "k")
	require.Contains(t, p.Detail, "not complete")
	asked := w.DeploymentObject(t, first).Spec.Activation.RequestedAt
	require.Equal(t, second, liveDeployment(t, w))
	require.NoError(t, w.Reconcile(t.Context(), reconcileActivation(t, w.Project, first)))
	require.True(t, requireDone(t, w.Project, key, path, "Idempotency-Key", "k"), "the repetition learns of it")
	require.Equal(t, asked, w.DeploymentObject(t, first).Spec.Activation.RequestedAt, "and asks for nothing")
}

// reconcileActivation is an object whose activation its controller has carried out.
func reconcileActivation(t testing.TB, w *apiservertest.Project, id string) *v1alpha1.Deployment {
	t.Helper()
	o := w.DeploymentObject(t, id)
	require.NoError(t, w.Reconcile(t.Context(), o))
	require.NoError(t, w.Client.Status().Update(t.Context(), o))
	return o
}

// A repeated call waits for the same activation until another activation is requested.
func TestActivateDeployment_KeepsRequestUntilDone(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, first := w.CreateKey(t, nil), w.IDs["deployment"]
	second := activateSecond(t, w)
	now := time.Now().Add(time.Hour) // long after what is live
	w.Server.Service.Now = func() time.Time { return now }
	w.Server.Service.Client = w.FacadeClient // nobody is there
	ask := func(id, query string) (at time.Time) {
		now = now.Add(3 * time.Second)
		apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.Project, key, http.MethodPost, "/deployments/"+id+"/activate"+query, "")
		return w.DeploymentObject(t, id).Spec.Activation.RequestedAt.Time
	}
	asked := ask(first, "")
	require.Equal(t, asked, ask(first, ""))
	apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeNotInEffect, w.Project, key, http.MethodPost, "/deployments/"+first+"/activate", "", "Idempotency-Key", "k")
	require.Equal(t, asked, w.DeploymentObject(t, first).Spec.Activation.RequestedAt.Time, "whatever key it has")
	forced := ask(first, "?force=true")
	require.True(t, forced.After(asked), "force makes it another request")
	require.Equal(t, forced, ask(first, "?force=true"))
	require.True(t, w.DeploymentObject(t, first).Spec.Activation.Force)

	other := ask(second, "")
	again := ask(first, "?force=true")
	require.True(t, again.After(other), "the last word counts")
	require.Equal(t, again, ask(first, "?force=true"))

	reconcileActivation(t, w.Project, first)
	require.Equal(t, first, liveDeployment(t, w))
	require.True(t, ask(second, "").After(again), "the live deployment would supersede it")
	o := w.DeploymentObject(t, second)
	o.Spec.Activation = nil
	require.NoError(t, w.Client.Update(t.Context(), o))
	o = w.DeploymentObject(t, first)
	o.Status.Activation = nil // as of one that was restored
	require.NoError(t, w.Client.Status().Update(t.Context(), o))
	w.ExecuteSQL(t, `UPDATE environments SET live_activated_at = live_activated_at + 86400000000`)
	require.True(t, ask(first, "?force=true").After(again), "it is older than the live deployment")
}

// A GitOps controller would revert a field that it owns.
func TestActivateDeployment_RejectsGitOpsField(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	first := w.IDs["deployment"]
	activateSecond(t, w)
	o := w.DeploymentObject(t, first)
	before := o.DeepCopy()
	o.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Unix(1_700_000_000, 0))}
	require.NoError(t, w.Client.Patch(t.Context(), o, client.MergeFrom(before), client.FieldOwner("argocd-controller")))
	p := apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeGitOps, w.Project, w.CreateKey(t, nil), http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Contains(t, p.Detail, "argocd-controller owns spec.activation")
}

// A request in the future blocks activations, and the detail names the remedy.
func TestActivateDeployment_RejectsAfterFutureRequest(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	first := w.IDs["deployment"]
	second := activateSecond(t, w)
	o := w.DeploymentObject(t, first)
	o.Spec.Activation = &v1alpha1.DeploymentActivation{RequestedAt: metav1.NewTime(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))}
	o.MarkActivationAhead()
	require.NoError(t, w.Client.Update(t.Context(), o))
	p := apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeConflict, w.Project, w.CreateKey(t, nil), http.MethodPost, "/deployments/"+first+"/activate", "")
	require.Contains(t, p.Detail, "remove its spec.activation")
	require.Equal(t, second, liveDeployment(t, w))
}
