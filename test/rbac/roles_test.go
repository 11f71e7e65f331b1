// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// What each program may, one line a namespace ("*" for all), group and resource.
// Whoever adds a line says here what for.
var (
	managerRights = []string{
		// Objects of the projects, and their status; get confirms what a restored etcd says.
		"* agentplatform.dev/apikeys get,list,watch",
		"* agentplatform.dev/apikeys/status patch",
		// The objects that mirror a repository's connectors/: the manager creates, restores and deletes them.
		"* agentplatform.dev/connectorlinks create,delete,get,list,patch,watch",
		"* agentplatform.dev/connectorlinks/status patch",
		"* agentplatform.dev/connectors create,delete,get,list,patch,watch",
		"* agentplatform.dev/connectors/status patch",
		// The manager deletes old deployments and activates them again. spec.git of an Environment creates one.
		"* agentplatform.dev/deployments create,delete,get,list,patch,watch",
		"* agentplatform.dev/deployments/status patch",
		"* agentplatform.dev/environments get,list,watch",
		"* agentplatform.dev/environments/status patch",
		"* agentplatform.dev/projects get,list,watch",
		"* agentplatform.dev/projects/status patch",
		// Runner pools, builds and why their pods do not start; children are applied.
		"* apps/deployments create,get,list,patch,watch",
		"* batch/jobs create,delete,get,list,patch,watch",
		"* events.k8s.io/events create,patch",
		"* pods list,watch",
		// Around those pods: who reaches whom, and whom they trust.
		"* configmaps create,get,list,patch,watch",
		"* networking.k8s.io/networkpolicies create,get,list,patch,watch",
		// Plans, which are annotations of Namespaces.
		"* namespaces get,list,watch",
		// Credentials that users bring, tokens and configuration of pods; of all others
		// it lists and watches metadata alone, which RBAC cannot tell apart.
		"* secrets create,get,list,patch,watch",
		// Leader election, and the platform's keys.
		"agentplatform-system coordination.k8s.io/leases create",
		"agentplatform-system coordination.k8s.io/leases[agentplatform-manager] get,update",
		"agentplatform-system events create,patch",
		// Its own pod, whose image build and runner pods get.
		"agentplatform-system pods get",
		"agentplatform-system secrets create",
		// Certificates of the platform's own ports.
		"agentplatform-system secrets[agentplatform-api-tls,agentplatform-ca,agentplatform-dispatch-tls] get,patch",
		"agentplatform-system secrets[agentplatform-keys] get,patch",
		// The uid that names the cluster.
		"kube-system namespaces[kube-system] get",
	}
	apiserverRights = []string{
		"* agentplatform.dev/apikeys get,list,watch",
		"* agentplatform.dev/connectorlinks create,delete,get,list,patch",
		"* agentplatform.dev/connectors create,delete,get,list,patch",
		"* agentplatform.dev/deployments create,get,list,patch",
		"* agentplatform.dev/environments create,delete,get,list,patch",
		// Who tests in an environment stands in its status.
		"* agentplatform.dev/environments/status patch",
		"* agentplatform.dev/projects get,list,patch,watch",
		"* authorization.k8s.io/localsubjectaccessreviews create",
		// The uid that names the cluster.
		"kube-system namespaces[kube-system] get",
	}
)

func TestRoles_OfEachAccount(t *testing.T) {
	t.Parallel()
	want := map[string]map[string][]string{
		"config/default": {
			"agentplatform-system/agentplatform-manager":   managerRights,
			"agentplatform-system/agentplatform-apiserver": apiserverRights,
			"agentplatform-system/agentplatform-webhookgw": nil,
		},
		"config/embedded": {
			"agentplatform-system/agentplatform": union(managerRights, apiserverRights),
		},
	}
	for _, installation := range installations {
		objects := kube.Manifests(t, installation)
		got := map[string][]string{}
		for _, o := range objects {
			if o.GetKind() == "ServiceAccount" {
				got[o.GetNamespace()+"/"+o.GetName()] = nil
			}
		}
		for _, b := range bindingsOf(t, objects) {
			for _, subject := range b.subjects {
				require.Equal(t, rbacv1.ServiceAccountKind, subject.Kind, b.name)
				account := subject.Namespace + "/" + subject.Name
				require.Contains(t, got, account, "%s binds to an account that is not there", b.name)
				got[account] = append(got[account], b.rights(t, objects)...)
			}
		}
		for account := range got {
			require.Equal(t, union(want[installation][account]), union(got[account]), "%s %s", installation, account)
		}
		require.Len(t, got, len(want[installation]), installation)
	}
}

