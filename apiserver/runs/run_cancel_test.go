// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// The event of the run ends too. The response equals a later read of the run.
func TestCancelRun_EndsQueuedRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	run, event := w.AcceptEvent(t, "hello")
	status, answered := w.Call(t, key, http.MethodPost, "/runs/"+run.String()+"/cancel", "")
	require.Equal(t, http.StatusOK, status, "%s", answered)
	shown := apiservertest.Decode[runs.Run](t, answered)
	require.Equal(t, runs.RunStatus("cancelled"), shown.Status)
	require.Equal(t, "cancelled", *shown.ErrorCode)
	require.Equal(t, "cancelled through the REST API", *shown.Error)
	require.NotNil(t, shown.EndedAt)
	require.Equal(t, map[string]any{"name": "Ada"}, shown.Input)
	_, read := w.Call(t, key, http.MethodGet, "/runs/"+run.String(), "")
	whole := apiservertest.Decode[runs.Run](t, read)
	whole.Traces = []runs.Span{} // so that no cancellation waits for a turn to read a journal
	require.Equal(t, whole, shown)
	_, started := w.Call(t, key, http.MethodGet, "/connectors/"+w.IDs["connector"]+"/runs/"+event, "")
	require.NotEqual(t, runs.ConnectorRunStatus("running"), apiservertest.Decode[runs.ConnectorRun](t, started).Status)

	entry := w.NewestAuditEntry(t)
	require.Equal(t, store.AuditObject{Kind: "run", ID: run.String(), Name: "hello"}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.Before), `"status":"queued"`)
	require.Contains(t, string(entry.Outcome.After), `"status":"cancelled"`)
	require.NotContains(t, string(entry.Outcome.Before)+string(entry.Outcome.After), "Ada", "what the run was about is not for the audit log")
}

// The runner learns that it has lost its lease.
func TestCancelRun_EndsRunningRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	claimed := w.ClaimRun(t)
	status, answered := w.Call(t, w.CreateKey(t, nil), http.MethodPost, "/runs/"+claimed.Run.ID.String()+"/cancel", "")
	require.Equal(t, http.StatusOK, status, "%s", answered)
	require.Equal(t, runs.RunStatus("cancelled"), apiservertest.Decode[runs.Run](t, answered).Status)
	require.Contains(t, string(w.NewestAuditEntry(t).Outcome.Before), `"status":"running"`)
	lost, err := w.Store.Heartbeat(t.Context(), store.Key{ProjectID: w.ProjectID, ID: w.ObjectID(t, "environment")}, []store.Held{{Lease: claimed}}, store.LeaseDuration)
	require.NoError(t, err)
	require.Equal(t, []store.Lease{claimed}, lost)
}

// The response shows the status. An Idempotency-Key of another run or another API key does not matter.
func TestCancelRun_RejectsEndedRun(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, other := w.CreateKey(t, nil), w.CreateKey(t, nil)
	cancelled, _ := w.AcceptEvent(t, "hello")
	path := func(run uuid.UUID) string { return "/runs/" + run.String() + "/cancel" }
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPost, path(cancelled), "", "Idempotency-Key", "one").Code)
	for name, c := range map[string]struct {
		run      uuid.UUID
		key, idk string
		words    string
	}{
		"completed":                  {w.CompletedRun, key, "one", "its status is completed"},
		"failed":                     {w.FailedRun, key, "two", "its status is failed"},
		"cancelled, by another call": {cancelled, key, "two", "its status is cancelled"},
		"cancelled, by another key":  {cancelled, other, "one", "its status is cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.Request(t, c.key, http.MethodPost, path(c.run), "", "Idempotency-Key", c.idk)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			p := apiservertest.Decode[rest.Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeConflict, p.Code)
			require.True(t, strings.HasSuffix(p.Detail, c.words), "%s", p.Detail)
		})
	}
	require.Equal(t, http.StatusConflict, w.Request(t, key, http.MethodPost, path(cancelled), "").Code, "without a key nothing is repeated")
}

// failedBefore is a store that cannot cancel.
type failedBefore struct {
	apiserver.Store
	err error
}

func (f failedBefore) Cancel(context.Context, store.Key, runerror.Code, string) error {
	return f.err
}

// The run completed after the first call was lost.
func TestCancelRun_RepetitionShowsOtherEnd(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/runs/"+w.QueuedRun.String()+"/cancel"
	for err, status := range map[error]int{apiservertest.ErrConnectionRefused: http.StatusServiceUnavailable, store.ErrNotFound: http.StatusNotFound} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			w.UseStore(failedBefore{w.Store, err})
			require.Equal(t, status, w.Request(t, key, http.MethodPost, path, "", "Idempotency-Key", "one").Code)
		})
	}
	w.UseStore(w.Store)
	w.CompleteRun(t)
	answer := w.Request(t, key, http.MethodPost, path, "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	require.Contains(t, answer.Body.String(), "its status is completed")
}

// The caller needs the project, the environment and the permission.
func TestCancelRun_RequiresReach(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	staging := func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	}
	viewing := func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"runs.view"}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.APIKeySpec)
		run    uuid.UUID
		status int
	}{
		"another environment":  {staging, w.QueuedRun, http.StatusForbidden},
		"only view permission": {viewing, w.QueuedRun, http.StatusForbidden},
		"unknown run":          {nil, uuid.New(), http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.Call(t, w.CreateKey(t, c.change), http.MethodPost, "/runs/"+c.run.String()+"/cancel", "")
			require.Equal(t, c.status, status, "%s", answer)
		})
	}
	run, err := w.Store.Run(t.Context(), store.Key{ProjectID: w.ProjectID, ID: w.QueuedRun})
	require.NoError(t, err)
	require.Equal(t, store.RunQueued, run.Status)
}
