// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// tell posts to the internal port like a tenant's pod that ignores all limits. It returns the
// status and the error code.
func (b *bundle) tell(token, path string, body any) (int, string) {
	data, err := json.Marshal(body)
	require.NoError(b.t, err)
	return b.send(token, path, data)
}

// listed returns a JSON list with n copies of an element.
func listed(element string, n int) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

func (b *bundle) send(token, path string, data []byte) (int, string) {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://"+b.gateway.InternalAddr()+path, bytes.NewReader(data))
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{}).Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	var problem struct {
		Code string `json:"code"`
	}
	answer, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	if len(answer) > 0 {
		require.NoError(b.t, json.Unmarshal(answer, &problem), "%s", answer)
	}
	return resp.StatusCode, problem.Code
}

// startBuild starts the build of a deployment, with a token.
func (b *bundle) startBuild(token string) store.Key {
	id := uuid.New()
	build := store.Key{ProjectID: b.project, ID: id}
	_, err := b.store.BeginDeployment(b.t.Context(), store.DeploymentSpec{
		Ref: ref("Deployment", "built", 1), ID: id, ProjectID: b.project, EnvironmentID: b.environment, Fingerprint: "f", SourceType: "git",
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.store.StartBuild(b.t.Context(), build, ""))
	require.NoError(b.t, b.store.PutToken(b.t.Context(), store.Token{
		SHA256: secrets.Digest(token), Kind: store.TokenBuild, ProjectID: b.project, EnvironmentID: b.environment, DeploymentID: &id,
	}))
	return build
}

// TestBuildToken_StaysWithinStoreLimits: the log and all other reports of a build are limited.
func TestBuildToken_StaysWithinStoreLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const token = "build-token"
	build := b.startBuild(token)
	chunk := strings.Repeat("l", dispatchapi.MaxBuildLog)
	for number := range int64(4) {
		status, _ := b.tell(token, "/v1/build/log", dispatchapi.BuildLog{Number: number, Chunk: chunk})
		require.Equal(t, http.StatusNoContent, status)
	}
	log, err := b.store.BuildLog(t.Context(), build)
	require.NoError(t, err)
	require.LessOrEqual(t, len(log), dispatchapi.MaxBuildLog)
	require.True(t, strings.HasSuffix(log, "the log is cut off here\n"))

	status, code := b.tell(token, "/v1/build/log", dispatchapi.BuildLog{Number: 9, Chunk: strings.Repeat("l", dispatchapi.MaxLogRequest)})
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "request_too_large", code)
	empty := json.RawMessage(`{"agents":[{}` + strings.Repeat(",{}", dispatchapi.MaxAgents) + `]}`)
	status, code = b.tell(token, "/v1/build/result", empty)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "too_large", code)
	status, _ = b.tell(token, "/v1/build/report", dispatchapi.BuildReport{Phase: "connecting"})
	require.Equal(t, http.StatusUnprocessableEntity, status)
	status, _ = b.tell(token, "/v1/build/report", dispatchapi.BuildReport{Commit: strings.Repeat("a", 40)})
	require.Equal(t, http.StatusNoContent, status)
	status, code = b.tell(token, "/v1/build/report", dispatchapi.BuildReport{Commit: strings.Repeat("b", 40)})
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Equal(t, "invalid_request", code)
	status, code = b.tell(token, "/v1/build/report", dispatchapi.BuildReport{Author: strings.Repeat("a", dispatchapi.MaxSmallRequest)})
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "request_too_large", code)
	status, code = b.tell(token, "/v1/build/result", dispatchapi.BuildResult{BundleDigest: "sha256:x", Agents: []dispatchapi.Agent{
		{Name: "a", Config: json.RawMessage(`{"a":"` + strings.Repeat("x", dispatchapi.MaxAgentConfig) + `"}`)},
	}})
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "too_large", code)
}

// TestBuildToken_StoresOneBundle: each bundle replaces the previous one, until the build has ended.
func TestBuildToken_StoresOneBundle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const token = "build-token"
	b.startBuild(token)
	port, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: token})
	require.NoError(t, err)
	stored := func(content string) error {
		body, err := b.store.OpenBundle(t.Context(), b.project, "sha256:"+hexDigest([]byte(content)))
		if err == nil {
			require.NoError(t, body.Close())
		}
		return err
	}
	put := func(content string) error {
		return port.PutBundle(t.Context(), "sha256:"+hexDigest([]byte(content)), []byte(content))
	}
	for _, content := range []string{"first", "second", "second"} {
		require.NoError(t, put(content))
	}
	require.ErrorIs(t, stored("first"), store.ErrNotFound)
	require.NoError(t, stored("second"))
	require.NoError(t, port.FinishBuild(t.Context(), dispatchapi.BuildResult{BundleDigest: "sha256:" + hexDigest([]byte("second"))}))
	require.ErrorContains(t, put("third"), "ended with another bundle")
	require.ErrorIs(t, stored("third"), store.ErrNotFound)
}

