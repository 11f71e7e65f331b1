// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/provisioner"
)

type object = map[string]any

// seed is an object of every cluster, with its API path.
type seed struct {
	path   string
	object object
}

// bootstrap applies the objects that every cluster has.
func (l *local) bootstrap(ctx context.Context) error {
	api, err := kubeapi.New(l.Dir)
	if err != nil {
		return err
	}
	for _, s := range seedObjects() {
		if err := api.Apply(ctx, s.path, s.object); err != nil {
			return fmt.Errorf("applying %s: %w", s.path, err)
		}
	}
	return nil
}

// admitsPods fails while the cluster would reject pods or could not start them. Each pod needs its namespace's service account
// and certificates.
func (l *local) admitsPods(ctx context.Context) error {
	api, err := kubeapi.New(l.Dir)
	if err != nil {
		return err
	}
	for _, path := range []string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"} {
		if err := api.Get(ctx, "/api/v1/namespaces/default/"+path, nil); err != nil {
			return err
		}
	}
	return nil
}

// seedObjects are the rights of CoreDNS, its Service, which leads to the host's
// CoreDNS by a slice made by hand, and the default storage class.
func seedObjects() []seed {
	const rbac = "rbac.authorization.k8s.io/v1"
	const system = "/namespaces/kube-system/"
	ports := []object{{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}}
	return []seed{
		{"/api/v1/namespaces/kube-system", object{
			"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "kube-system"},
		}},
		{"/apis/" + rbac + "/clusterroles/system:coredns", object{
			"apiVersion": rbac, "kind": "ClusterRole", "metadata": object{"name": "system:coredns"},
			"rules": []object{
				{"apiGroups": []string{""}, "resources": []string{"services", "pods", "namespaces"}, "verbs": []string{"list", "watch"}},
				{"apiGroups": []string{"discovery.k8s.io"}, "resources": []string{"endpointslices"}, "verbs": []string{"list", "watch"}},
			},
		}},
		{"/apis/" + rbac + "/clusterrolebindings/system:coredns", object{
			"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": object{"name": "system:coredns"},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}},
		}},
		{"/api/v1" + system + "services/kube-dns", object{
			"apiVersion": "v1", "kind": "Service",
			"metadata": object{"name": "kube-dns", "namespace": "kube-system", "labels": object{"k8s-app": "kube-dns"}},
			"spec":     object{"clusterIP": layout.ServiceDNS, "ports": ports},
		}},
		{"/apis/discovery.k8s.io/v1" + system + "endpointslices/kube-dns-host", object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": ports,
			"metadata": object{"name": "kube-dns-host", "namespace": "kube-system", "labels": object{
				"kubernetes.io/service-name":             "kube-dns",
				"endpointslice.kubernetes.io/managed-by": "devcluster",
			}},
			"endpoints": []object{{"addresses": []string{layout.BridgeAddress}, "conditions": object{"ready": true}}},
		}},
		{"/apis/storage.k8s.io/v1/storageclasses/" + layout.StorageClass, provisioner.StorageClass()},
	}
}
