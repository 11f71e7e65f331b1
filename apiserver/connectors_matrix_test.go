// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
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
)

// permissionOf is what the contract asks for each route of connectors; who adds one
// says here which.
var permissionOf = map[string]v1alpha1.Permission{
	"createConnector": "connectors.create", "listConnectors": "connectors.view", "getConnector": "connectors.view",
	"updateConnector": "connectors.update", "rotateSecret": "connectors.update", "testConnector": "connectors.update", "deleteConnector": "connectors.delete",
	"createLink": "connectors.link", "listLinks": "connectors.view", "getLink": "connectors.view",
	"updateLink": "connectors.link", "deleteLink": "connectors.link",
	"listConnectorRuns": "connectors.view", "getConnectorRun": "connectors.view", "replayConnectorRun": "connectors.update", "listRejections": "connectors.view",
	"createReplay": "connectors.update", "listReplays": "connectors.view", "getReplay": "connectors.view", "cancelReplay": "connectors.update",
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
	ofConnectors := slices.DeleteFunc(v1alpha1.Permissions(), func(p v1alpha1.Permission) bool { return !strings.HasPrefix(string(p), "connectors.") })
	action := strings.TrimPrefix(string(needed), "connectors.")
	return around{
		least: w.key(t, selected(needed)), leastOwner: w.key(t, w.ownerOf(t, "may-"+action, needed)),
		lacking: w.key(t, selected(but(v1alpha1.Permissions())...)), lackingOwner: w.key(t, w.ownerOf(t, "may-not-"+action, but(ofConnectors)...)),
	}
}

// TestWhoMayCallTheRoutesOfConnectors: with ids of what there is, so that nothing but
// the key decides; one permission is enough, of the key and of its owner.
func TestWhoMayCallTheRoutesOfConnectors(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	all := w.key(t, nil)
	anyway := map[string]struct {
		key    string
		status int
	}{
		"no key":      {"", http.StatusUnauthorized},
		"malformed":   {all[:len(all)-1] + "!", http.StatusUnauthorized},
		"unknown":     {"ap_00000000_0000000000000000000000000000_000000", http.StatusUnauthorized},
		"revoked":     {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true }), http.StatusUnauthorized},
		"expired":     {w.key(t, func(k *v1alpha1.APIKeySpec) { k.ExpiresAt = &past }), http.StatusUnauthorized},
		"no rights":   {w.key(t, selected()), http.StatusForbidden},
		"owner is no": {w.key(t, func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" }), http.StatusForbidden},
		"other environment": {w.key(t, func(k *v1alpha1.APIKeySpec) {
			k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
		}), http.StatusForbidden},
	}
	byPermission := map[v1alpha1.Permission]around{}
	tried := 0
	for _, r := range served(t) {
		if r.tag != tagConnectors {
			continue
		}
		tried++
		needed := permissionOf[r.id]
		require.NotEmpty(t, needed, r.id)
		k, known := byPermission[needed]
		if !known {
			k = w.keysAround(t, needed)
			byPermission[needed] = k
		}
		call := func(key, project string) (int, string) {
			answer := w.send(t, key, r.method, "/v1/projects/"+project+samples[r.id].fill(t, w.idsFor(t, r)), bodyFor(r))
			return answer.Code, answer.Body.String()
		}
		for name, c := range anyway {
			status, body := call(c.key, w.projectID.String())
			require.Equal(t, c.status, status, "%s, %s: %s", r.id, name, body)
		}
		status, body := call(all, uuid.NewString())
		require.Equal(t, http.StatusForbidden, status, "%s of another project: %s", r.id, body)
		for name, key := range map[string]string{"a key without it": k.lacking, "an owner without it": k.lackingOwner} {
			status, body := call(key, w.projectID.String())
			require.Equal(t, http.StatusForbidden, status, "%s by %s: %s", r.id, name, body)
			require.Contains(t, body, "lacks the permission "+string(needed))
		}
		for name, key := range map[string]string{"everything": all, "its permission alone": k.least, "its owner's verb alone": k.leastOwner} {
			status, body := call(key, w.projectID.String())
			require.Equal(t, r.status, status, "%s by %s: %s", r.id, name, body)
		}
	}
	require.Len(t, permissionOf, tried)
	require.Len(t, byPermission, 5)
}
