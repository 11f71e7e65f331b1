// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// permissionOf is what the contract asks for each route; who adds one says here which.
var permissionOf = map[string]v1alpha1.Permission{
	"listEnvironments": "environments.view", "getEnvironment": "environments.view", "createEnvironment": "environments.create",
	"updateEnvironment": "environments.update", "deleteEnvironment": "environments.delete", "setDefaultEnvironment": "environments.update",
	"getVariables": "variables.view", "replaceVariables": "variables.update", "holdTestSession": "environments.update", "endTestSession": "environments.update",
	"listAgents": "agents.view", "getAgent": "agents.view",
	"listDeployments": "deployments.view", "getDeployment": "deployments.view", "createDeployment": "deployments.create", "listTestRuns": "deployments.test",
	"streamDeploymentLogs": "deployments.view", "cancelDeployment": "deployments.cancel", "activateDeployment": "deployments.activate",
	"uploadDeployment": "deployments.create", "redeploy": "deployments.redeploy", "deployAnyway": "deployments.override",
	"listRuns": "runs.view", "getRun": "runs.view", "readRunFile": "runs.view", "cancelRun": "runs.cancel", "eraseRun": "runs.delete", "listAuditLog": "audit_logs.view",
	"createConnector": "connectors.create", "listConnectors": "connectors.view", "getConnector": "connectors.view",
	"updateConnector": "connectors.update", "rotateSecret": "connectors.update", "testConnector": "connectors.update", "deleteConnector": "connectors.delete",
	"createLink": "connectors.link", "listLinks": "connectors.view", "getLink": "connectors.view",
	"updateLink": "connectors.link", "deleteLink": "connectors.link",
	"listConnectorRuns": "connectors.view", "getConnectorStats": "connectors.view", "getConnectorRun": "connectors.view", "replayConnectorRun": "connectors.update", "listRejections": "connectors.view",
	"createReplay": "connectors.update", "listReplays": "connectors.view", "getReplay": "connectors.view", "cancelReplay": "connectors.update",
}

// TestSectionsWithoutEffectAreSaid: the page of the kind names each section of permissions for which
// this release has no endpoint, and no other.
func TestSectionsWithoutEffectAreSaid(t *testing.T) {
	t.Parallel()
	section := func(permission string) string { name, _, _ := strings.Cut(permission, "."); return "`" + name + "`" }
	without := map[string]bool{}
	for _, p := range v1alpha1.Permissions() {
		without[section(string(p))] = true
	}
	for _, r := range routes {
		for _, need := range r.needs {
			if r.mount != nil {
				delete(without, section(need.permission))
			}
		}
	}
	page, err := os.ReadFile("../docs/spec/apikey.md")
	require.NoError(t, err)
	_, rest, there := strings.Cut(string(page), "The permissions of ")
	require.True(t, there)
	said, _, there := strings.Cut(rest, " have no effect in this release")
	require.True(t, there)
	var named []string
	for i, part := range strings.Split(said, "`") {
		if i%2 == 1 {
			named = append(named, "`"+part+"`")
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(without)), named)
}

// ownerOf makes a user who may what the permissions stand for, and no more.
func (w *world) ownerOf(t testing.TB, name string, permissions ...v1alpha1.Permission) (change func(*v1alpha1.APIKeySpec)) {
	t.Helper()
	for _, p := range permissions {
		access, known := p.Access()
		require.True(t, known, p)
		w.allow(t, name+"-"+strings.ReplaceAll(string(p), "_", "-"), name, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{access.Resource}, Verbs: []string{access.Verb},
		})
	}
	return func(k *v1alpha1.APIKeySpec) { k.Owner.Name = name }
}

// selected are the permissions of a key.
func selected(permissions ...v1alpha1.Permission) func(*v1alpha1.APIKeySpec) {
	return func(k *v1alpha1.APIKeySpec) { k.Access, k.Permissions = v1alpha1.AccessSelected, permissions }
}

// around are keys that have a permission alone, and that have all others; of each one
// that is narrowed itself, and one whose owner is.
type around struct{ least, lacking, leastOwner, lackingOwner string }

