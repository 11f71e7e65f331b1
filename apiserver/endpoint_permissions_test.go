// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// allowOwner creates a user with exactly the rights of these permissions.
func allowOwner(t testing.TB, w *apiservertest.Project, name string, permissions ...v1alpha1.Permission) (change func(*v1alpha1.APIKeySpec)) {
	t.Helper()
	for _, p := range permissions {
		access, known := p.Access()
		require.True(t, known, p)
		w.Allow(t, name+"-"+strings.ReplaceAll(string(p), "_", "-"), name, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{access.Resource}, Verbs: []string{access.Verb},
		})
	}
	return func(k *v1alpha1.APIKeySpec) { k.Owner.Name = name }
}

// selectPermissions are the permissions of a key.
func selectPermissions(permissions ...v1alpha1.Permission) func(*v1alpha1.APIKeySpec) {
	return func(k *v1alpha1.APIKeySpec) { k.Access, k.Permissions = v1alpha1.AccessSelected, permissions }
}

// keysOfPermission are keys that have a permission alone, and that have all others; of each one
// that is narrowed itself, and one whose owner is.
type keysOfPermission struct{ least, lacking, leastOwner, lackingOwner string }

func keysAround(t testing.TB, w *apiservertest.Project, needed v1alpha1.Permission) keysOfPermission {
	t.Helper()
	but := func(all []v1alpha1.Permission) []v1alpha1.Permission {
		return slices.DeleteFunc(all, func(p v1alpha1.Permission) bool { return p == needed })
	}
	section, _, _ := strings.Cut(string(needed), ".")
	alike := slices.DeleteFunc(v1alpha1.Permissions(), func(p v1alpha1.Permission) bool { return !strings.HasPrefix(string(p), section+".") })
	name := strings.NewReplacer(".", "-", "_", "-").Replace(string(needed))
	return keysOfPermission{
		least: w.CreateKey(t, selectPermissions(needed)), leastOwner: w.CreateKey(t, allowOwner(t, w, "may-"+name, needed)),
		lacking: w.CreateKey(t, selectPermissions(but(v1alpha1.Permissions())...)), lackingOwner: w.CreateKey(t, allowOwner(t, w, "may-not-"+name, but(alike)...)),
	}
}

// acrossEnvironments are the routes that a key of another environment may call all the same,
// with what they answer: lists, which leave out what it does not reach.
var acrossEnvironments = map[string]int{"listEnvironments": http.StatusOK, "listRuns": http.StatusOK}

// leastBodies are bodies that need only the permission of the endpoint, for examples that need more.
var leastBodies = map[string]string{"replaceVariables": `[]`}

// rejectedKey is a key that may call no route, and the status of the answers.
type rejectedKey struct {
	key    string
	status int
}

func rejectedKeys(t *testing.T, w *apiservertest.ProjectWithHistory, all string) map[string]rejectedKey {
	t.Helper()
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	return map[string]rejectedKey{
		"no key":         {"", http.StatusUnauthorized},
		"malformed":      {all[:len(all)-1] + "!", http.StatusUnauthorized},
		"unknown":        {"ap_00000000_0000000000000000000000000000_000000", http.StatusUnauthorized},
		"revoked":        {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true }), http.StatusUnauthorized},
		"expired":        {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.ExpiresAt = &past }), http.StatusUnauthorized},
		"no permissions": {w.CreateKey(t, selectPermissions()), http.StatusForbidden},
		"unknown owner":  {w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" }), http.StatusForbidden},
	}
}

// The IDs exist, so only the key decides. The key and its owner both need the permission.
func TestEndpoints_RequireEachPermission(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	all := w.CreateKey(t, nil)
	elsewhere := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	anyway := rejectedKeys(t, w, all)
	byPermission := map[v1alpha1.Permission]keysOfPermission{}
	for _, r := range apiservertest.SupportedEndpoints(t) {
		t.Run(r.ID, func(t *testing.T) {
			needed := r.Permissions[0].Permission
			k, known := byPermission[needed]
			if !known {
				k = keysAround(t, w.Project, needed)
				byPermission[needed] = k
			}
			ids := idsForExample(t, w, r) // refused calls change nothing of them
			call := func(t *testing.T, key, project string) (int, string) {
				answer := w.Send(t, key, r.Method, "/v1/projects/"+project+apiservertest.FillPath(t, r.Example.Path, ids), cmp.Or(leastBodies[r.ID], bodyFor(r)))
				return answer.Code, answer.Body.String()
			}
			for name, c := range anyway {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, c.key, w.ProjectID.String())
					require.Equal(t, c.status, status, "%s, %s: %s", r.ID, name, body)
				})
			}
			status, body := call(t, all, uuid.NewString())
			require.Equal(t, http.StatusForbidden, status, "%s of another project: %s", r.ID, body)
			status, body = call(t, elsewhere, w.ProjectID.String())
			require.Equal(t, cmp.Or(acrossEnvironments[r.ID], http.StatusForbidden), status, "%s by a key of another environment: %s", r.ID, body)
			for name, key := range map[string]string{"a key without it": k.lacking, "an owner without it": k.lackingOwner} {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, key, w.ProjectID.String())
					require.Equal(t, http.StatusForbidden, status, "%s by %s: %s", r.ID, name, body)
					require.Contains(t, body, "lacks the permission "+string(needed))
				})
			}
			for name, key := range map[string]string{"everything": all, "its permission alone": k.least, "its owner's verb alone": k.leastOwner} {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, key, w.ProjectID.String())
					require.Equal(t, r.Status, status, "%s by %s: %s", r.ID, name, body)
					ids = idsForExample(t, w, r)
				})
			}
		})
	}
}

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
