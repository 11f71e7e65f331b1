// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

// The audit log records the actor but none of the content.
func TestEraseRun_DeletesRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := "/runs/" + w.FailedRun.String()
	_, listed := w.Call(t, key, http.MethodGet, "/runs", "")
	before := apiservertest.Decode[runs.RunList](t, listed).Items
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path, "", "Idempotency-Key", "one").Code)
	entry := w.NewestAuditEntry(t)
	require.Equal(t, "eraseRun", entry.Operation)
	require.Equal(t, store.AuditObject{Kind: "run", ID: w.FailedRun.String(), Name: "gone"}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.Before), `"status":"failed"`)
	require.Contains(t, string(entry.Outcome.Before), `"error":null`)
	require.NotContains(t, string(entry.Outcome.Before), "Ada")
	for _, gone := range []string{path, path + "/files/0"} {
		status, answer := w.Call(t, key, http.MethodGet, gone, "")
		require.Equal(t, http.StatusNotFound, status, "%s: %s", gone, answer)
	}
	_, listed = w.Call(t, key, http.MethodGet, "/runs", "")
	require.Len(t, apiservertest.Decode[runs.RunList](t, listed).Items, len(before)-1)
	require.NotContains(t, string(listed), w.FailedRun.String())
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path, "", "Idempotency-Key", "one").Code, "the same call again")
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, path, "").Code)
}

// The caller needs the project, the environment and the permission. An open run must be cancelled first.
func TestEraseRun_RequiresReach(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
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
		"another environment":    {staging, w.CompletedRun, http.StatusForbidden, ""},
		"only cancel permission": {cancelling, w.CompletedRun, http.StatusForbidden, "runs.delete"},
		"unknown run":            {nil, uuid.New(), http.StatusNotFound, ""},
		"open run":               {nil, w.QueuedRun, http.StatusConflict, "cancel it first"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.Call(t, w.CreateKey(t, c.change), http.MethodDelete, "/runs/"+c.run.String(), "")
			require.Equal(t, c.status, status, "%s", answer)
			require.Contains(t, string(answer), c.words)
		})
	}
	for _, run := range []uuid.UUID{w.CompletedRun, w.QueuedRun} {
		_, err := w.Store.Run(t.Context(), store.Key{ProjectID: w.ProjectID, ID: run})
		require.NoError(t, err)
	}
}
