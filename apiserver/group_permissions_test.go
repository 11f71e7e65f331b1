// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// allowGroup gives a group a right to see runs in the namespace.
func allowGroup(t *testing.T, w *apiservertest.Project, name, group string) {
	t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"runs"}, Verbs: []string{"get"}}
	defer kube.Start(t).AwaitGranted(t, v1alpha1.Subject{User: "x", Groups: []string{group}}, w.Namespace, rule)
	w.Create(t, &rbacv1.Role{ObjectMeta: w.Meta(name), Rules: []rbacv1.PolicyRule{rule}})
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: w.Meta(name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
	})
}

func TestGroups_OfOwners(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	allowGroup(t, w, "developers", "dev")
	allowGroup(t, w, "accounts", "system:serviceaccounts:"+w.Namespace)
	allowGroup(t, w, "nodes", "system:nodes")
	path := "/runs?environment_id=" + w.EnvironmentID("production")
	for name, c := range map[string]struct {
		owner v1alpha1.KeyOwner
		want  int
	}{
		"in no group":                      {v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "x"}, http.StatusForbidden},
		"in a group":                       {v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "x", Groups: []string{"dev"}}, http.StatusOK},
		"in system:masters":                {v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "x", Groups: []string{"system:masters"}}, http.StatusForbidden},
		"in another system group":          {v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "x", Groups: []string{"system:nodes"}}, http.StatusForbidden},
		"service account of the namespace": {v1alpha1.KeyOwner{Kind: v1alpha1.OwnerServiceAccount, Name: "ci"}, http.StatusOK},
		"service account of another namespace": {
			v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "system:serviceaccount:default:ci"}, http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Owner = c.owner })
			status, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, c.want, status, "%s", body)
		})
	}
}

func TestGroups_RequireExpirationWithinAYear(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	allowGroup(t, w, "developers", "dev")
	path := "/runs?environment_id=" + w.EnvironmentID("production")
	member := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Groups = []string{"dev"} })
	alone := w.CreateKey(t, nil)
	for later, want := range map[time.Duration]int{364 * 24 * time.Hour: http.StatusOK, 366 * 24 * time.Hour: http.StatusUnauthorized} {
		t.Run(later.String(), func(t *testing.T) {
			w.Server.Service.Now = func() time.Time { return time.Now().Add(later) }
			status, body := w.Call(t, member, http.MethodGet, path, "")
			require.Equal(t, want, status, "%s: %s", later, body)
			status, body = w.Call(t, alone, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, status, "%s: %s", later, body)
		})
	}
}
