// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// The policy selects the pods of its component. It allows ingress for metrics, and egress to DNS,
// dispatch and the allowed ranges.
func TestPolicy_AllowsOnlyRequiredTraffic(t *testing.T) {
	t.Parallel()
	rules, err := egress.Flags{Allow: "git=10.20.0.0/16,model=10.30.0.0/16,tool=10.40.0.0/16,mcp=10.50.0.0/16"}.Rules()
	require.NoError(t, err)
	for _, c := range podKinds {
		policy := Network{SystemNamespace: "system", Egress: rules}.newPolicy("team", c)
		require.Equal(t, "agentplatform-"+c.name, policy.Name)
		require.Equal(t, "team", policy.Namespace)
		require.Equal(t, base.ManagedBy, policy.Labels[base.LabelManagedBy], "else the cache would not have it")
		require.Equal(t, map[string]string{base.LabelManagedBy: base.ManagedBy, base.LabelComponent: c.name}, policy.Spec.PodSelector.MatchLabels)
		require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
		require.Equal(t, c.monitored, len(policy.Spec.Ingress) == 1, "who reads metrics, and nobody else")
		for _, rule := range policy.Spec.Ingress {
			require.Equal(t, base.PortMetrics, rule.Ports[0].Port.String())
			require.Equal(t, map[string]string{labelMonitoring: "true"}, rule.From[0].NamespaceSelector.MatchLabels)
		}
		require.Len(t, policy.Spec.Egress, 3)

		var names []string
		for _, p := range policy.Spec.Egress[0].Ports {
			names = append(names, string(*p.Protocol)+" "+p.Port.String())
		}
		require.Equal(t, []string{"UDP 53", "UDP 5353", "TCP 53", "TCP 5353"}, names)
		dispatch := policy.Spec.Egress[1]
		require.Equal(t, "dispatch", dispatch.Ports[0].Port.String())
		require.Equal(t, map[string]string{corev1.LabelMetadataName: "system"}, dispatch.To[0].NamespaceSelector.MatchLabels)
		require.Equal(t, map[string]string{labelGateway: "true"}, dispatch.To[0].PodSelector.MatchLabels)
	}
	blocks := func(purposes ...egress.Purpose) (cidrs []string) {
		for _, peer := range policyPeers(rules.Blocks(purposes...)) {
			cidrs = append(cidrs, peer.IPBlock.CIDR)
		}
		return cidrs
	}
	require.Subset(t, blocks(podKinds[0].purposes...), []string{"10.20.0.0/16", "10.30.0.0/16"}, "a build fetches and tests")
	require.NotContains(t, blocks(podKinds[1].purposes...), "10.20.0.0/16", "a runner fetches nothing")
	for _, pods := range podKinds {
		require.Contains(t, blocks(pods.purposes...), "10.40.0.0/16", "builds and runners get tokens of OAuth apps, and runners call tools")
		require.Contains(t, blocks(pods.purposes...), "10.50.0.0/16", "builds list the tools of MCP servers, and runners call them")
	}
	require.Contains(t, blocks(egress.Git), "10.20.0.0/16")
	require.NotContains(t, blocks(egress.Git), "10.30.0.0/16")
	require.Contains(t, blocks(egress.Model), "10.30.0.0/16")
}

// The row has the display name, or the name of the namespace.
func TestProjection_HasDisplayName(t *testing.T) {
	t.Parallel()
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "project"}}
	ref := store.ObjectRef{Name: "project"}
	limits := store.ProjectLimits{BacklogRuns: 100_000, BacklogInput: 4 << 30, Storage: 50 << 30, RequestsPerMinute: 120}
	require.Equal(t, store.Project{Ref: ref, DisplayName: "team", Limits: limits}, projectRow(ref, [16]byte{}, p, plan.Default()))
	p.Spec.DisplayName = "The Team"
	require.Equal(t, store.Project{Ref: ref, DisplayName: "The Team", Limits: limits}, projectRow(ref, [16]byte{}, p, plan.Default()))
	p.Spec.Retention = &v1alpha1.ProjectRetention{RunsSeconds: 7 * 24 * 3600}
	require.Equal(t, 7*24*time.Hour, projectRow(ref, [16]byte{}, p, plan.Default()).Retention)
}

// A new certificate queues the projects of all namespaces.
func TestEverywhere_QueuesAllProjects(t *testing.T) {
	t.Parallel()
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "project"}},
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "project"}},
	)}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	r.enqueueAll().Generic(t.Context(), event.GenericEvent{Object: &corev1.Secret{}}, queue)
	require.Equal(t, 2, queue.Len())
}

// If all addresses are denied, there is no rule for addresses, because a rule without peers would allow
// everything.
func TestPolicy_OmitsEmptyRule(t *testing.T) {
	t.Parallel()
	rules, err := egress.Flags{Allow: "git=10.0.0.0/8", Deny: "0.0.0.0/0,::/0"}.Rules()
	require.NoError(t, err)
	policy := Network{SystemNamespace: "system", Egress: rules}.newPolicy("team", podKinds[0])
	require.Len(t, policy.Spec.Egress, 2, "DNS and dispatch")
	require.NotEmpty(t, policy.Spec.Egress[0].Ports)
	require.NotEmpty(t, policy.Spec.Egress[1].To)
}