// binding names the subjects of a role and their namespace; "" is all namespaces.
type binding struct {
	name, namespace string

	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
}

func bindingsOf(t *testing.T, objects []*unstructured.Unstructured) []binding {
	t.Helper()
	var out []binding
	for _, o := range objects {
		if o.GetKind() == "ClusterRoleBinding" || o.GetKind() == "RoleBinding" {
			b := decode[rbacv1.ClusterRoleBinding](t, o)
			out = append(out, binding{o.GetName(), o.GetNamespace(), b.RoleRef, b.Subjects})
		}
	}
	return out
}

// rights are the lines that a binding adds.
func (b binding) rights(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	where := b.namespace
	if where == "" {
		where = "*"
	}
	for _, r := range rolesOf(t, objects) {
		inside := r.kind == "ClusterRole" || r.namespace == b.namespace
		if r.kind == b.ref.Kind && r.name == b.ref.Name && inside {
			return lines(where, r.rules)
		}
	}
	require.Fail(t, "a binding names a role that is not there", "%s: %+v", b.name, b.ref)
	return nil
}

// lines are rules as the tables above write them.
func lines(where string, rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, rule := range rules {
		verbs := strings.Join(slices.Sorted(slices.Values(rule.Verbs)), ",")
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != "" {
					resource = group + "/" + resource
				}
				if len(rule.ResourceNames) > 0 {
					resource = fmt.Sprintf("%s[%s]", resource, strings.Join(rule.ResourceNames, ","))
				}
				out = append(out, fmt.Sprintf("%s %s %s", where, resource, verbs))
			}
		}
	}
	return out
}

// union sorts lines and joins the verbs of lines about the same resource.
func union(tables ...[]string) []string {
	verbs := map[string][]string{}
	for _, line := range slices.Concat(tables...) {
		i := strings.LastIndex(line, " ")
		verbs[line[:i]] = append(verbs[line[:i]], strings.Split(line[i+1:], ",")...)
	}
	out := []string{}
	for about, all := range verbs {
		out = append(out, about+" "+strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ","))
	}
	slices.Sort(out)
	return out
}

// A right that is not spelled out, or that lets its holder give itself others,
// is in no role of ours.
func TestRoles_HaveNoWildcards(t *testing.T) {
	t.Parallel()
	for _, installation := range installations {
		roles := rolesOf(t, kube.Manifests(t, installation))
		require.NotEmpty(t, roles)
		for _, r := range roles {
			for _, rule := range r.rules {
				all := slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs)
				for _, word := range all {
					require.NotContains(t, word, "*", "%s: %v", r.name, rule)
				}
				for _, verb := range []string{"escalate", "bind", "impersonate"} {
					require.NotContains(t, rule.Verbs, verb, "%s: %v", r.name, rule)
				}
				require.NotContains(t, rule.APIGroups, rbacv1.GroupName, "%s: %v", r.name, rule)
				require.NotContains(t, rule.Resources, "serviceaccounts/token", "%s: %v", r.name, rule)
			}
		}
	}
}

// Every program runs as the account that is meant for it, and who never asks
// Kubernetes has no token.
func TestWorkloads_UseTheirAccounts(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"agentplatform": "agentplatform", "agentplatform-manager": "agentplatform-manager",
		"agentplatform-apiserver": "agentplatform-apiserver", "agentplatform-webhookgw": "agentplatform-webhookgw",
	}
	for _, installation := range installations {
		accounts := map[string]corev1.ServiceAccount{}
		objects := kube.Manifests(t, installation)
		for _, o := range objects {
			if o.GetKind() == "ServiceAccount" {
				accounts[o.GetName()] = decode[corev1.ServiceAccount](t, o)
			}
		}
		seen := 0
		for _, o := range objects {
			if o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
				continue
			}
			seen++
			pod := decode[appsv1.Deployment](t, &unstructured.Unstructured{Object: map[string]any{
				"spec": map[string]any{"template": o.Object["spec"].(map[string]any)["template"]},
			}}).Spec.Template.Spec
			require.Equal(t, want[o.GetName()], pod.ServiceAccountName, o.GetName())
			require.Contains(t, accounts, pod.ServiceAccountName, o.GetName())
			if o.GetName() == "agentplatform-webhookgw" {
				require.False(t, *pod.AutomountServiceAccountToken)
				require.False(t, *accounts[pod.ServiceAccountName].AutomountServiceAccountToken)
			}
		}
		require.Len(t, accounts, seen, "%s: an account that nothing runs as", installation)
	}
}
