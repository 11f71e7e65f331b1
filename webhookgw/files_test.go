// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
)

// TestFiles_ReachTheRunner: accepted files with their content, and the reasons of the others. A
// duplicate gets the same response.
func TestFiles_ReachTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy("hello")
	c := b.connector("sync", nil, "hello")
	body := `{"name":"Ada","files":[{"name":"a.txt","data":"` + base64.StdEncoding.EncodeToString([]byte("hello")) + `"},{"name":"b.exe","data":"TVoAAAA="}]}`
	type seen struct {
		run   dispatchapi.Run
		files dispatchapi.Files
		data  []byte
	}
	runs := make(chan seen, 1)
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	b.runnerBy(client, func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		s := seen{run: run}
		s.files, _ = client.Files(context.Background(), run.ID)
		s.data, _ = client.File(context.Background(), run.ID, 0, 5)
		runs <- s
		return completed(run)
	})
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }
	first := b.post(b.gateway, c.ID.String(), body, key)
	require.Equal(t, 200, first.status, "%v", first.body)
	require.EqualValues(t, 1, first.body["accepted"])
	require.EqualValues(t, 1, first.body["omitted"])
	require.Equal(t, []any{map[string]any{"name": "b.exe", "field_name": "files", "reason": "unsupported_type"}}, first.body["issues"])
	s := <-runs
	require.True(t, s.run.Files)
	require.NotContains(t, string(s.run.Input), "aGVsbG8", "the bytes are apart")
	require.Equal(t, dispatchapi.Files{
		Files:  []dispatchapi.File{{Name: "a.txt", FieldName: "files", MIMEType: "text/plain", Size: 5}},
		Issues: []dispatchapi.FileIssue{{Name: "b.exe", FieldName: "files", Reason: "unsupported_type"}},
	}, s.files)
	require.Equal(t, "hello", string(s.data))
	again := b.post(b.gateway, c.ID.String(), body, key)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	_, err = client.File(t.Context(), s.run.ID, 1, 5)
	require.ErrorIs(t, err, dispatchapi.ErrRejected)
	_, err = client.Files(t.Context(), uuid.New())
	require.ErrorIs(t, err, dispatchapi.ErrRejected)
	plain := b.post(b.gateway, c.ID.String(), `{"name":"Ada"}`, nil)
	require.NotContains(t, plain.body, "accepted")
	require.False(t, (<-runs).run.Files)
}

// TestErasedRun_IsNotReplayed: a duplicate request gets an error. If another run than the first is
// erased, its result shows that.
func TestErasedRun_IsNotReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy("hello", "welcome")
	b.runner(completed)
	c := b.connector("sync", nil, "hello", "welcome")
	key := func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }
	first := b.post(b.gateway, c.ID.String(), `{}`, key)
	require.Equal(t, 200, first.status, "%v", first.body)
	require.Equal(t, first.body, b.post(b.gateway, c.ID.String(), `{}`, key).body)
	results := first.body["results"].([]any)
	require.Len(t, results, 2)
	erase := func(result any) {
		erased := uuid.MustParse(result.(map[string]any)["run_id"].(string))
		require.NoError(t, b.store.EraseRun(t.Context(), store.Key{ProjectID: b.project, ID: erased}))
	}
	erase(results[1])
	again := b.post(b.gateway, c.ID.String(), `{}`, key)
	require.Equal(t, 200, again.status, "%v", again.body)
	require.Equal(t, results[0], again.body["results"].([]any)[0], "which is there")
	require.Equal(t, "gone", again.body["results"].([]any)[1].(map[string]any)["status"])
	erase(results[0])
	again = b.post(b.gateway, c.ID.String(), `{}`, key)
	require.Equal(t, 409, again.status, "%v", again.body)
	require.Equal(t, "gone", again.body["code"])
	require.Empty(t, again.header.Get("Retry-After"))
	require.Empty(t, again.header.Get("Idempotent-Replayed"))
}

// TestFiles_Required: by the connector, or by a link for its agent only.
func TestFiles_Required(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy("hello", "welcome")
	b.runner(completed)
	file := func(data string) string { return `{"files":[{"data":"` + data + `"}]}` }
	all := b.connector("sync", func(c *store.Connector) { c.Config = []byte(`{"files_required":true}`) }, "hello")
	one := b.connector("sync", nil, "hello")
	link := store.Link{
		Ref: ref("ConnectorLink", uuid.NewString(), 1), ID: uuid.New(), ProjectID: b.project, ConnectorID: one.ID, AgentName: "welcome", FilesRequired: true,
	}
	require.NoError(t, b.store.PutLink(t.Context(), link))
	const some, omitted = "aGVsbG8=", "TVoAAAA="
	for body, want := range map[string]string{`{}`: "failed", file(omitted): "failed", file(some): "completed"} {
		t.Run(body, func(t *testing.T) {
			got := b.post(b.gateway, all.ID.String(), body, nil)
			require.Equal(t, 200, got.status)
			result := got.body["result"].(map[string]any)
			require.Equal(t, want, result["status"])
			run, err := b.store.Run(t.Context(), store.Key{ProjectID: b.project, ID: uuid.MustParse(result["run_id"].(string))})
			require.NoError(t, err)
			require.Equal(t, want == "failed", run.ErrorCode == runerror.FilesRequired)
			got = b.post(b.gateway, one.ID.String(), body, nil)
			statuses := map[any]any{}
			for _, r := range got.body["results"].([]any) {
				statuses[r.(map[string]any)["agent_name"]] = r.(map[string]any)["status"]
			}
			require.Equal(t, map[any]any{"hello": "completed", "welcome": want}, statuses)
		})
	}
}
