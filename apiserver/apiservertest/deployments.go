// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/store"
)

// RecordDeployment records the deployment of an object in the store, as its controller does.
func (p *Project) RecordDeployment(ctx context.Context, o *v1alpha1.Deployment) (store.Key, error) {
	id, err := v1alpha1.ObjectID(p.ProjectID, o)
	if err != nil {
		return store.Key{}, err
	}
	digest, err := o.Spec.Fingerprint()
	if err != nil {
		return store.Key{}, err
	}
	spec := store.DeploymentSpec{
		Ref: p.ObjectRef(o), ID: id, ProjectID: p.ProjectID, Fingerprint: digest, SourceType: "git",
		EnvironmentID: v1alpha1.ProjectObjectID(p.ProjectID, store.KindEnvironment, string(o.Spec.Environment)),
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
	_, err = p.Store.BeginDeployment(ctx, spec)
	return spec.Key(), err
}

// Reconcile cancels or activates a deployment after a change of its spec, as its controller does.
func (p *Project) Reconcile(ctx context.Context, o *v1alpha1.Deployment) error {
	id, err := v1alpha1.ObjectID(p.ProjectID, o)
	if err != nil {
		return err
	}
	key := store.Key{ProjectID: p.ProjectID, ID: id}
	if d, err := p.Store.Deployment(ctx, key); err == nil && o.Spec.Cancel && !d.Status.Terminal() {
		return p.Store.EndDeployment(ctx, key, store.DeploymentCancelled, "", "cancelled by a request")
	}
	if !o.ActivationPending() {
		return nil
	}
	_, err = p.Store.Activate(ctx, store.Activation{Deployment: key, RequestedAt: &o.Spec.Activation.RequestedAt.Time})
	o.MarkActivation(v1alpha1.ActivationActivated, "")
	return err
}

// StartDeployment deploys the head of main to production and starts the build.
func (p *Project) StartDeployment(t testing.TB, name string) store.Key {
	t.Helper()
	o := &v1alpha1.Deployment{ObjectMeta: p.Meta(name), Spec: v1alpha1.DeploymentSpec{
		Environment: "production", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Branch: "main"}},
	}}
	p.Create(t, o)
	key, err := p.RecordDeployment(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, p.Store.StartBuild(t.Context(), key, ""))
	return key
}

// OpenDeployment starts a deployment and returns its ID.
func (p *ProjectWithHistory) OpenDeployment(t testing.TB) uuid.UUID {
	t.Helper()
	return p.StartDeployment(t, "building-"+uuid.NewString()[:8]).ID
}

// FailedDeployment starts a deployment with failed tests and returns its ID.
func (p *ProjectWithHistory) FailedDeployment(t testing.TB) uuid.UUID {
	t.Helper()
	key := p.StartDeployment(t, "failed-"+uuid.NewString()[:8])
	require.NoError(t, p.Store.FinishBuild(t.Context(), key, store.BuildResult{
		FailureReason: store.FailureTests, Message: "1 of 2 cases failed", TestResults: json.RawMessage(`[]`),
	}))
	return key.ID
}

// DeploymentObject reads the Deployment with an ID from Kubernetes. It returns nil if there is none.
func (p *Project) DeploymentObject(t testing.TB, id string) *v1alpha1.Deployment {
	t.Helper()
	var list v1alpha1.DeploymentList
	require.NoError(t, p.Client.List(t.Context(), &list, client.InNamespace(p.Namespace)))
	for i := range list.Items {
		if got, err := v1alpha1.ObjectID(p.ProjectID, &list.Items[i]); err == nil && got.String() == id {
			return &list.Items[i]
		}
	}
	return nil
}

// CreateDeployment creates a deployment by REST.
func (p *Project) CreateDeployment(t testing.TB, key, path, body string, status int, headers ...string) deployments.Deployment {
	t.Helper()
	got := p.Request(t, key, http.MethodPost, path, body, headers...)
	require.Equal(t, status, got.Code, got.Body)
	d := Decode[deployments.Deployment](t, got.Body.Bytes())
	require.Equal(t, "/v1/projects/"+p.ProjectID.String()+"/deployments/"+d.ID, got.Header().Get("Location"))
	return d
}

// GetDeployment reads a deployment by REST.
func (p *Project) GetDeployment(t testing.TB, key, id string) deployments.Deployment {
	t.Helper()
	status, body := p.Call(t, key, http.MethodGet, "/deployments/"+id, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	return Decode[deployments.Deployment](t, body)
}
