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

// grantTimeout is how long a role may take until kube-apiserver goes by it.
const grantTimeout = 30 * time.Second

// SystemNamespace is where the platform itself lives in the manifests.
const SystemNamespace = "agentplatform-system"

// granting lets one test at a time install the roles of config/rbac.
var granting sync.Mutex

// Grant gives a user exactly what config/rbac gives the program of that role
// ("agentplatform-manager"): in all namespaces, or in those named alone, and in
// the namespaces of the platform itself. It returns when that holds.
func (c *ControlPlane) Grant(tb testing.TB, user, role string, namespaces ...string) {
	tb.Helper()
	granting.Lock()
	defer granting.Unlock()
	c.ensure(tb, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}})
	for _, object := range Manifests(tb, "config/rbac") {
		if object.GetName() != role {
			continue
		}
		c.ensure(tb, object)
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: object.GetKind(), Name: role}
		switch in := object.GetNamespace(); {
		case in != "":
			c.bind(tb, in, user, ref)
		case len(namespaces) == 0:
			c.bind(tb, "", user, ref)
		}
		if object.GetKind() != "ClusterRole" {
			c.awaitRules(tb, user, object, object.GetNamespace())
			continue
		}
		for _, namespace := range namespaces {
			c.bind(tb, namespace, user, ref)
			c.awaitRules(tb, user, object, namespace)
		}
		if len(namespaces) == 0 {
			c.awaitRules(tb, user, object, metav1.NamespaceDefault)
		}
	}
}

// ensure creates an object where it is not there yet.
func (c *ControlPlane) ensure(tb testing.TB, object client.Object) {
	tb.Helper()
	if err := c.Client.Create(tb.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("testenv: creating %T %q: %v", object, object.GetName(), err)
	}
}

// bind binds a role to a user, in a namespace or (with "") in all.
func (c *ControlPlane) bind(tb testing.TB, namespace, user string, ref rbacv1.RoleRef) {
	tb.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%s", ref.Name, user)}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	if namespace == "" {
		c.ensure(tb, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		return
	}
	c.ensure(tb, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
}

func (c *ControlPlane) awaitRules(tb testing.TB, user string, role *unstructured.Unstructured, namespace string) {
	tb.Helper()
	var rules struct{ Rules []rbacv1.PolicyRule }
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &rules); err != nil {
		tb.Fatalf("testenv: reading role %q: %v", role.GetName(), err)
	}
	c.AwaitGranted(tb, v1alpha1.Subject{User: user}, namespace, rules.Rules...)
}

// AwaitGranted returns when kube-apiserver lets somebody do what the rules say:
// it learns of roles and bindings a moment after they were created.
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

// SplitResource takes a rule's "connectors/status" apart.
func SplitResource(resource string) (name, subresource string) {
	name, subresource, _ = strings.Cut(resource, "/")
	return name, subresource
}
