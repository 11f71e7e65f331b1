// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/egress"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch

// Network has the operator's settings for the network of build and runner pods.
type Network struct {
	// SystemNamespace is the namespace of the gateway's pods.
	SystemNamespace string
	// DispatchTLSSecret is the Secret in SystemNamespace whose ca.crt the pods trust. It is empty if
	// dispatch uses plain HTTP or a publicly trusted certificate.
	DispatchTLSSecret string
	// Egress lists the destinations that the pods can reach besides DNS and dispatch.
	Egress egress.Rules
}

// Labels and ports of the platform's own pods, as in config/.
const (
	labelGateway = "agentplatform.dev/gateway"
	// labelMonitoring marks namespaces that may read metrics.
	labelMonitoring = "agentplatform.dev/monitoring"
	portDispatch    = "dispatch"
)

// podKind is a kind of pods in a project's namespace.
type podKind struct {
	// name is the value of their component label.
	name string
	// purposes are the purposes for which they can reach destinations besides DNS and dispatch.
	purposes []egress.Purpose
	// monitored allows Prometheus to reach them.
	monitored bool
}

// A build calls models in its tests, and lists the tools of MCP servers. For their OAuth apps it gets access tokens from token
// endpoints, which have the purpose of tools.
var podKinds = []podKind{
	{name: "build", purposes: []egress.Purpose{egress.Git, egress.Model, egress.MCP, egress.Tool}},
	{name: "runner", purposes: []egress.Purpose{egress.Model, egress.MCP, egress.Tool}, monitored: true},
}

// enqueueAll queues all projects.
func (r *Reconciler) enqueueAll() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request {
		projects := &v1alpha1.ProjectList{}
		if err := r.Client.List(ctx, projects); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing the projects that trust a certificate")
			return nil
		}
		var requests []ctrl.Request
		for i := range projects.Items {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&projects.Items[i])})
		}
		return requests
	})
}

// reportNetwork writes the network and reports whether it is complete. An error does not change the
// network.
func (r *Reconciler) reportNetwork(ctx context.Context, project *v1alpha1.Project) error {
	err := r.applyNetwork(ctx, project)
	var (
		foreign *base.NameCollisionError
		waiting *base.WaitingError
	)
	switch {
	case err == nil:
		project.MarkNetworkReady()
	case errors.As(err, &foreign):
		project.MarkNetworkMissing(v1alpha1.ReasonNameCollision, foreign.Error())
	case errors.As(err, &waiting):
		project.MarkNetworkMissing(v1alpha1.ReasonProgressing, waiting.Message)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		project.MarkNetworkMissing(v1alpha1.ReasonRefused, "Kubernetes rejects the NetworkPolicies or the CA of the namespace")
	}
	return err
}

// applyNetwork writes the shared objects of all pods of the platform in the namespace: the
// NetworkPolicies and the trusted CAs. They belong to the namespace, not to the Project, because
// runners outlive the Project until they have finished accepted runs, and need the policies until then.
func (r *Reconciler) applyNetwork(ctx context.Context, project *v1alpha1.Project) error {
	namespace, err := r.Namespace(ctx, project.Namespace)
	if err != nil {
		return err
	}
	for _, pods := range podKinds {
		if err := r.Apply(ctx, namespace, r.Network.newPolicy(project.Namespace, pods)); err != nil {
			return err
		}
	}
	if r.Network.DispatchTLSSecret == "" {
		return nil
	}
	secret, err := r.Secret(ctx, r.Network.SystemNamespace, r.Network.DispatchTLSSecret)
	if missing := (*base.SecretError)(nil); errors.As(err, &missing) {
		return &base.WaitingError{Message: "the certificate of the platform's dispatch port does not exist yet"}
	}
	if err != nil {
		return fmt.Errorf("reading the certificate of the dispatch port: %w", err)
	}
	return r.Apply(ctx, namespace, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: base.DispatchCA, Namespace: project.Namespace, Labels: map[string]string{base.LabelManagedBy: base.ManagedBy},
		},
		Data: map[string]string{base.DispatchCAKey: string(secret[base.DispatchCAKey])},
	})
}

// newPolicy allows egress to DNS, dispatch and the destinations of the egress rules, and ingress only for
// metrics.
func (n Network) newPolicy(namespace string, pods podKind) *networkingv1.NetworkPolicy {
	rules := []networkingv1.NetworkPolicyEgressRule{
		// Some distributions serve DNS on port 5353 behind port 53 of the Service.
		{Ports: slices.Concat(policyPorts(corev1.ProtocolUDP, 53, 5353), policyPorts(corev1.ProtocolTCP, 53, 5353))},
		n.toDispatch(),
	}
	if to := policyPeers(n.Egress.Blocks(pods.purposes...)); len(to) > 0 { // a rule without peers would allow all destinations
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: to})
	}
	var ingress []networkingv1.NetworkPolicyIngressRule
	if pods.monitored {
		ingress = append(ingress, fromMonitoring())
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agentplatform-" + pods.name, Namespace: namespace, Labels: map[string]string{base.LabelManagedBy: base.ManagedBy},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{
				base.LabelManagedBy: base.ManagedBy, base.LabelComponent: pods.name,
			}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      rules,
		},
	}
}

// fromMonitoring allows Prometheus to read metrics.
func fromMonitoring() networkingv1.NetworkPolicyIngressRule {
	tcp, port := corev1.ProtocolTCP, intstr.FromString(base.PortMetrics)
	return networkingv1.NetworkPolicyIngressRule{
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
		From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelMonitoring: "true"}}}},
	}
}

func (n Network) toDispatch() networkingv1.NetworkPolicyEgressRule {
	tcp, port := corev1.ProtocolTCP, intstr.FromString(portDispatch)
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: n.SystemNamespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{labelGateway: "true"}},
		}},
	}
}

func policyPorts(protocol corev1.Protocol, numbers ...int32) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, n := range numbers {
		port := intstr.FromInt32(n)
		out = append(out, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return out
}

func policyPeers(blocks []egress.Block) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, b := range blocks {
		block := &networkingv1.IPBlock{CIDR: b.CIDR.String()}
		for _, except := range b.Except {
			block.Except = append(block.Except, except.String())
		}
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return out
}
