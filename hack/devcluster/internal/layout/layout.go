// SPDX-License-Identifier: Apache-2.0

// Package layout says where everything of a cluster is: its folders and files
// below one state folder, its addresses and its ports.
package layout

import (
	"fmt"
	"path/filepath"
)

// The network of the node. The bridge's address is also the node's and that of
// kube-apiserver and CoreDNS, so that nothing listens to the outside.
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
	// PlatformNamespace is where the platform under test is installed.
	PlatformNamespace = "agentplatform-system"
)

// Ports on which components listen, all of them on loopback or on the bridge.
const (
	PortAPI        = 6443
	PortEtcd       = 12379 // not the usual 2379: another etcd may be there
	PortEtcdPeer   = 12380
	PortKubelet    = 10250
	PortHealthNode = 10248
	PortHealthDNS  = 18181
	PortProxy      = 10256
	PortProxyStats = 10249
	PortController = 10257
	PortScheduler  = 10259
)

// The components, each a process of its own.
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

// ServerURL is where kube-apiserver answers.
func ServerURL() string { return fmt.Sprintf("https://%s:%d", BridgeAddress, PortAPI) }

// Dir is the absolute path of a state folder.
type Dir string

// NewDir makes path absolute. It fails for a path too long for the sockets
// below it.
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

// Audit is the path of what the platform asked kube-apiserver. Older parts of
// it lie beside it: audit-<time>.log.
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

// Engine is the path of the record of what runs the cluster.
func (d Dir) Engine() string { return d.Path("engine") }
