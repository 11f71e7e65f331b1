// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/controllers/base"
)

// A pod mounts the platform's CA if there is one, and otherwise names no file.
func TestConnectDispatch_MountsCA(t *testing.T) {
	t.Parallel()
	var plain, trusting corev1.PodSpec
	var c corev1.Container
	base.PodOptions{DispatchURL: "http://dispatch:8081"}.ConnectDispatch(&plain, &c)
	require.Equal(t, []string{"--dispatch-url=http://dispatch:8081"}, c.Args)
	require.Empty(t, plain.Volumes)
	require.Empty(t, c.VolumeMounts)

	c = corev1.Container{}
	base.PodOptions{DispatchURL: "https://dispatch:8081", TrustDispatchCA: true}.ConnectDispatch(&trusting, &c)
	require.Equal(t, []string{
		"--dispatch-url=https://dispatch:8081", "--dispatch-ca-file=" + c.VolumeMounts[0].MountPath + "/" + base.DispatchCAKey,
	}, c.Args)
	require.Equal(t, trusting.Volumes[0].Name, c.VolumeMounts[0].Name)
	require.Equal(t, base.DispatchCA, trusting.Volumes[0].ConfigMap.Name)
}
