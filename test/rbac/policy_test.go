// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// policyTimeout is how long a policy may take until kube-apiserver goes by it.
const policyTimeout = time.Minute

// policy is the name that stands in every refusal.
const policy = "agentplatform-apikey-owner"

var installed sync.Once

// policed is a control plane that goes by config/admission.
func policed(t *testing.T) *kube.ControlPlane {
	t.Helper()
	control := kube.Start(t)
	installed.Do(func() {
		for _, o := range kube.Manifests(t, "config/admission") {
			require.NoError(t, control.Client.Create(t.Context(), o))
		}
		canary := &person{t: t, control: control, namespace: control.Namespace(t)}
		canary.become("canary")
		canary.may(rule("agentplatform.dev", "apikeys", "create"))
		deadline := time.Now().Add(policyTimeout)
		for canary.client.Create(t.Context(), canary.key("anna"), client.DryRunAll) == nil {
			require.True(t, time.Now().Before(deadline), "the policy is not in force")
		}
	})
	return control
}

// person writes keys in a namespace.
type person struct {
	t         *testing.T
	control   *kube.ControlPlane
	client    client.Client
	namespace string
	name      string
	roles     int
}

// become makes the person a user with groups.
func (p *person) become(name string, groups ...string) {
	p.t.Helper()
	p.name = name
	c, err := client.New(p.control.User(p.t, name, groups...), client.Options{Scheme: p.control.Scheme})
	require.NoError(p.t, err)
	p.client = c
}

// may lets the person do something in the namespace.
func (p *person) may(rules ...rbacv1.PolicyRule) {
	p.t.Helper()
	p.roles++
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(p.name, ":", "-"), p.roles)}
	p.create(&rbacv1.Role{ObjectMeta: meta, Rules: rules})
	p.create(&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: p.subject(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}})
	p.control.AwaitGranted(p.t, v1alpha1.Subject{User: p.name}, p.namespace, rules...)
}

// mayEverywhere lets the person do something in the whole cluster.
func (p *person) mayEverywhere(rules ...rbacv1.PolicyRule) {
	p.t.Helper()
	p.roles++
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", p.namespace, strings.ReplaceAll(p.name, ":", "-"), p.roles)}
	p.create(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	p.create(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: p.subject(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}})
	p.control.AwaitGranted(p.t, v1alpha1.Subject{User: p.name}, "", rules...)
}

func (p *person) subject() []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: p.name}}
}

// create makes an object as the administrator.
func (p *person) create(o client.Object) {
	p.t.Helper()
	require.NoError(p.t, p.control.Client.Create(p.t.Context(), o))
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func only(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// key is an APIKey of a user with groups.
func (p *person) key(owner string, groups ...string) *v1alpha1.APIKey {
	return p.keyOf(v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: owner, Groups: groups})
}

func (p *person) keyOf(owner v1alpha1.KeyOwner) *v1alpha1.APIKey {
	return &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "key-"},
		Spec:       v1alpha1.APIKeySpec{Hash: strings.Repeat("0a", 32), KeyID: "Ab3dEf7h", Owner: owner},
	}
}

// writes tries to create a key; want is a part of the refusal, "" for none.
func (p *person) writes(key *v1alpha1.APIKey, want string) {
	p.t.Helper()
	p.judge(p.client.Create(p.t.Context(), key), want)
}

// changes tries to change a key that the administrator made for anna.
func (p *person) changes(change func(*v1alpha1.APIKey), want string) {
	p.t.Helper()
	key := p.key("anna", "dev")
	p.create(key)
	before := key.DeepCopy()
	change(key)
	p.judge(p.client.Patch(p.t.Context(), key, client.MergeFrom(before)), want)
}

func (p *person) judge(err error, want string) {
	p.t.Helper()
	if want == "" {
		require.NoError(p.t, err)
		return
	}
	require.ErrorContains(p.t, err, policy, "it must be the policy that refuses")
	require.ErrorContains(p.t, err, want)
}

var (
	createKeys = rule("agentplatform.dev", "apikeys", "create")
	patchKeys  = rule("agentplatform.dev", "apikeys", "patch")
	deleteKeys = rule("agentplatform.dev", "apikeys", "delete")
)

