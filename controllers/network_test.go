// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// wired is a pod of a controller or of a manifest.
type wired struct {
	namespace string // "" stands for a project's namespace
	template  corev1.PodTemplateSpec
}

// The test cluster enforces no NetworkPolicy, so this test compares the selectors with every pod
// template.
var _ = Describe("NetworkPolicies", func() {
	It("select every pod of the platform, and allow the intended traffic", func(ctx SpecContext) {
		t := start().empty()
		t.populate(ctx)
		DeferCleanup(t.clear)
		t.deploy(ctx, "v1", "main")
		pool, job := &appsv1.Deployment{ObjectMeta: t.at("dev-runner")}, &batchv1.Job{ObjectMeta: t.at("v1-build")}
		t.eventually(ctx, pool, func() bool { return pool.UID != "" })
		t.eventually(ctx, job, func() bool { return job.UID != "" })
		pods := map[string]wired{"runner": {template: pool.Spec.Template}, "build": {template: job.Spec.Template}}
		policies := map[string]*networkingv1.NetworkPolicy{}
		for _, name := range []string{"agentplatform-build", "agentplatform-runner"} {
			policies[name] = &networkingv1.NetworkPolicy{ObjectMeta: t.at(name)}
			t.eventually(ctx, policies[name], func() bool { return policies[name].UID != "" })
			policies[name].Namespace = "" // like the pods above
		}
		readManifests(pods, policies)
		Expect(pods).To(HaveLen(6), "pods that are tested here")

		By("selecting each pod with the intended policies")
		for name, want := range map[string][]string{
			"runner": {"agentplatform-runner"}, "build": {"agentplatform-build"},
			"agentplatform-webhookgw": {"agentplatform-gateway", "agentplatform-metrics"},
			"agentplatform-apiserver": {"agentplatform-api", "agentplatform-metrics"},
			"agentplatform-manager":   {"agentplatform-manager", "agentplatform-metrics"},
			"agentplatform":           {"agentplatform-api", "agentplatform-gateway", "agentplatform-metrics"},
		} {
			Expect(selecting(pods[name], policies)).To(Equal(want), name)
		}

		By("allowing only build and runner pods to reach dispatch")
		stranger := wired{template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{base.LabelComponent: "runner"}}}}
		rule := ruleOf(policies["agentplatform-gateway"], "dispatch")
		for name, pod := range pods {
			Expect(admits(rule.From, pod)).To(Equal(name == "runner" || name == "build"), name)
		}
		Expect(admits(rule.From, stranger)).To(BeFalse(), "a pod with only the component's label")
		for _, name := range []string{"agentplatform-build", "agentplatform-runner"} {
			out := policies[name].Spec
			Expect(out.Ingress).To(HaveLen(map[string]int{"agentplatform-runner": 1}[name]), name)
			for _, in := range out.Ingress { // ingress for metrics
				Expect(in.Ports).To(HaveExactElements(HaveField("Port.StrVal", "metrics")))
				Expect(in.From).To(HaveExactElements(HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("agentplatform.dev/monitoring", "true"))))
			}
			Expect(out.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
			for _, gateway := range []string{"agentplatform-webhookgw", "agentplatform"} {
				Expect(admits(out.Egress[1].To, pods[gateway])).To(BeTrue(), "%s to %s", name, gateway)
				Expect(portsOf(pods[gateway])).To(ContainElement(out.Egress[1].Ports[0].Port.StrVal))
			}
			for _, e := range out.Egress[1:] {
				Expect(e.To).NotTo(BeEmpty(), "a rule to nobody in particular is one to everybody")
			}
		}

		By("naming ports of the pods")
		for name, policy := range policies {
			for _, in := range policy.Spec.Ingress {
				for _, port := range in.Ports {
					Expect(slices.ContainsFunc(selected(policy, pods), func(pod wired) bool {
						return slices.Contains(portsOf(pod), port.Port.StrVal)
					})).To(BeTrue(), "%s %s", name, port.Port)
				}
			}
		}

		By("allowing and denying the ranges of the egress flags by purpose")
		Expect(ranges(policies["agentplatform-build"])).To(ContainElement("10.20.0.0/16"))
		Expect(ranges(policies["agentplatform-build"])).To(ContainElement("10.0.0.0/8 less 10.96.0.0/12"), "its tests ask models")
		Expect(ranges(policies["agentplatform-build"])).To(ContainElement("192.168.7.0/24"), "token endpoints of OAuth apps")
		Expect(ranges(policies["agentplatform-runner"])).NotTo(ContainElement("10.20.0.0/16"))
		Expect(ranges(policies["agentplatform-runner"])).To(ContainElement("10.0.0.0/8 less 10.96.0.0/12"))
		Expect(ranges(policies["agentplatform-runner"])).To(ContainElement("192.168.7.0/24"))
		Expect(ranges(policies["agentplatform-runner"])).To(ContainElement(And(
			HavePrefix("0.0.0.0/0 less "), ContainSubstring("10.0.0.0/8"), ContainSubstring("169.254.0.0/16"), ContainSubstring("10.96.0.0/12"),
		)))
	}, SpecTimeout(2*time.Minute))

	It("and the trusted CA are restored", func(ctx SpecContext) {
		t := start().empty()
		t.populate(ctx)
		DeferCleanup(t.clear)
		trusted := &corev1.ConfigMap{ObjectMeta: t.at(base.DispatchCA)}
		t.eventually(ctx, trusted, func() bool { return strings.Contains(trusted.Data[base.DispatchCAKey], "BEGIN CERTIFICATE") })
		certificate := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "agentplatform-dispatch-tls"}}
		t.eventually(ctx, certificate, func() bool { return string(certificate.Data["ca.crt"]) == trusted.Data[base.DispatchCAKey] })
		pool := &appsv1.Deployment{ObjectMeta: t.at("dev-runner")}
		t.eventually(ctx, pool, func() bool { return pool.UID != "" })
		Expect(pool.Spec.Template.Spec.Containers[0].Args).To(ContainElement("--dispatch-ca-file=/etc/agentplatform/dispatch/ca.crt"))

		By("after they are deleted or edited")
		was := trusted.DeepCopy()
		trusted.Data[base.DispatchCAKey] = "another"
		Expect(t.client.Patch(ctx, trusted, client.MergeFrom(was))).To(Succeed())
		t.eventually(ctx, trusted, func() bool { return trusted.Data[base.DispatchCAKey] == string(certificate.Data["ca.crt"]) })
		policy := &networkingv1.NetworkPolicy{ObjectMeta: t.at("agentplatform-runner")}
		t.eventually(ctx, policy, func() bool { return policy.UID != "" })
		before := policy.UID
		Expect(t.client.Delete(ctx, policy)).To(Succeed())
		t.eventually(ctx, policy, func() bool { return policy.UID != before })
	}, SpecTimeout(2*time.Minute))
})