func (w *world) keysAround(t testing.TB, needed v1alpha1.Permission) around {
	t.Helper()
	but := func(all []v1alpha1.Permission) []v1alpha1.Permission {
		return slices.DeleteFunc(all, func(p v1alpha1.Permission) bool { return p == needed })
	}
	section, _, _ := strings.Cut(string(needed), ".")
	alike := slices.DeleteFunc(v1alpha1.Permissions(), func(p v1alpha1.Permission) bool { return !strings.HasPrefix(string(p), section+".") })
	name := strings.NewReplacer(".", "-", "_", "-").Replace(string(needed))
	return around{
		least: w.key(t, selected(needed)), leastOwner: w.key(t, w.ownerOf(t, "may-"+name, needed)),
		lacking: w.key(t, selected(but(v1alpha1.Permissions())...)), lackingOwner: w.key(t, w.ownerOf(t, "may-not-"+name, but(alike)...)),
	}
}

// acrossEnvironments are the routes that a key of another environment may call all the same,
// with what they answer: lists, which leave out what it does not reach.
var acrossEnvironments = map[string]int{"listEnvironments": http.StatusOK, "listRuns": http.StatusOK}

// leastBodies are bodies that ask for no other permission than the route does, where those of
// the samples do.
var leastBodies = map[string]string{"replaceVariables": `[]`}

// rejectedKey is a key that may call no route, and the status of the answers.
type rejectedKey struct {
	key    string
	status int
}

func (w *past) rejectedKeys(t *testing.T, all string) map[string]rejectedKey {
	t.Helper()
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	return map[string]rejectedKey{
		"no key":      {"", http.StatusUnauthorized},
		"malformed":   {all[:len(all)-1] + "!", http.StatusUnauthorized},
		"unknown":     {"ap_00000000_0000000000000000000000000000_000000", http.StatusUnauthorized},
		"revoked":     {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true }), http.StatusUnauthorized},
		"expired":     {w.key(t, func(k *v1alpha1.APIKeySpec) { k.ExpiresAt = &past }), http.StatusUnauthorized},
		"no rights":   {w.key(t, selected()), http.StatusForbidden},
		"owner is no": {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" }), http.StatusForbidden},
	}
}

// TestWhoMayCallEachRoute: with ids of what there is, so that nothing but the key decides;
// one permission is enough, of the key and of its owner.
func TestWhoMayCallEachRoute(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	all := w.key(t, nil)
	elsewhere := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	anyway := w.rejectedKeys(t, all)
	byPermission := map[v1alpha1.Permission]around{}
	for _, r := range served(t) {
		t.Run(r.id, func(t *testing.T) {
			needed := permissionOf[r.id]
			require.NotEmpty(t, needed, r.id)
			k, known := byPermission[needed]
			if !known {
				k = w.keysAround(t, needed)
				byPermission[needed] = k
			}
			ids := w.idsFor(t, r) // refused calls change nothing of them
			call := func(t *testing.T, key, project string) (int, string) {
				answer := w.send(t, key, r.method, "/v1/projects/"+project+samples[r.id].fill(t, ids), cmp.Or(leastBodies[r.id], bodyFor(r)))
				return answer.Code, answer.Body.String()
			}
			for name, c := range anyway {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, c.key, w.projectID.String())
					require.Equal(t, c.status, status, "%s, %s: %s", r.id, name, body)
				})
			}
			status, body := call(t, all, uuid.NewString())
			require.Equal(t, http.StatusForbidden, status, "%s of another project: %s", r.id, body)
			status, body = call(t, elsewhere, w.projectID.String())
			require.Equal(t, cmp.Or(acrossEnvironments[r.id], http.StatusForbidden), status, "%s by a key of another environment: %s", r.id, body)
			for name, key := range map[string]string{"a key without it": k.lacking, "an owner without it": k.lackingOwner} {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, key, w.projectID.String())
					require.Equal(t, http.StatusForbidden, status, "%s by %s: %s", r.id, name, body)
					require.Contains(t, body, "lacks the permission "+string(needed))
				})
			}
			for name, key := range map[string]string{"everything": all, "its permission alone": k.least, "its owner's verb alone": k.leastOwner} {
				t.Run(name, func(t *testing.T) {
					status, body := call(t, key, w.projectID.String())
					require.Equal(t, r.status, status, "%s by %s: %s", r.id, name, body)
					ids = w.idsFor(t, r)
				})
			}
		})
	}
	require.Len(t, permissionOf, len(samples))
}
