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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/egress"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch

// Network is what the operator says of the network of build and runner pods.
type Network struct {
	// SystemNamespace is where the gateway's pods are.
	SystemNamespace string
	// DispatchTLSSecret is the Secret there whose ca.crt those pods trust; empty
	// where dispatch speaks plain HTTP or by a certificate that everybody trusts.
	DispatchTLSSecret string
	// Egress is what they may reach beside DNS and dispatch.
	Egress egress.Rules
}

// Labels and ports of the platform's own pods, as in config/.
const (
	labelGateway = "agentplatform.dev/gateway"
	// labelMonitoring is on the namespaces from which metrics may be read.
	labelMonitoring = "agentplatform.dev/monitoring"
	portDispatch    = "dispatch"
)

// podKind are pods in a project's namespace.
type podKind struct {
	// name is the value of their label component.
	name string
	// purposes say what they reach beside DNS and dispatch.
	purposes []egress.Purpose
	// monitored: whoever reads metrics reaches them.
	monitored bool
}

// A build asks models in its tests.
var podKinds = []podKind{
	{name: "build", purposes: []egress.Purpose{egress.Git, egress.Model}},
	{name: "runner", purposes: []egress.Purpose{egress.Model}, monitored: true},
}

// everywhere queues all projects.
func (r *Reconciler) everywhere() handler.EventHandler {
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

// showNetwork keeps the network and shows whether it stands. What keeps it from
// being looked at changes nothing in it.
func (r *Reconciler) showNetwork(ctx context.Context, project *v1alpha1.Project) error {
	err := r.keepNetwork(ctx, project)
	var (
		foreign *object.NameCollisionError
		waiting *object.WaitingError
	)
	switch {
	case err == nil:
		project.MarkNetworkReady()
	case errors.As(err, &foreign):
		project.MarkNetworkMissing(v1alpha1.ReasonNameCollision, foreign.Error())
	case errors.As(err, &waiting):
		project.MarkNetworkMissing(v1alpha1.ReasonProgressing, waiting.Message)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		project.MarkNetworkMissing(v1alpha1.ReasonRefused, "Kubernetes refuses what stands around it")
	}
	return err
}

// keepNetwork writes what all pods of the platform in the namespace share: the
// NetworkPolicies around them, and whom they trust. They are the namespace's, not the
// Project's: runners outlive that until they have worked off what was accepted, and
// must not do so without walls.
func (r *Reconciler) keepNetwork(ctx context.Context, project *v1alpha1.Project) error {
	namespace, err := r.Namespace(ctx, project.Namespace)
	if err != nil {
		return err
	}
	for _, pods := range podKinds {
		if err := r.Apply(ctx, namespace, r.Network.policy(project.Namespace, pods)); err != nil {
			return err
		}
	}
	if r.Network.DispatchTLSSecret == "" {
		return nil
	}
	secret, err := r.Secret(ctx, r.Network.SystemNamespace, r.Network.DispatchTLSSecret)
	if missing := (*object.SecretError)(nil); errors.As(err, &missing) {
		return &object.WaitingError{Message: "the certificate of the platform's dispatch port is not there yet"}
	}
	if err != nil {
		return fmt.Errorf("reading the certificate of the dispatch port: %w", err)
	}
	return r.Apply(ctx, namespace, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: object.DispatchCA, Namespace: project.Namespace, Labels: map[string]string{object.LabelManagedBy: object.ManagedBy},
		},
		Data: map[string]string{object.DispatchCAKey: string(secret[object.DispatchCAKey])},
	})
}

// policy lets pods reach DNS, dispatch and what the egress
// guard in them lets through, and nobody reach them but who reads their metrics.
func (n Network) policy(namespace string, pods podKind) *networkingv1.NetworkPolicy {
	rules := []networkingv1.NetworkPolicyEgressRule{
		// 5353 is where DNS listens behind the Service's 53 in some distributions.
		{Ports: slices.Concat(ports(corev1.ProtocolUDP, 53, 5353), ports(corev1.ProtocolTCP, 53, 5353))},
		n.toDispatch(),
	}
	if to := peers(n.Egress.Blocks(pods.purposes...)); len(to) > 0 { // a rule to nobody would be one to everybody
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: to})
	}
	var ingress []networkingv1.NetworkPolicyIngressRule
	if pods.monitored {
		ingress = append(ingress, fromMonitoring())
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agentplatform-" + pods.name, Namespace: namespace, Labels: map[string]string{object.LabelManagedBy: object.ManagedBy},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{
				object.LabelManagedBy: object.ManagedBy, object.LabelComponent: pods.name,
			}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      rules,
		},
	}
}

// fromMonitoring lets Prometheus read metrics.
func fromMonitoring() networkingv1.NetworkPolicyIngressRule {
	tcp, port := corev1.ProtocolTCP, intstr.FromString(object.PortMetrics)
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

func ports(protocol corev1.Protocol, numbers ...int32) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, n := range numbers {
		port := intstr.FromInt32(n)
		out = append(out, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return out
}

func peers(blocks []egress.Block) []networkingv1.NetworkPolicyPeer {
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
