// SPDX-License-Identifier: Apache-2.0

// Package render writes the configuration of each component. Its functions are pure: their inputs are the layout and the
// detected properties of the host.
package render

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

type object = map[string]any

// Host holds the properties of the host that the configuration uses.
type Host struct {
	CNIDir     string // folder of the CNI plugins
	Runc       string // path of runc
	ResolvConf string // the host's resolver configuration, empty if there is none
}

// Files returns the content of each configuration file by its path.
func Files(dir layout.Dir, host Host) (map[string][]byte, error) {
	files := map[string][]byte{
		dir.Config("containerd.toml"): []byte(containerd(dir, host)),
		dir.Config("Corefile"):        []byte(corefile(dir, host)),
	}
	for path, value := range map[string]object{
		dir.Config("kubelet.yaml"):               kubelet(dir, host),
		dir.Config("kube-proxy.yaml"):            proxyConfig(dir),
		dir.Config("cni/10-devcluster.conflist"): cniConfig(dir),
		dir.Config("audit.yaml"):                 auditPolicy(),
	} {
		content, err := json.MarshalIndent(value, "", "  ") // JSON is YAML too
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", path, err)
		}
		files[path] = append(content, '\n')
	}
	return files, nil
}

// Write writes the files that Files returns.
func Write(dir layout.Dir, host Host) error {
	files, err := Files(dir, host)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making a folder of configuration: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return nil
}

// kubelet keeps everything below the state folder and leaves the host's
// iptables alone.
func kubelet(dir layout.Dir, host Host) object {
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": layout.BridgeAddress, "port": layout.PortKubelet,
		"healthzBindAddress": "127.0.0.1", "healthzPort": layout.PortHealthNode,
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": dir.Cert("ca")},
		},
		"authorization":            object{"mode": "Webhook"},
		"tlsCertFile":              dir.Cert("kubelet-server"),
		"tlsPrivateKeyFile":        dir.Key("kubelet-server"),
		"containerRuntimeEndpoint": "unix://" + dir.Socket(),
		"clusterDNS":               []string{layout.ServiceDNS},
		"clusterDomain":            layout.Domain,
		"resolvConf":               host.ResolvConf,
		"podLogsDir":               dir.Path("pod-logs"),
		"volumePluginDir":          dir.Path("volume-plugins"),
		"cgroupDriver":             "cgroupfs",
		"failCgroupV1":             false, // hosts with cgroup v1 or both still exist
		"failSwapOn":               false,
		"makeIPTablesUtilChains":   false,
		"protectKernelDefaults":    false,
		"oomScoreAdj":              0,
		// Images are loaded by hand and cannot be pulled again: never collect them.
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"evictionHard": object{
			"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%",
		},
	}
}

// auditPolicy records only the requests of the platform's programs, without bodies, so that a test can compare them with the
// programs' roles.
func auditPolicy() object {
	return object{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"omitStages":        []string{"RequestReceived"},
		"omitManagedFields": true,
		"rules": []object{
			{"level": "Metadata", "userGroups": []string{"system:serviceaccounts:" + layout.PlatformNamespace}},
			{"level": "None"},
		},
	}
}

func proxyConfig(dir layout.Dir) object {
	return object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "clusterCIDR": layout.ClusterSubnet, "hostnameOverride": layout.Node,
		"clientConnection":   object{"kubeconfig": dir.ComponentKubeconfig(layout.Proxy)},
		"healthzBindAddress": fmt.Sprintf("127.0.0.1:%d", layout.PortProxy),
		"metricsBindAddress": fmt.Sprintf("127.0.0.1:%d", layout.PortProxyStats),
		"oomScoreAdj":        0,
		// Zeros keep the host's settings of connection tracking.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
}

// cniConfig has no masquerading: the plugin's needs iptables rules for each pod, and
// one rule of nftables does for all of them.
func cniConfig(dir layout.Dir) object {
	return object{
		"cniVersion": "1.0.0", "name": "devcluster",
		"plugins": []object{
			{
				"type": "bridge", "bridge": layout.Bridge, "isGateway": true, "ipMasq": false, "hairpinMode": true,
				"ipam": object{
					"type": "host-local", "dataDir": dir.Path("cni"),
					"ranges": [][]object{{{"subnet": layout.PodSubnet, "gateway": layout.BridgeAddress}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}, "snat": true},
		},
	}
}

func containerd(dir layout.Dir, host Host) string {
	return strings.NewReplacer("{{root}}", dir.Path("containerd"), "{{state}}", dir.Path("run", "containerd"),
		"{{socket}}", dir.Socket(), "{{shims}}", dir.Path("run", "s"), "{{opt}}", dir.Path("run", "opt"),
		"{{pause}}", layout.PauseImage, "{{runc}}", host.Runc, "{{runcRoot}}", dir.Path("run", "runc"),
		"{{cniDir}}", host.CNIDir, "{{cniConf}}", dir.Config("cni")).Replace(containerdConfig)
}

// containerdConfig keeps all paths below the state folder; the plugins that
// would write elsewhere are off. Without restrict_oom_score_adj runc dies
// where CAP_SYS_RESOURCE is missing.
const containerdConfig = `version = 4
root = '{{root}}'
state = '{{state}}'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.image-verifier.v1.bindir']

[plugins.'io.containerd.server.v1.grpc']
  address = '{{socket}}'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '{{socket}}.ttrpc'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{shims}}'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{opt}}'
[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{{pause}}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = []
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{{runc}}'
  Root = '{{runcRoot}}'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{{cniDir}}']
  conf_dir = '{{cniConf}}'
`

// corefile serves the cluster's names and forwards all other names to the host's resolvers, if it has any.
func corefile(dir layout.Dir, host Host) string {
	forward := ""
	if host.ResolvConf != "" {
		forward = "    forward . " + host.ResolvConf + "\n"
	}
	return fmt.Sprintf(`.:53 {
    bind %s
    errors
    ready 127.0.0.1:%d
    kubernetes %s in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }
    cache 5
%s}
`, layout.BridgeAddress, layout.PortHealthDNS, layout.Domain, dir.ComponentKubeconfig(layout.CoreDNS), forward)
}
