// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestPush_CommitsBeforeResponse: at the public port, beside the webhooks of connectors.
func TestPush_CommitsBeforeResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(project uuid.UUID, event string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+b.gateway.PublicAddr()+"/git/"+project.String(), strings.NewReader(`{"ref":"refs/heads/main"}`))
		require.NoError(t, err)
		req.Header.Set("X-GitHub-Event", event)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	asked := func() []store.PollRequest {
		looks, err := b.store.ListPollRequests(t.Context(), uuid.Nil, 10)
		require.NoError(t, err)
		return looks
	}
	status, body := post(b.project, "ping")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ignored"}`, body)
	status, body = post(uuid.New(), "push")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "webhook_not_found")
	require.Empty(t, asked())
	status, body = post(b.project, "push")
	require.Equal(t, http.StatusAccepted, status)
	require.JSONEq(t, `{"status":"accepted"}`, body)
	require.Equal(t, []store.PollRequest{{ProjectID: b.project, Namespace: "team"}}, asked())
}
