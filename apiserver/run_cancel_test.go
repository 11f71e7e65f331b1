// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// TestARunIsCancelled: it ends, with the event that started it, and the answer is
// the run as it is read from then on.
func TestARunIsCancelled(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	run, event := w.event(t, "hello")
	status, answered := w.call(t, key, http.MethodPost, "/runs/"+run.String()+"/cancel", "")
	require.Equal(t, http.StatusOK, status, "%s", answered)
	shown := decode[Run](t, answered)
	require.Equal(t, RunStatus("cancelled"), shown.Status)
	require.Equal(t, "cancelled", *shown.ErrorCode)
	require.Equal(t, cancelReason, *shown.Error)
	require.NotNil(t, shown.EndedAt)
	require.Equal(t, map[string]any{"name": "Ada"}, shown.Input)
	_, read := w.call(t, key, http.MethodGet, "/runs/"+run.String(), "")
	require.JSONEq(t, string(read), string(answered))
	_, started := w.call(t, key, http.MethodGet, "/connectors/"+w.ids["connector"]+"/runs/"+event, "")
	require.NotEqual(t, ConnectorRunStatus("running"), decode[ConnectorRun](t, started).Status)

	entry := w.newest(t)
	require.Equal(t, store.AuditObject{Kind: "run", ID: run.String(), Name: "hello"}, entry.Outcome.Object)
	require.Contains(t, string(entry.Outcome.Before), `"status":"queued"`)
	require.Contains(t, string(entry.Outcome.After), `"status":"cancelled"`)
	require.NotContains(t, string(entry.Outcome.Before)+string(entry.Outcome.After), "Ada", "what the run was about is not for the audit log")
}

// TestARunThatIsUnderWayIsCancelled: its runner hears that it has lost it.
func TestARunThatIsUnderWayIsCancelled(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	claimed := w.claim(t)
	status, answered := w.call(t, w.key(t, nil), http.MethodPost, "/runs/"+claimed.Run.ID.String()+"/cancel", "")
	require.Equal(t, http.StatusOK, status, "%s", answered)
	require.Equal(t, RunStatus("cancelled"), decode[Run](t, answered).Status)
	require.Contains(t, string(w.newest(t).Outcome.Before), `"status":"running"`)
	lost, err := w.db.Heartbeat(t.Context(), store.Key{ProjectID: w.projectID, ID: w.id(t, "environment")}, []store.Held{{Lease: claimed}}, store.LeaseDuration)
	require.NoError(t, err)
	require.Equal(t, []store.Lease{claimed}, lost)
}

// TestARunThatEndedIsNotCancelled: and the answer says what it is. A key that was
// sent for another run, or by another API key, changes nothing about that.
func TestARunThatEndedIsNotCancelled(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, other := w.key(t, nil), w.key(t, nil)
	cancelled, _ := w.event(t, "hello")
	path := func(run uuid.UUID) string { return "/runs/" + run.String() + "/cancel" }
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPost, path(cancelled), "", "Idempotency-Key", "one").Code)
	for name, c := range map[string]struct {
		run      uuid.UUID
		key, idk string
		words    string
	}{
		"completed":                   {w.completed, key, "one", "it is completed"},
		"failed":                      {w.failed, key, "two", "it is failed"},
		"cancelled, by another call":  {cancelled, key, "two", "it is cancelled"},
		"cancelled, by somebody else": {cancelled, other, "one", "it is cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.ask(t, c.key, http.MethodPost, path(c.run), "", "Idempotency-Key", c.idk)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			p := decode[Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeConflict, p.Code)
			require.True(t, strings.HasSuffix(p.Detail, c.words), "%s", p.Detail)
		})
	}
	require.Equal(t, http.StatusConflict, w.ask(t, key, http.MethodPost, path(cancelled), "").Code, "without a key nothing is repeated")
}

// failedBefore is a store that cannot cancel.
type failedBefore struct {
	Store
	err error
}

func (f failedBefore) Cancel(context.Context, store.Key, store.RunErrorCode, string) error {
	return f.err
}

// TestARepeatedCancelDoesNotHideAnotherEnd: of a run that completed after the first
// call was lost.
func TestARepeatedCancelDoesNotHideAnotherEnd(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/runs/"+w.queued.String()+"/cancel"
	for err, status := range map[error]int{connectionRefused: http.StatusServiceUnavailable, store.ErrNotFound: http.StatusNotFound} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			w.server.store = failedBefore{w.db, err}
			require.Equal(t, status, w.ask(t, key, http.MethodPost, path, "", "Idempotency-Key", "one").Code)
		})
	}
	w.server.store = w.db
	w.finish(t)
	answer := w.ask(t, key, http.MethodPost, path, "", "Idempotency-Key", "one")
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	require.Contains(t, answer.Body.String(), "it is completed")
}

// TestARunIsCancelledWithinReachAlone: of the project, the environments of the key
// and its permissions.
func TestARunIsCancelledWithinReachAlone(t *testing.T) {
	t.Parallel()
	w := newPast(t)
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
		"another environment": {staging, w.queued, http.StatusForbidden},
		"only to be seen":     {viewing, w.queued, http.StatusForbidden},
		"no run":              {nil, uuid.New(), http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.call(t, w.key(t, c.change), http.MethodPost, "/runs/"+c.run.String()+"/cancel", "")
			require.Equal(t, c.status, status, "%s", answer)
		})
	}
	run, err := w.db.Run(t.Context(), store.Key{ProjectID: w.projectID, ID: w.queued})
	require.NoError(t, err)
	require.Equal(t, store.RunQueued, run.Status)
}
