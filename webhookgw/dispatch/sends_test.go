// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// TestSend_CreatesDelivery: with the claim of its run, and the run gets the result.
func TestSend_CreatesDelivery(t *testing.T) {
	t.Parallel()
	run, delivery := uuid.New(), uuid.New()
	for want, f := range map[string]*fake{
		`"status":"queued"`: {sent: store.Sent{DeliveryID: delivery}},
		`"status":"skipped","reason":"the connector is disabled"`: {sent: store.Sent{DeliveryID: delivery, Skipped: "the connector is disabled"}},
	} {
		t.Run(want, func(t *testing.T) {
			w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/runs/"+run.String()+"/sends",
				`{"token":7,"mode":"agent_tool","name":"tell","position":3,"payload":{"n": 1}}`)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			require.JSONEq(t, fmt.Sprintf(`{"delivery_id":%q,%s}`, delivery, want), w.Body.String())
			require.Equal(t, []store.Send{{
				Lease: store.Lease{Run: store.Key{ProjectID: named("a"), ID: run}, Token: 7}, Mode: store.LinkAgentTool, Name: "tell",
				Position: 3, Payload: json.RawMessage(`{"n": 1}`),
			}}, f.sends)
		})
	}
}

func TestSend_Errors(t *testing.T) {
	t.Parallel()
	whole := `{"token":7,"mode":"agent_tool","name":"tell","position":3,"payload":1}`
	for _, c := range []struct {
		body   string
		unsent error
		status int
		says   string
	}{
		{whole, fmt.Errorf("sending: %w", store.ErrFenced), http.StatusConflict, `"fenced"`},
		{whole, fmt.Errorf("sending: %w", store.ErrNotFound), http.StatusNotFound, `no link for this tool`},
		{whole, fmt.Errorf("sending: %w", &store.TooManySendsError{}), http.StatusUnprocessableEntity, `"too_many_sends"`},
		{whole, fmt.Errorf("sending: %w", &store.TooMuchSentError{}), http.StatusUnprocessableEntity, `"too_much_sent"`},
		{whole, fmt.Errorf("sending: %w", &store.StorageFullError{Stored: 7, Limit: 5}), http.StatusUnprocessableEntity, `"project_storage_full"`},
		{whole, errors.New("away"), http.StatusServiceUnavailable, `"store_unavailable"`},
		{`{"token":7,"mode":"automatic","name":"tell","position":3,"payload":1}`, nil, http.StatusUnprocessableEntity, "automatic"},
		{`{"token":7,"mode":"agent_tool","name":"tell","position":3}`, nil, http.StatusUnprocessableEntity, "not JSON"},
		{strings.Replace(whole, `:1}`, `:{"n":1e400}}`, 1), nil, http.StatusUnprocessableEntity, "the number is too large"},
		{`{"token":7,"mode":"agent_tool","name":"tell","position":0,"payload":1}`, nil, http.StatusUnprocessableEntity, "position"},
		{strings.Replace(whole, `:1}`, `:"`+strings.Repeat("x", dispatchapi.MaxPayload)+`"}`, 1), nil, http.StatusRequestEntityTooLarge, `"too_large"`},
		{strings.Replace(whole, `:1}`, `:"`+strings.Repeat("x", dispatchapi.MaxSendRequest)+`"}`, 1), nil, http.StatusRequestEntityTooLarge, `"request_too_large"`},
	} {
		t.Run(c.says, func(t *testing.T) {
			f := &fake{unsent: c.unsent}
			w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/runs/"+uuid.NewString()+"/sends", c.body)
			require.Equal(t, c.status, w.Code, w.Body.String())
			require.Contains(t, w.Body.String(), c.says)
			require.Equal(t, c.unsent != nil, len(f.sends) > 0)
		})
	}
}

// TestClaim_ReturnsActions: only their names. If they cannot be read, no run is returned, because a
// run must know its tools.
func TestClaim_ReturnsActions(t *testing.T) {
	t.Parallel()
	f := &fake{actions: []string{"tell", "file"}}
	for range 2 {
		run := store.Run{ID: uuid.New(), ProjectID: named("a"), EnvironmentID: named("a"), AgentName: "hello"}
		f.claimed = append(f.claimed, store.Claimed{Run: run, Token: 1})
	}
	w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/claim", `{"runner_id":"r","limit":2,"places":2}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var resp dispatchapi.ClaimResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
	require.Len(t, resp.Runs, 2)
	for _, run := range resp.Runs {
		require.Equal(t, []dispatchapi.Action{{Name: "tell", Connector: "a connector"}, {Name: "file", Connector: "a connector"}}, run.Actions)
	}
	require.Equal(t, 1, f.calls("Actions"), "one query for all")

	f.actionless = errors.New("away")
	w = ask(t, handlerOf(f), "a", http.MethodPost, "/v1/claim", `{"runner_id":"r","limit":2,"places":2}`)
	require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body.String())
	require.Empty(t, f.released, "it is queried again, with the same token")
}

// TestActions_CacheUntilHint: a hint of the project, a lost hint, or a change during the read
// invalidates them.
func TestActions_CacheUntilHint(t *testing.T) {
	t.Parallel()
	a, reads := newToolCache(), 0
	hints, followed := make(chan store.Hint), make(chan struct{})
	read := func(context.Context, []string) ([]store.Action, error) {
		reads++
		return []store.Action{{AgentName: "hello", Name: fmt.Sprint("tell_", reads)}}, nil
	}
	environment := store.Key{ProjectID: named("a"), ID: named("a")}
	ask := func(names ...string) string {
		of, err := a.toolsOf(t.Context(), environment, names, read)
		require.NoError(t, err)
		return of["hello"][0].Name
	}
	require.Equal(t, "tell_1", ask("hello"))
	require.Equal(t, "tell_2", ask("hello"), "there is no hint about changes")
	go func() { a.followHints(hints); close(followed) }()
	hear := func(key store.Key) {
		hints <- store.Hint{Topic: store.TopicRoute, Key: key}
		hints <- store.Hint{Topic: store.TopicRoute, Key: store.Key{ProjectID: named("nobody")}} // the previous hint was processed
	}
	hear(store.Key{ProjectID: named("b"), ID: named("c")})
	require.Equal(t, "tell_3", ask("hello"))
	require.Equal(t, "tell_3", ask("hello"))
	hear(store.Key{ProjectID: named("b"), ID: named("c")})
	require.Equal(t, "tell_3", ask("hello"), "another project's")
	_, err := a.toolsOf(t.Context(), environment, []string{"hello", "other"}, func(_ context.Context, names []string) ([]store.Action, error) {
		require.Equal(t, []string{"other"}, names)
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, "tell_3", ask("hello", "other"), "an agent without tools is cached too")
	hear(store.Key{ProjectID: named("a"), ID: named("c")})
	require.Equal(t, "tell_4", ask("hello"))
	hear(store.Key{})
	require.Equal(t, "tell_5", ask("hello"))
	before := read
	hear(store.Key{})
	read = func(ctx context.Context, names []string) ([]store.Action, error) {
		hear(store.Key{ProjectID: named("a"), ID: named("c")})
		return before(ctx, names)
	}
	require.Equal(t, "tell_6", ask("hello"))
	read = func(context.Context, []string) ([]store.Action, error) { return nil, errors.New("away") }
	_, err = a.toolsOf(t.Context(), environment, []string{"hello"}, read)
	require.Error(t, err, "it changed during the read")
	close(hints)
	<-followed
}