const (
	notTheOwner = "spec.owner must be whoever writes the key"
	notInGroup  = "spec.owner.groups: you are not in the group "
)

// whoWritesKeys has a line for each kind of person.
var whoWritesKeys = map[string]func(*person){
	"a plain user": func(p *person) {
		p.become("anna", "dev", "ops")
		p.may(createKeys, patchKeys)
		p.writes(p.key("anna"), "")
		p.writes(p.key("anna", "dev"), "")
		p.writes(p.key("anna", "dev", "finance"), notInGroup+"finance")
		p.writes(p.key("berta"), notTheOwner)
		p.writes(p.keyOf(v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "anna"}), notTheOwner)
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.DisplayName = "Anna's" }, "")
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.Revoked = true }, "")
	},
	"a deployer such as Argo CD": func(p *person) {
		p.become("system:serviceaccount:argocd:deployer", "system:serviceaccounts")
		p.may(createKeys, patchKeys)
		p.writes(p.key("anna", "dev"), notTheOwner)
		p.mayEverywhere(only(rule("", "users", "impersonate"), "anna"))
		p.writes(p.key("anna", "dev"), notInGroup+"dev")
		p.mayEverywhere(only(rule("", "groups", "impersonate"), "dev"))
		p.writes(p.key("anna", "dev"), "")
		p.writes(p.key("anna", "dev", "ops"), notInGroup+"ops")
		p.writes(p.key("berta"), notTheOwner)
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.DisplayName = "from Git" }, "")
		// Its own account, of another namespace than the key's.
		p.writes(p.key("system:serviceaccount:argocd:deployer"), "")
		// The right to impersonate users does not include service accounts.
		p.mayEverywhere(rule("", "users", "impersonate"))
		p.writes(p.key("berta"), "")
		p.writes(p.key("system:serviceaccount:kube-system:anything"), notTheOwner)
	},
	"a restorer such as Velero": func(p *person) {
		p.become("system:serviceaccount:velero:velero")
		p.mayEverywhere(rule("*", "*", "*"))
		p.writes(p.key("anna", "dev", "system:masters"), "")
		p.writes(p.keyOf(v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci"}), "")
		revoked := p.key("berta")
		revoked.Spec.Revoked = true
		p.writes(revoked, "")
	},
	"the service account of a pipeline": func(p *person) {
		p.become("system:serviceaccount:"+p.namespace+":ci", "system:serviceaccounts", "system:serviceaccounts:"+p.namespace)
		p.may(createKeys)
		account := func(name string) *v1alpha1.APIKey {
			return p.keyOf(v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: name})
		}
		p.writes(account("ci"), "")
		p.writes(account("other"), notTheOwner)
		p.may(only(rule("", "serviceaccounts/token", "create"), "other"))
		p.writes(account("other"), "")
		p.writes(account("third"), notTheOwner)
	},
	"a member with only the right to create keys": func(p *person) {
		p.become("cora")
		p.may(createKeys)
		p.writes(p.key("cora"), "")
		p.writes(p.key("cora", "system:masters"), notInGroup+"system:masters")
		p.writes(p.key("x", "system:masters"), notTheOwner)
		p.writes(p.key("system:admin"), notTheOwner)
		p.writes(p.keyOf(v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "nobody"}), notTheOwner)
		p.writes(p.key("system:serviceaccount:"+p.namespace+":nobody"), notTheOwner)
	},
	"a member with only the right to patch": func(p *person) {
		p.become("dora", "dev")
		p.may(patchKeys)
		for _, change := range []func(*v1alpha1.APIKey){
			func(k *v1alpha1.APIKey) { k.Spec.DisplayName = "mine" },
			func(k *v1alpha1.APIKey) { k.Spec.ExpiresAt = &metav1.Time{Time: time.Now().AddDate(1, 0, 0)} },
			func(k *v1alpha1.APIKey) { k.Spec.Revoked = true },
		} {
			p.changes(change, notTheOwner)
		}
		p.changes(func(k *v1alpha1.APIKey) { k.Labels = map[string]string{"team": "dev"} }, "")
	},
	"a member with the right to delete": func(p *person) {
		p.become("emil")
		p.may(patchKeys, deleteKeys)
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.Revoked = true }, "")
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.DisplayName = "mine" }, notTheOwner)
		p.changes(func(k *v1alpha1.APIKey) { k.Spec.Revoked, k.Spec.DisplayName = true, "mine" }, notTheOwner)
		p.changes(func(k *v1alpha1.APIKey) {
			k.Spec.Revoked, k.Spec.Access = true, v1alpha1.AccessSelected
		}, notTheOwner)
	},
	"who writes statuses": func(p *person) {
		p.become("status-writer")
		p.may(rule("agentplatform.dev", "apikeys/status", "patch"))
		key := p.key("anna", "dev")
		p.create(key)
		before := key.DeepCopy()
		v1alpha1.MarkReady(key, "")
		require.NoError(p.t, p.client.Status().Patch(p.t.Context(), key, client.MergeFrom(before)))
	},
	"as many groups as there may be": func(p *person) {
		p.become("fritz")
		p.may(createKeys)
		groups := make([]string, v1alpha1.MaxOwnerGroups)
		for i := range groups {
			groups[i] = fmt.Sprintf("%s-%d", p.namespace, i)
		}
		last := len(groups) - 1
		p.mayEverywhere(only(rule("", "users", "impersonate"), "anna"))
		p.mayEverywhere(only(rule("", "groups", "impersonate"), groups[:last]...))
		p.writes(p.key("anna", groups...), notInGroup+groups[last])
		p.mayEverywhere(only(rule("", "groups", "impersonate"), groups[last]))
		p.writes(p.key("anna", groups...), "")
	},
}

