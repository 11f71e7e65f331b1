// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// grantTimeout limits the time until kube-apiserver applies a role.
const grantTimeout = 30 * time.Second

// SystemNamespace is the namespace of the platform in the manifests.
const SystemNamespace = "agentplatform-system"

// granting makes sure that one test at a time installs the roles of config/rbac.
var granting sync.Mutex

// Grant gives a user exactly the permissions in config/rbac for the role of a program
// ("agentplatform-manager"): in all namespaces or only in the named ones, and in the platform's own
// namespaces. It returns when they apply.
func (c *ControlPlane) Grant(tb testing.TB, user, role string, namespaces ...string) {
	tb.Helper()
	granting.Lock()
	defer granting.Unlock()
	c.ensureObject(tb, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}})
	for _, object := range Manifests(tb, "config/rbac") {
		if object.GetName() != role {
			continue
		}
		c.ensureObject(tb, object)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: object.GetKind(), Name: role}
		switch in := object.GetNamespace(); {
		case in != "":
			c.bindRole(tb, in, user, ref)
		case len(namespaces) == 0:
			c.bindRole(tb, "", user, ref)
		}
		if object.GetKind() != "ClusterRole" {
			c.awaitRules(tb, user, object, object.GetNamespace())
			continue
		}
		for _, namespace := range namespaces {
			c.bindRole(tb, namespace, user, ref)
			c.awaitRules(tb, user, object, namespace)
		}
		if len(namespaces) == 0 {
			c.awaitRules(tb, user, object, metav1.NamespaceDefault)
		}
	}
}

// ensureObject creates an object if it does not exist.
func (c *ControlPlane) ensureObject(tb testing.TB, object client.Object) {
	tb.Helper()
	if err := c.Client.Create(tb.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("testenv: creating %T %q: %v", object, object.GetName(), err)
	}
}

// bindRole binds a role to a user, in a namespace or in all if namespace is "".
func (c *ControlPlane) bindRole(tb testing.TB, namespace, user string, ref rbacv1.RoleRef) {
	tb.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%s", ref.Name, user)}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	if namespace == "" {
		c.ensureObject(tb, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		return
	}
	c.ensureObject(tb, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

func (c *ControlPlane) awaitRules(tb testing.TB, user string, role *unstructured.Unstructured, namespace string) {
	tb.Helper()
	var rules struct{ Rules []rbacv1.PolicyRule }
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &rules); err != nil {
		tb.Fatalf("testenv: reading role %q: %v", role.GetName(), err)
	}
	c.AwaitGranted(tb, v1alpha1.Subject{User: user}, namespace, rules.Rules...)
}

// AwaitGranted returns when kube-apiserver applies the rules. It learns of roles and bindings a
// moment after their creation.
func (c *ControlPlane) AwaitGranted(tb testing.TB, who v1alpha1.Subject, namespace string, rules ...rbacv1.PolicyRule) {
	tb.Helper()
	deadline := time.Now().Add(grantTimeout)
	for _, rule := range rules {
		name := ""
		if len(rule.ResourceNames) > 0 {
			name = rule.ResourceNames[0]
		}
		resource, subresource := SplitResource(rule.Resources[0])
		for {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: who.User, Groups: who.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: name,
				},
			}}
			if err := c.Client.Create(tb.Context(), review); err != nil {
				tb.Fatalf("testenv: asking what %v may: %v", who, err)
			}
			if review.Status.Allowed {
				break
			}
			if time.Now().After(deadline) {
				tb.Fatalf("testenv: %v may still not %s %s in %q", who, rule.Verbs[0], rule.Resources[0], namespace)
			}
		}
	}
}

// SplitResource splits a rule's "connectors/status".
func SplitResource(resource string) (name, subresource string) {
	name, subresource, _ = strings.Cut(resource, "/")
	return name, subresource
}
