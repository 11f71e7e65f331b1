// SPDX-License-Identifier: Apache-2.0

// Package layout defines the folders and files of a cluster below one state folder, its addresses and its ports.
package layout

import (
	"fmt"
	"path/filepath"
)

// The network of the node. The node, kube-apiserver and CoreDNS use the bridge's address, so that no port is open to the
// outside.
const (
	Bridge         = "cni0"
	BridgeMAC      = "0a:58:0a:f4:00:01" // fixed: a bridge else takes that of its newest port
	BridgeAddress  = "10.244.0.1"
	BridgePrefix   = BridgeAddress + "/24"
	PodSubnet      = "10.244.0.0/24" // of this one node
	ClusterSubnet  = "10.244.0.0/16"
	ServiceSubnet  = "10.96.0.0/16"
	ServiceAPI     = "10.96.0.1" // the first of ServiceSubnet, by definition
	ServiceDNS     = "10.96.0.10"
	Domain         = "cluster.local"
	Node           = "devcluster"
	NATTable       = "agentplatform-devcluster" // of nftables, family ip
	PauseImage     = "devcluster.local/pause:1"
	StorageClass   = "local"
	ContainerSpace = "k8s.io" // containerd's namespace of the kubelet
	// PlatformNamespace is the namespace of the platform under test.
	PlatformNamespace = "agentplatform-system"
)

// Ports on which components listen, all of them on loopback or on the bridge.
const (
	PortAPI        = 6443
	PortEtcd       = 12379 // not the default 2379, because another etcd may use it
	PortEtcdPeer   = 12380
	PortKubelet    = 10250
	PortHealthNode = 10248
	PortHealthDNS  = 18181
	PortProxy      = 10256
	PortProxyStats = 10249
	PortController = 10257
	PortScheduler  = 10259
)

// The components, each in a separate process.
const (
	Etcd              = "etcd"
	Containerd        = "containerd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	CoreDNS           = "coredns"
	Provisioner       = "provisioner"
)

// maxDir is the longest state folder in bytes: below it there are Unix sockets
// named by a SHA-256, and Linux allows 107 bytes for a socket's path.
const maxDir = 36

// ServerURL returns the URL of kube-apiserver.
func ServerURL() string { return fmt.Sprintf("https://%s:%d", BridgeAddress, PortAPI) }

// Dir is the absolute path of a state folder.
type Dir string

// NewDir returns the absolute path. It fails if the path is too long for the sockets below it.
func NewDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolving the state folder: %w", err)
	}
	if len(abs) > maxDir {
		return "", fmt.Errorf("the state folder %s has %d bytes, and sockets below it allow %d; choose a shorter one with --state-dir",
			abs, len(abs), maxDir)
	}
	return Dir(abs), nil
}

// Path joins names to the folder.
func (d Dir) Path(names ...string) string {
	return filepath.Join(append([]string{string(d)}, names...)...)
}

// Bin is the path of an executable.
func (d Dir) Bin(name string) string { return d.Path("bin", name) }

// Log is the path of a component's log.
func (d Dir) Log(component string) string { return d.Path("logs", component+".log") }

// Audit returns the path of the log of the platform's requests to kube-apiserver. Older parts are next to it: audit-<time>.log.
func (d Dir) Audit() string { return d.Path("logs", "audit.log") }

// PID is the path of a component's process record.
func (d Dir) PID(component string) string { return d.Path("pids", component) }

// Config is the path of a component's configuration.
func (d Dir) Config(name string) string { return d.Path("config", name) }

// Cert is the path of a certificate.
func (d Dir) Cert(name string) string { return d.Path("pki", name+".crt") }

// Key is the path of a private key.
func (d Dir) Key(name string) string { return d.Path("pki", name+".key") }

// ComponentKubeconfig is the path of a component's kubeconfig.
func (d Dir) ComponentKubeconfig(name string) string { return d.Path("pki", name+".kubeconfig") }

// Kubeconfig is the path of the administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.Path("kubeconfig") }

// Socket is the path of containerd's socket.
func (d Dir) Socket() string { return d.Path("run", "containerd.sock") }

// Volumes is the folder of provisioned volumes.
func (d Dir) Volumes() string { return d.Path("volumes") }

// Snapshot is the path of the record of the host before the cluster.
func (d Dir) Snapshot() string { return d.Path("before.json") }

// Engine returns the path of the file that names the engine of the cluster.
func (d Dir) Engine() string { return d.Path("engine") }
