// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// A version that was live is rebuilt from its commit, even if the branch has moved.
func TestCommit_RebuildKeepsCommit(t *testing.T) {
	t.Parallel()
	asked := v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: "aaaa"}}
	for name, c := range map[string]struct {
		source v1alpha1.DeploymentSource
		status v1alpha1.DeploymentStatus
		want   string
	}{
		"the spec names a commit":                         {asked, v1alpha1.DeploymentStatus{Live: true, Commit: "bbbb"}, "aaaa"},
		"the status has the commit of a live deployment":  {v1alpha1.DeploymentSource{}, v1alpha1.DeploymentStatus{Live: true, Commit: "bbbb"}, "bbbb"},
		"the status has the commit of another deployment": {v1alpha1.DeploymentSource{}, v1alpha1.DeploymentStatus{Commit: "bbbb"}, ""},
		"no commit in spec and status":                    {v1alpha1.DeploymentSource{}, v1alpha1.DeploymentStatus{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &deploymentState{Deployment: &v1alpha1.Deployment{Spec: v1alpha1.DeploymentSpec{Source: c.source}, Status: c.status}}
			require.Equal(t, c.want, v.requestedCommit())
		})
	}
}

// The Job of a build that the store does not have is replaced.
func TestStartBuild_ReplacesForgottenJob(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, batchv1.AddToScheme(scheme))
	for status, stays := range map[store.DeploymentStatus]bool{store.DeploymentPending: false, store.DeploymentBuilding: true} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "v1", UID: "u"}}
			job := jobReference(d)
			job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.GroupVersion.WithKind("Deployment"))}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).Build()
			r := &Reconciler{Base: &base.Base{Client: c}}
			got, err := r.startBuild(t.Context(), &deploymentState{Deployment: d, outcome: store.Deployment{Status: status}})
			require.NoError(t, err)
			require.Equal(t, stays, got != nil, status)
			err = c.Get(t.Context(), client.ObjectKeyFromObject(job), job)
			require.Equal(t, stays, !apierrors.IsNotFound(err), status)
		})
	}
}

// outcomes is a store with the same outcome for every deployment.
type outcomes struct {
	Store
	outcome store.Deployment
}

func (outcomes) PutToken(context.Context, store.Token) error { return nil }

func (o outcomes) Deployment(context.Context, store.Key) (store.Deployment, error) {
	return o.outcome, nil
}

// A Job completes after the store has the outcome. A store without it was restored, so the build starts
// again.
func TestCheckOutcome_RebuildsForgottenOutcome(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, batchv1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	for name, c := range map[string]struct {
		condition batchv1.JobConditionType
		outcome   store.Deployment
		stays     bool
	}{
		"Job suspended, deployment building": {batchv1.JobSuspended, store.Deployment{Status: store.DeploymentBuilding}, true},
		"Job complete, bundle stored":        {batchv1.JobComplete, store.Deployment{Status: store.DeploymentBuilding, Built: true}, true},
		"Job complete, deployment cancelled": {batchv1.JobComplete, store.Deployment{Status: store.DeploymentCancelled}, true},
		"Job complete, no bundle stored":     {batchv1.JobComplete, store.Deployment{Status: store.DeploymentBuilding}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "v1", UID: "u"}}
			job := jobReference(d)
			job.Status.Conditions = []batchv1.JobCondition{{Type: c.condition, Status: corev1.ConditionTrue}}
			kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).Build()
			r := &Reconciler{Base: &base.Base{Client: kube, Reader: kube}, Store: outcomes{outcome: c.outcome}}
			v := &deploymentState{Deployment: d, outcome: store.Deployment{Status: store.DeploymentBuilding}}
			require.NoError(t, r.checkJob(t.Context(), v, job))
			err := kube.Get(t.Context(), client.ObjectKeyFromObject(job), job)
			require.Equal(t, c.stays, !apierrors.IsNotFound(err))
		})
	}
}
