// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

func TestStart_SharesControlPlane(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	require.Same(t, control, kube.Start(t))
	require.NotEqual(t, control.Namespace(t), control.Namespace(t))
	require.NotEmpty(t, control.Kubeconfig())
}

func TestStart_InstallsKinds(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Namespace: control.Namespace(t), Name: v1alpha1.ProjectName},
	}
	require.NoError(t, control.Client.Create(t.Context(), project))
	require.EqualValues(t, -1, project.Status.ObservedGeneration, "kstatus waits for the controller")
}

func TestUser_HasNoPermissions(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	c, err := client.New(control.User(t, "somebody"), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(c.List(t.Context(), &corev1.SecretList{})))
}
