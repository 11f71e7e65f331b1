// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// TestCallers_ShareOfProject: a caller beyond the share gets an error before anything is recorded,
// and can use Prefer: respond-async.
func TestCallers_ShareOfProject(t *testing.T) {
	t.Parallel()
	k := &keeper{mode: "sync"}
	h := serving(t, k)
	asks := func() {
		answer, p := post(t, h, strings.NewReader(`{}`))
		require.Equal(t, "2", answer.Header().Get("Retry-After"))
		refused(t, withRetry(p), http.StatusTooManyRequests, httpserver.CodeTooManyCallers)
		require.Empty(t, k.events)
	}
	for range maxCallers / projectShare {
		require.NoError(t, h.callers.Take(project, 1))
	}
	asks()
	h.callers.Give(project, maxCallers/projectShare)
	fill(h.callers, 1)
	asks()
	answer, _ := post(t, h, strings.NewReader(`{}`), "Prefer", "respond-async")
	require.Equal(t, http.StatusAccepted, answer.Code)
}

// TestClass_OfRequest: requests with waiting callers have priority.
func TestClass_OfRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode   string
		header []string
		want   store.Class
	}{
		"inbound":       {"inbound", nil, store.ClassInbound},
		"sync, no wait": {"sync", []string{"Prefer", "respond-async"}, store.ClassInbound},
		"sync":          {"sync", nil, store.ClassSync},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{mode: c.mode, verdict: store.KeyReused} // so that no caller waits
			_, refused := post(t, serving(t, k), strings.NewReader(`{}`), c.header...)
			require.Equal(t, httpserver.CodeKeyReused, refused.Code)
			require.Len(t, k.events, 1)
			require.Equal(t, c.want, k.events[0].Class)
			require.NotEqual(t, uuid.Nil, k.events[0].ConnectorRunID)
		})
	}
}
