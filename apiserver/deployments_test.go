// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// begin records an object's deployment as its controller does.
func (w *world) begin(ctx context.Context, o *v1alpha1.Deployment) (store.Key, error) {
	id, err := v1alpha1.ObjectID(w.projectID, o)
	if err != nil {
		return store.Key{}, err
	}
	digest, err := o.Spec.Fingerprint()
	if err != nil {
		return store.Key{}, err
	}
	spec := store.DeploymentSpec{
		Ref: w.ref(o), ID: id, ProjectID: w.projectID, Fingerprint: digest, SourceType: "git",
		EnvironmentID: v1alpha1.ProjectObjectID(w.projectID, store.KindEnvironment, string(o.Spec.Environment)),
		SkipTests:     o.Spec.SkipTests, SkipFailedConnectors: o.Spec.SkipFailedConnectors,
	}
	if git := o.Spec.Source.Git; git != nil {
		spec.Branch, spec.Commit = string(git.Branch), string(git.Commit)
	} else {
		spec.SourceType, spec.UploadDigest = "upload", string(o.Spec.Source.Bundle.Digest)
	}
	if of, err := uuid.Parse(string(o.Spec.RedeployOf)); err == nil {
		spec.RedeployOf = &of
	}
	_, err = w.db.BeginDeployment(ctx, spec)
	return spec.Key(), err
}

// bringOn does what a controller does with a deployment whose spec was changed.
func (w *world) bringOn(ctx context.Context, o *v1alpha1.Deployment) error {
	id, err := v1alpha1.ObjectID(w.projectID, o)
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: w.projectID, ID: id}
	if d, err := w.db.Deployment(ctx, key); err == nil && o.Spec.Cancel && !d.Status.Terminal() {
		return w.db.EndDeployment(ctx, key, store.DeploymentCancelled, "", "cancelled by a request")
	}
	if !o.ActivationPending() {
		return nil
	}
	_, err = w.db.Activate(ctx, store.Activation{Deployment: key, RequestedAt: &o.Spec.Activation.RequestedAt.Time})
	o.MarkActivation(v1alpha1.ActivationActivated, "")
	return err
}

// start makes a deployment to production of the head of main, and begins its build.
func (w *world) start(t testing.TB, name string) store.Key {
	t.Helper()
	o := &v1alpha1.Deployment{ObjectMeta: w.meta(name), Spec: v1alpha1.DeploymentSpec{
		Environment: "production", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: "main"}},
	}}
	w.create(t, o)
	key, err := w.begin(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, w.db.StartBuild(t.Context(), key, ""))
	return key
}

// building is a deployment that no other call has ended.
func (p *past) building(t testing.TB) uuid.UUID {
	t.Helper()
	return p.start(t, "building-"+uuid.NewString()[:8]).ID
}

// failTests is a deployment whose tests failed.
func (p *past) failTests(t testing.TB) uuid.UUID {
	t.Helper()
	key := p.start(t, "failed-"+uuid.NewString()[:8])
	require.NoError(t, p.db.FinishBuild(t.Context(), key, store.BuildResult{
		FailureReason: store.FailureTests, Message: "1 of 2 cases failed", TestResults: json.RawMessage(`[]`),
	}))
	return key.ID
}

// deploymentObject is the object of a deployment as Kubernetes has it; nil where it is gone.
func (w *world) deploymentObject(t testing.TB, id string) *v1alpha1.Deployment {
	t.Helper()
	var list v1alpha1.DeploymentList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		if got, err := v1alpha1.ObjectID(w.projectID, &list.Items[i]); err == nil && got.String() == id {
			return &list.Items[i]
		}
	}
	return nil
}

// TestAConnectorThatNeverCameToBeHasNoID: one that was there before has it, whatever a deployment did.
func TestAConnectorThatNeverCameToBeHasNoID(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	idOfCode := func(name string) uuid.UUID {
		return v1alpha1.ProjectObjectID(w.projectID, store.KindConnector, "production."+name)
	}
	require.NoError(t, w.db.PutConnector(t.Context(), store.Connector{
		Ref: w.refOf(t, store.KindConnector, "production.kept"), ID: idOfCode("kept"), ProjectID: w.projectID,
		EnvironmentID: w.id(t, "environment"), Name: "kept", Type: "webhook", Mode: "sync", Enabled: true, Config: []byte("{}"),
	}))
	w.exec(t, `UPDATE deployments SET connector_results = $2 WHERE id = $1`, w.ids["deployment"], `[{"connector":"new","action":"created"},
		{"connector":"kept","action":"skipped"},{"connector":"kept","action":"failed"},{"connector":"never","action":"skipped"},{"connector":"never","action":"failed"}]`)
	id := func(name string) *string { return opt(idOfCode(name).String()) }
	_, body := w.call(t, key, http.MethodGet, "/deployments/"+w.ids["deployment"], "")
	one := decode[Deployment](t, body)
	_, body = w.call(t, key, http.MethodGet, "/deployments?environment_id="+w.ids["environment"], "")
	for _, d := range []DeploymentSummary{one.DeploymentSummary, decode[[]DeploymentItem](t, body)[0].DeploymentSummary} {
		var ids []*string
		for _, r := range d.ConnectorResults {
			ids = append(ids, r.ConnectorID)
		}
		require.Equal(t, []*string{id("new"), id("kept"), id("kept"), nil, nil}, ids)
	}
}
