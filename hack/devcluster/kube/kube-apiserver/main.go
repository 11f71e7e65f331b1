// SPDX-License-Identifier: Apache-2.0

// Command kube-apiserver is the part of Kubernetes that envtest needs: etcd and kube-apiserver in one executable. The name of
// the executable selects the program. It compiles about a third of the code of the whole cluster.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		fmt.Fprintf(os.Stderr, "kube-apiserver: %q is no component; call this binary by a link named etcd or kube-apiserver\n", name)
		os.Exit(2)
	}
}
