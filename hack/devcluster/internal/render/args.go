// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// Component is a process of the cluster.
type Component struct {
	Name   string   // also the name of its executable in Dir.Bin, except for the provisioner
	Bin    string   // name of the executable
	Args   []string // after its name
	Listen []string // TCP addresses that must be free before it starts
}

// Components returns all components in start order.
func Components(dir layout.Dir) []Component {
	return []Component{
		etcdComponent(dir),
		{Name: layout.Containerd, Bin: "containerd", Args: []string{"--config=" + dir.Config("containerd.toml")}},
		apiServer(dir),
		controllerManager(dir),
		scheduler(dir),
		{Name: layout.Kubelet, Bin: layout.Kubelet, Args: []string{
			"--config=" + dir.Config("kubelet.yaml"),
			"--kubeconfig=" + dir.ComponentKubeconfig(layout.Kubelet),
			"--root-dir=" + dir.Path("kubelet"),
			"--cert-dir=" + dir.Path("kubelet", "pki"),
			"--hostname-override=" + layout.Node,
			"--node-ip=" + layout.BridgeAddress,
		}, Listen: []string{address(layout.BridgeAddress, layout.PortKubelet), loopback(layout.PortHealthNode)}},
		{Name: layout.Proxy, Bin: layout.Proxy, Args: []string{"--config=" + dir.Config("kube-proxy.yaml")},
			Listen: []string{loopback(layout.PortProxy), loopback(layout.PortProxyStats)}},
		{Name: layout.CoreDNS, Bin: layout.CoreDNS, Args: []string{"-conf=" + dir.Config("Corefile")},
			Listen: []string{address(layout.BridgeAddress, 53), loopback(layout.PortHealthDNS)}},
		{Name: layout.Provisioner, Bin: "devcluster",
			Args: []string{"provision", "--state-dir=" + string(dir)}},
	}
}

func address(host string, port int) string { return fmt.Sprintf("%s:%d", host, port) }

func loopback(port int) string { return address("127.0.0.1", port) }

// etcdComponent does not fsync. A test cluster does not have to survive a power cut, and fsync would disturb measurements on the same
// disk.
func etcdComponent(dir layout.Dir) Component {
	client, peer := "https://"+loopback(layout.PortEtcd), "https://"+loopback(layout.PortEtcdPeer)
	return Component{Name: layout.Etcd, Bin: layout.Etcd, Args: []string{
		"--name=devcluster", "--data-dir=" + dir.Path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=devcluster=" + peer,
		"--cert-file=" + dir.Cert("etcd"), "--key-file=" + dir.Key("etcd"),
		"--trusted-ca-file=" + dir.Cert("ca"), "--client-cert-auth",
		"--peer-cert-file=" + dir.Cert("etcd"), "--peer-key-file=" + dir.Key("etcd"),
		"--peer-trusted-ca-file=" + dir.Cert("ca"), "--peer-client-cert-auth",
	}, Listen: []string{loopback(layout.PortEtcd), loopback(layout.PortEtcdPeer)}}
}

func apiServer(dir layout.Dir) Component {
	return Component{Name: layout.APIServer, Bin: layout.APIServer, Args: []string{
		"--advertise-address=" + layout.BridgeAddress, "--bind-address=" + layout.BridgeAddress,
		fmt.Sprintf("--secure-port=%d", layout.PortAPI),
		"--etcd-servers=https://" + loopback(layout.PortEtcd), "--etcd-cafile=" + dir.Cert("ca"),
		"--etcd-certfile=" + dir.Cert("etcd-client"), "--etcd-keyfile=" + dir.Key("etcd-client"),
		"--client-ca-file=" + dir.Cert("ca"),
		"--tls-cert-file=" + dir.Cert(layout.APIServer), "--tls-private-key-file=" + dir.Key(layout.APIServer),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + layout.ServiceSubnet,
		"--service-account-issuer=https://kubernetes.default.svc." + layout.Domain,
		"--service-account-key-file=" + dir.Path("pki", "service-accounts.pub"),
		"--service-account-signing-key-file=" + dir.Key("service-accounts"),
		"--kubelet-certificate-authority=" + dir.Cert("ca"),
		"--kubelet-client-certificate=" + dir.Cert("kubelet-client"), "--kubelet-client-key=" + dir.Key("kubelet-client"),
		"--kubelet-preferred-address-types=InternalIP", // names of nodes resolve nowhere
		"--allow-privileged",
		"--audit-policy-file=" + dir.Config("audit.yaml"), "--audit-log-path=" + dir.Audit(),
		"--audit-log-maxsize=32", "--audit-log-maxbackup=8", // megabytes, files
	}, Listen: []string{address(layout.BridgeAddress, layout.PortAPI)}}
}

// controllerManager uses a long timeout before it considers the only node lost, so that a stopped kube-apiserver does not make
// pods unready when it returns.
func controllerManager(dir layout.Dir) Component {
	return Component{Name: layout.ControllerManager, Bin: layout.ControllerManager, Args: append(
		credentials(dir, layout.ControllerManager),
		fmt.Sprintf("--secure-port=%d", layout.PortController),
		"--use-service-account-credentials",
		"--service-account-private-key-file="+dir.Key("service-accounts"), "--root-ca-file="+dir.Cert("ca"),
		"--cluster-signing-cert-file="+dir.Cert("ca"), "--cluster-signing-key-file="+dir.Key("ca"),
		"--allocate-node-cidrs", "--cluster-cidr="+layout.ClusterSubnet,
		"--service-cluster-ip-range="+layout.ServiceSubnet,
		"--node-monitor-grace-period=5m",
	), Listen: []string{loopback(layout.PortController)}}
}

func scheduler(dir layout.Dir) Component {
	return Component{Name: layout.Scheduler, Bin: layout.Scheduler, Args: append(
		credentials(dir, layout.Scheduler), fmt.Sprintf("--secure-port=%d", layout.PortScheduler),
	), Listen: []string{loopback(layout.PortScheduler)}}
}

func credentials(dir layout.Dir, name string) []string {
	config := dir.ComponentKubeconfig(name)
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}
}
