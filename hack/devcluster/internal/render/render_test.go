// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

var host = Host{CNIDir: "/usr/lib/cni", Runc: "/usr/sbin/runc", ResolvConf: "/etc/resolv.conf"}

func TestRender_WritesBelowStateFolder(t *testing.T) {
	t.Parallel()
	files, err := Files("/var/tmp/c", host)
	require.NoError(t, err)
	require.Len(t, files, 6)
	for path, content := range files {
		require.True(t, strings.HasPrefix(path, "/var/tmp/c/config/"), path)
		require.NotContains(t, string(content), "{{", "%s has a placeholder left", path)
		if strings.HasSuffix(path, ".toml") || filepath.Base(path) == "Corefile" {
			continue
		}
		require.True(t, json.Valid(content), path)
	}
}

func TestContainerd_WritesBelowStateFolder(t *testing.T) {
	t.Parallel()
	got := containerd("/var/tmp/c", host)
	for _, want := range []string{
		"root = '/var/tmp/c/containerd'", "state = '/var/tmp/c/run/containerd'", "address = '/var/tmp/c/run/containerd.sock'",
		"socket_dir = '/var/tmp/c/run/s'", "Root = '/var/tmp/c/run/runc'", "BinaryName = '/usr/sbin/runc'",
		"sandbox = 'devcluster.local/pause:1'", "restrict_oom_score_adj = true", "bin_dirs = ['/usr/lib/cni']",
	} {
		require.Contains(t, got, want)
	}
}

func TestAPIServer_LogsPlatformRequests(t *testing.T) {
	t.Parallel()
	files, err := Files("/var/tmp/c", host)
	require.NoError(t, err)
	require.Contains(t, string(files["/var/tmp/c/config/audit.yaml"]), "system:serviceaccounts:agentplatform-system")
	for _, c := range Components("/var/tmp/c") {
		if c.Name == layout.APIServer {
			require.Contains(t, c.Args, "--audit-policy-file=/var/tmp/c/config/audit.yaml")
			require.Contains(t, c.Args, "--audit-log-path=/var/tmp/c/logs/audit.log")
			require.Contains(t, c.Args, "--audit-log-maxbackup=8")
		}
	}
}

func TestCorefile_ForwardsToResolver(t *testing.T) {
	t.Parallel()
	require.Contains(t, corefile("/var/tmp/c", host), "forward . /etc/resolv.conf")
	require.NotContains(t, corefile("/var/tmp/c", Host{}), "forward")
}

func TestComponents_StartInOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range Components("/var/tmp/c") {
		names = append(names, c.Name)
		for _, listen := range c.Listen {
			require.NotContains(t, listen, "0.0.0.0")
		}
	}
	require.Equal(t, []string{
		layout.Etcd, layout.Containerd, layout.APIServer, layout.ControllerManager, layout.Scheduler,
		layout.Kubelet, layout.Proxy, layout.CoreDNS, layout.Provisioner,
	}, names)
}

func TestListenAddresses_AreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, c := range Components("/var/tmp/c") {
		for _, listen := range c.Listen {
			require.Empty(t, seen[listen], "%s of %s", listen, c.Name)
			seen[listen] = c.Name
		}
	}
}