// TestRunnerToken_StaysWithinStoreLimits: a run whose runner ignores the limits fails with the
// right error code.
func TestRunnerToken_StaysWithinStoreLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	claimed := b.claim()
	path, fence := "/v1/runs/"+claimed.Run.ID.String(), claimed.Token
	status, code := b.tell(runnerToken, path+"/journal", dispatchapi.JournalRequest{Token: fence, Entries: []dispatchapi.JournalEntry{
		{Sequence: 1, Kind: dispatchapi.JournalToolResult, Data: json.RawMessage(`"` + strings.Repeat("x", dispatchapi.MaxToolResult) + `"`)},
	}})
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "too_large", code)
	for name, c := range map[string]struct {
		path, body string
		status     int
		code       string
	}{
		"heartbeat":   {"/v1/heartbeat", `{"leases":[` + listed(`{}`, dispatchapi.MaxLeases+1) + `]}`, http.StatusRequestEntityTooLarge, "too_large"},
		"leases":      {"/v1/heartbeat", `{"leases":[` + listed(`{}`, dispatchapi.MaxSmallRequest/3) + `]}`, http.StatusRequestEntityTooLarge, "request_too_large"},
		"digests":     {"/v1/claim", `{"digests":[` + listed(`""`, dispatchapi.MaxDigests+1) + `]}`, http.StatusRequestEntityTooLarge, "too_large"},
		"digest":      {"/v1/claim", `{"digests":["sha256:held"]}`, http.StatusUnprocessableEntity, "invalid_request"},
		"runner":      {"/v1/claim", `{"runner_id":"` + strings.Repeat("r", dispatchapi.MaxRunnerID+1) + `"}`, http.StatusUnprocessableEntity, "invalid_request"},
		"large claim": {"/v1/claim", `{"runner_id":"` + strings.Repeat("r", dispatchapi.MaxSmallRequest) + `"}`, http.StatusRequestEntityTooLarge, "request_too_large"},
		"appends":     {"/v1/journals", `{"appends":[` + listed(`{}`, dispatchapi.MaxAppends+1) + `]}`, http.StatusRequestEntityTooLarge, "too_large"},
		"entries":     {path + "/journal", `{"entries":[` + listed(`{}`, dispatchapi.MaxEntries+1) + `]}`, http.StatusRequestEntityTooLarge, "too_large"},
		"trailing":    {path + "/complete", `{"journal":[` + listed(`{}`, dispatchapi.MaxEntries+1) + `]}`, http.StatusRequestEntityTooLarge, "too_large"},
		"release":     {path + "/release", `{"token":1` + strings.Repeat(" ", dispatchapi.MaxSmallRequest) + `}`, http.StatusRequestEntityTooLarge, "request_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			status, code := b.send(runnerToken, c.path, []byte(c.body))
			require.Equal(t, c.status, status)
			require.Equal(t, c.code, code)
		})
	}
	status, _ = b.tell(runnerToken, path+"/complete", dispatchapi.CompleteRequest{
		Token: fence, Status: dispatchapi.StatusCompleted, Output: strings.Repeat("x", dispatchapi.MaxOutput+1),
	})
	require.Equal(t, http.StatusNoContent, status)
	run, err := b.store.Run(t.Context(), claimed.Run.Key())
	require.NoError(t, err)
	require.Equal(t, store.RunFailed, run.Status)
	require.Equal(t, runerror.OutputTooLarge, run.ErrorCode)
	require.Empty(t, run.Output)
}

// TestRunner_RejectsMalformedValues: invalid codes, kinds and sequences are errors of the caller,
// and a retry would not help.
func TestRunner_RejectsMalformedValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	claimed := b.claim()
	path, fence := "/v1/runs/"+claimed.Run.ID.String(), claimed.Token
	for name, entry := range map[string]dispatchapi.JournalEntry{
		"sequence 0":        {Sequence: 0, Kind: dispatchapi.JournalToolResult},
		"negative sequence": {Sequence: -1, Kind: dispatchapi.JournalToolResult},
		"kind with a NUL":   {Sequence: 1, Kind: "a\x00"},
		"long kind":         {Sequence: 1, Kind: strings.Repeat("k", 1<<20)},
		"no kind":           {Sequence: 1},
	} {
		t.Run(name, func(t *testing.T) {
			status, code := b.tell(runnerToken, path+"/journal", dispatchapi.JournalRequest{Token: fence, Entries: []dispatchapi.JournalEntry{entry}})
			require.Equal(t, http.StatusUnprocessableEntity, status)
			require.Equal(t, "invalid_request", code)
			status, code = b.tell(runnerToken, path+"/complete", dispatchapi.CompleteRequest{
				Token: fence, Status: dispatchapi.StatusCompleted, Journal: []dispatchapi.JournalEntry{entry},
			})
			require.Equal(t, http.StatusUnprocessableEntity, status)
			require.Equal(t, "invalid_request", code)
		})
	}
	for _, invalid := range []string{strings.Repeat("x", 15<<20), "a\x00", "Two words"} {
		status, code := b.tell(runnerToken, path+"/complete", dispatchapi.CompleteRequest{Token: fence, Status: dispatchapi.StatusFailed, ErrorCode: runerror.Code(invalid)})
		require.Equal(t, http.StatusUnprocessableEntity, status, "%.20q", invalid)
		require.Equal(t, "invalid_request", code)
	}
	status, _ := b.tell(runnerToken, path+"/complete", dispatchapi.CompleteRequest{Token: fence, Status: dispatchapi.StatusFailed, ErrorCode: "model_error"})
	require.Equal(t, http.StatusNoContent, status, "the runner still has the claim")
}

// claim returns a run of a new connector that a runner has claimed.
func (b *bundle) claim() store.Claimed {
	b.t.Helper()
	c := b.connector("inbound", nil, "hello")
	require.Equal(b.t, http.StatusOK, b.post(b.gateway, c.ID.String(), `{}`, nil).status)
	claimed, err := b.store.Claim(b.t.Context(), store.Claim{
		Environment: store.Key{ProjectID: b.project, ID: b.environment}, RunnerID: "r", Slots: 1, Limit: 1, Lease: store.LeaseDuration,
	})
	require.NoError(b.t, err)
	require.Len(b.t, claimed.Runs, 1)
	return claimed.Runs[0]
}
