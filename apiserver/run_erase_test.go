// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// TestARunIsErased: nobody finds it from then on, and the audit log says who did it and nothing of
// what it was about.
func TestARunIsErased(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := "/runs/" + w.failed.String()
	_, listed := w.call(t, key, http.MethodGet, "/runs", "")
	before := decode[RunList](t, listed).Items
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path, "", "Idempotency-Key", "one").Code)
	entry := w.newest(t)
	require.Equal(t, "eraseRun", entry.Operation)
	require.Equal(t, store.AuditObject{Kind: "run", ID: w.failed.String(), Name: "gone"}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.Before), `"status":"failed"`)
	require.Contains(t, string(entry.Outcome.Before), `"error":null`)
	require.NotContains(t, string(entry.Outcome.Before), "Ada")
	for _, gone := range []string{path, path + "/files/0"} {
		status, answer := w.call(t, key, http.MethodGet, gone, "")
		require.Equal(t, http.StatusNotFound, status, "%s: %s", gone, answer)
	}
	_, listed = w.call(t, key, http.MethodGet, "/runs", "")
	require.Len(t, decode[RunList](t, listed).Items, len(before)-1)
	require.NotContains(t, string(listed), w.failed.String())
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path, "", "Idempotency-Key", "one").Code, "the same call again")
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, path, "").Code)
}

// TestARunIsErasedWithinReachAlone: of the project, the environments of the key and its
// permissions; and one that is open is to be cancelled before.
func TestARunIsErasedWithinReachAlone(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	staging := func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	}
	cancelling := func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.view", "runs.cancel"}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.APIKeySpec)
		run    uuid.UUID
		status int
		words  string
	}{
		"another environment":     {staging, w.completed, http.StatusForbidden, ""},
		"only to be cancelled":    {cancelling, w.completed, http.StatusForbidden, "runs.delete"},
		"no run":                  {nil, uuid.New(), http.StatusNotFound, ""},
		"one that waits is there": {nil, w.queued, http.StatusConflict, "cancel it first"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.call(t, w.key(t, c.change), http.MethodDelete, "/runs/"+c.run.String(), "")
			require.Equal(t, c.status, status, "%s", answer)
			require.Contains(t, string(answer), c.words)
		})
	}
	for _, run := range []uuid.UUID{w.completed, w.queued} {
		_, err := w.db.Run(t.Context(), store.Key{ProjectID: w.projectID, ID: run})
		require.NoError(t, err)
	}
}
