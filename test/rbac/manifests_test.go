// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// installations are the kustomizations that can be installed.
var installations = []string{"config/default", "config/embedded"}

// role is a ClusterRole, or a Role of a namespace.
type role struct {
	kind, namespace, name string

	labels map[string]string
	rules  []rbacv1.PolicyRule
}

// rolesOf are all roles among objects.
func rolesOf(t *testing.T, objects []*unstructured.Unstructured) []role {
	t.Helper()
	var out []role
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		body := decode[rbacv1.ClusterRole](t, o)
		require.Nil(t, body.AggregationRule, o.GetName())
		out = append(out, role{o.GetKind(), o.GetNamespace(), o.GetName(), o.GetLabels(), body.Rules})
	}
	return out
}

// named is the one role of that name and kind ClusterRole.
func named(t *testing.T, name string) role {
	t.Helper()
	for _, r := range rolesOf(t, kube.Manifests(t, "config/rbac")) {
		if r.kind == "ClusterRole" && r.name == name {
			return r
		}
	}
	require.Fail(t, "no such role", name)
	return role{}
}

func decode[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var out T
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &out, true), "%s %s", o.GetKind(), o.GetName())
	return out
}
