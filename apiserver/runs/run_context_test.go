// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

// An ended run and its list item have the context that scripts set. Searches find the run by it until the run is erased.
func TestRunContext_IsShownAndSearched(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	id := lease.Run.ID.String()
	const set = `{"customer":"Beta AG","order":9007199254740993}`
	require.Empty(t, getRun(t, w, key, id).Context)
	ends, err := w.Store.Complete(t.Context(), []store.Completion{{Lease: lease, Status: store.RunCompleted, Context: json.RawMessage(set)}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	require.Equal(t, set, string(getRun(t, w, key, id).Context))

	find := func(text string) []runs.Run {
		status, body := w.Call(t, key, http.MethodGet, "/runs?"+url.Values{"search": {text}}.Encode(), "")
		require.Equal(t, http.StatusOK, status, string(body))
		return apiservertest.Decode[runs.RunList](t, body).Items
	}
	searches := []string{`context.customer == "Beta AG" && context.order == 9007199254740993`, `"beta ag" 9007199254740993`}
	for range 2 {
		for _, text := range searches {
			found := find(text)
			require.Len(t, found, 1, text)
			require.Equal(t, id, found[0].ID)
			require.Equal(t, set, string(found[0].Context))
		}
		require.Empty(t, find(`context.customer == "Acme"`))
		indexRuns(t, w)
	}

	status, body := w.Call(t, key, http.MethodDelete, "/runs/"+id, "")
	require.Equal(t, http.StatusOK, status, string(body))
	for _, text := range searches {
		require.Empty(t, find(text), text)
	}
}

// The headers of the event join what scripts set. A script cannot replace them.
func TestRunContext_HasHeaders(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, lease := w.CreateKey(t, nil), w.ClaimRun(t)
	ends, err := w.Store.Complete(t.Context(), []store.Completion{{
		Lease: lease, Status: store.RunCompleted, Context: json.RawMessage(`{"headers":{"x-team":"other"},"order":9007199254740993}`),
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, ends)
	w.UseStore(inputs{Store: w.Store, headers: map[string]string{"x-team": "payments"}, body: strings.NewReader("text")})
	require.Equal(t, rest.Object(`{"headers":{"x-team":"payments"},"order":9007199254740993}`), getRun(t, w, key, lease.Run.ID.String()).Context)
}