// readManifests adds the pods and policies of both installations.
func readManifests(pods map[string]wired, policies map[string]*networkingv1.NetworkPolicy) {
	GinkgoHelper()
	for _, installation := range []string{"config/default", "config/embedded"} {
		for _, o := range kube.Manifests(GinkgoTB(), installation) {
			switch o.GetKind() {
			case "Deployment", "StatefulSet":
				workload := &appsv1.Deployment{} // a StatefulSet has its template at the same path
				into(o, workload)
				pods[o.GetName()] = wired{o.GetNamespace(), workload.Spec.Template}
			case "NetworkPolicy":
				policy := &networkingv1.NetworkPolicy{}
				into(o, policy)
				policies[o.GetName()] = policy
			}
		}
	}
}

func into(o *unstructured.Unstructured, out any) {
	GinkgoHelper()
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)).To(Succeed())
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	GinkgoHelper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	Expect(err).NotTo(HaveOccurred())
	return s.Matches(labels.Set(set))
}

// selecting returns the names of the policies that select a pod.
func selecting(pod wired, policies map[string]*networkingv1.NetworkPolicy) (names []string) {
	GinkgoHelper()
	for name, policy := range policies {
		if policy.Namespace == pod.namespace && matches(&policy.Spec.PodSelector, pod.template.Labels) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func selected(policy *networkingv1.NetworkPolicy, pods map[string]wired) (out []wired) {
	GinkgoHelper()
	for _, pod := range pods {
		if policy.Namespace == pod.namespace && matches(&policy.Spec.PodSelector, pod.template.Labels) {
			out = append(out, pod)
		}
	}
	return out
}

func ruleOf(policy *networkingv1.NetworkPolicy, port string) networkingv1.NetworkPolicyIngressRule {
	GinkgoHelper()
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			if p.Port.StrVal == port {
				return rule
			}
		}
	}
	Fail(policy.Name + " has no rule for port " + port)
	return networkingv1.NetworkPolicyIngressRule{}
}

// admits reports whether a pod is one of the peers.
func admits(peers []networkingv1.NetworkPolicyPeer, pod wired) bool {
	GinkgoHelper()
	namespace := map[string]string{corev1.LabelMetadataName: pod.namespace}
	return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		return matches(p.NamespaceSelector, namespace) && matches(p.PodSelector, pod.template.Labels)
	})
}

func portsOf(pod wired) (names []string) {
	for _, c := range pod.template.Spec.Containers {
		for _, port := range c.Ports {
			names = append(names, port.Name)
		}
	}
	return names
}

// ranges returns the allowed ranges of a policy, as CIDR or "CIDR less CIDR,CIDR".
func ranges(policy *networkingv1.NetworkPolicy) (out []string) {
	for _, rule := range policy.Spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock == nil {
				continue
			}
			text := to.IPBlock.CIDR
			if len(to.IPBlock.Except) > 0 {
				text += " less " + strings.Join(to.IPBlock.Except, ",")
			}
			out = append(out, text)
		}
	}
	return out
}