func TestPolicy_RestrictsWritersOfKeys(t *testing.T) {
	t.Parallel()
	control := policed(t)
	for name, line := range whoWritesKeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line(&person{t: t, control: control, namespace: control.Namespace(t)})
		})
	}
}

// There is a check for each group that a key may have.
func TestPolicy_ChecksAllGroups(t *testing.T) {
	t.Parallel()
	checks := 0
	for _, o := range kube.Manifests(t, "config/admission") {
		if o.GetKind() != "ValidatingAdmissionPolicy" || o.GetName() != policy {
			continue
		}
		spec := decode[admissionv1.ValidatingAdmissionPolicy](t, o).Spec
		for i, v := range spec.Validations[1:] {
			require.Contains(t, v.Expression, fmt.Sprintf("name(variables.foreign[%d])", i))
			checks++
		}
	}
	require.Equal(t, v1alpha1.MaxOwnerGroups, checks)
	for _, o := range kube.Manifests(t, "config/crd") {
		if o.GetName() == "apikeys.agentplatform.dev" {
			schema := decode[apiextensionsv1.CustomResourceDefinition](t, o).Spec.Versions[0].Schema.OpenAPIV3Schema
			groups := schema.Properties["spec"].Properties["owner"].Properties["groups"]
			require.EqualValues(t, checks, *groups.MaxItems)
			return
		}
	}
	require.Fail(t, "there is no CRD of keys")
}

func TestInstallations_HavePolicies(t *testing.T) {
	t.Parallel()
	for _, installation := range installations {
		var policies, bound []string
		for _, o := range kube.Manifests(t, installation) {
			switch o.GetKind() {
			case "ValidatingAdmissionPolicy":
				policies = append(policies, o.GetName())
				require.Equal(t, admissionv1.Fail, *decode[admissionv1.ValidatingAdmissionPolicy](t, o).Spec.FailurePolicy)
			case "ValidatingAdmissionPolicyBinding":
				spec := decode[admissionv1.ValidatingAdmissionPolicyBinding](t, o).Spec
				bound = append(bound, spec.PolicyName)
				require.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, spec.ValidationActions)
				require.Nil(t, spec.MatchResources, "in all namespaces")
			}
		}
		require.ElementsMatch(t, []string{policy, priorityPolicy}, policies, installation)
		require.ElementsMatch(t, policies, bound, installation)
	}
}
