// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

// The download has the type of the file.
func TestGetRunFile_SendsDownload(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	answer := w.Request(t, key, http.MethodGet, "/runs/"+w.FailedRun.String()+"/files/0", "")
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	require.Equal(t, "hello", answer.Body.String())
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "Content-Length": "5", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Disposition": "attachment; filename*=utf-8''%C3%9Cberblick.txt",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, answer.Header().Get(name))
		})
	}
	require.Zero(t, w.Server.Runs.Files.Taken())
	for path, status := range map[string]int{
		"/runs/" + w.FailedRun.String() + "/files/1":     http.StatusNotFound,
		"/runs/" + w.CompletedRun.String() + "/files/0":  http.StatusNotFound,
		"/runs/" + uuid.NewString() + "/files/0":         http.StatusNotFound,
		"/runs/" + w.FailedRun.String() + "/files/-1":    http.StatusUnprocessableEntity,
		"/runs/" + w.FailedRun.String() + "/files/10":    http.StatusUnprocessableEntity,
		"/runs/" + w.FailedRun.String() + "/files/a.txt": http.StatusUnprocessableEntity,
	} {
		t.Run(path, func(t *testing.T) {
			status2, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, status, status2, "%s", body)
		})
	}
	elsewhere := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, body := w.Call(t, elsewhere, http.MethodGet, "/runs/"+w.FailedRun.String()+"/files/0", "")
	require.Equal(t, http.StatusForbidden, status, "%s", body)
	require.Zero(t, w.Server.Runs.Files.Taken())
}

// A run shows the files that it saved, and the download never has the sender's name or type for a browser.
func TestGetSavedFile_SendsDownload(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	run := "/runs/" + w.CompletedRun.String()
	status, body := w.Call(t, key, http.MethodGet, run, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Contains(t, string(body), `"saved_files":[{"id":"s1","name":"../Rechnung 1.pdf","size":13,"mime_type":"application/pdf"}]`)
	status, body = w.Call(t, key, http.MethodGet, "/runs?agent_name=hello", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NotContains(t, string(body), "Rechnung")
	answer := w.Request(t, key, http.MethodGet, run+"/saved-files/s1", "")
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	require.Equal(t, "saved content", answer.Body.String())
	for name, want := range map[string]string{
		"Content-Type": "application/pdf", "Content-Length": "13", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Disposition": `attachment; filename="Rechnung 1.pdf"`,
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, answer.Header().Get(name))
		})
	}
	for path, status := range map[string]int{
		run + "/saved-files/s2":                             http.StatusNotFound,
		"/runs/" + w.FailedRun.String() + "/saved-files/s1": http.StatusNotFound,
		"/runs/" + uuid.NewString() + "/saved-files/s1":     http.StatusNotFound,
		run + "/saved-files/S1":                             http.StatusUnprocessableEntity,
		run + "/saved-files/" + strings.Repeat("s", 33):     http.StatusUnprocessableEntity,
	} {
		t.Run(path, func(t *testing.T) {
			got, body := w.Call(t, key, http.MethodGet, path, "")
			require.Equal(t, status, got, "%s", body)
		})
	}
	elsewhere := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	status, body = w.Call(t, elsewhere, http.MethodGet, run+"/saved-files/s1", "")
	require.Equal(t, http.StatusForbidden, status, "%s", body)
	require.Zero(t, w.Server.Runs.Files.Taken())
}

// oneFile is a store whose runs have one file.
type oneFile struct {
	apiserver.Store
	file store.File
	body io.Reader
	err  error
	open *int
}

func (f oneFile) OpenRunFile(ctx context.Context, _ store.Key, _ int) (store.File, io.ReadCloser, error) {
	if f.err != nil {
		return store.File{}, nil, f.err
	}
	*f.open++
	return f.file, openFile{f.body, ctx, f.open}, nil
}

// openFile fails once its context has ended, as one of the store's does.
type openFile struct {
	io.Reader
	ctx  context.Context //nolint:containedctx // as the store's
	open *int
}

func (f openFile) Read(p []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, f.ctx.Err()
	}
	return f.Reader.Read(p)
}

func (f openFile) Close() error {
	*f.open--
	return nil
}

// A deleted file returns 404, or the response is shorter than its Content-Length. The slot is released in each case.
func TestGetRunFile_HandlesMissingFile(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, open, db := w.CreateKey(t, nil), 0, w.Store
	path := "/runs/" + w.CompletedRun.String() + "/files/0"
	long := strings.Repeat("a", 2*(64<<10))
	for name, c := range map[string]struct {
		body   io.Reader
		err    error
		size   int64
		status int
		sent   int
	}{
		"whole":                   {strings.NewReader(long), nil, int64(len(long)), http.StatusOK, len(long)},
		"empty":                   {strings.NewReader(""), nil, 0, http.StatusOK, 0},
		"unknown file":            {nil, store.ErrNotFound, 0, http.StatusNotFound, -1},
		"deleted during the read": {iotest.ErrReader(store.ErrNotFound), nil, 5, http.StatusNotFound, -1},
		"store unavailable":       {nil, io.ErrUnexpectedEOF, 0, http.StatusServiceUnavailable, -1},
		"read fails at the start": {iotest.ErrReader(errors.New("CANARY")), nil, 5, http.StatusInternalServerError, -1},
		"read fails midway":       {io.MultiReader(strings.NewReader(long), iotest.ErrReader(errors.New("CANARY"))), nil, 3 * (64 << 10), http.StatusOK, len(long)},
	} {
		t.Run(name, func(t *testing.T) {
			w.UseStore(oneFile{Store: db, file: store.File{Name: "a.txt", MIMEType: "text/plain", Size: c.size}, body: c.body, err: c.err, open: &open})
			answer := w.Request(t, key, http.MethodGet, path, "")
			require.Equal(t, c.status, answer.Code, "%s", answer.Body)
			require.NotContains(t, answer.Body.String(), "CANARY")
			if c.sent >= 0 {
				require.Equal(t, c.sent, answer.Body.Len())
			}
			require.Zero(t, w.Server.Runs.Files.Taken())
			require.Zero(t, open)
		})
	}
	for range runs.MaxFileStreams / runs.FileShare {
		require.NoError(t, w.Server.Runs.Files.Take(w.ProjectID, 1))
	}
	answer := w.Request(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusTooManyRequests, answer.Code)
	require.Equal(t, "5", answer.Header().Get("Retry-After"))
}

// createRunWithFiles records an event with files of these texts and one that was omitted, and returns
// its run.
func createRunWithFiles(t testing.TB, p *apiservertest.ProjectWithHistory, files ...store.File) uuid.UUID {
	t.Helper()
	for i := range files {
		files[i] = p.StoreFile(t, files[i], "hello")
	}
	run, _ := p.AcceptEventWithFiles(t, "hello", append(files, store.File{Name: "b.exe", FieldName: "g", Reason: store.FileUnsupported}))
	return run
}

func TestGetRun_ShowsFilesOfInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	run := createRunWithFiles(t, w, store.File{Name: "a.txt", FieldName: "f", MIMEType: "text/plain"})
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/runs/"+run.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Equal(t, map[string]any{
		"name":        "Ada",
		"files":       []any{map[string]any{"name": "a.txt", "field_name": "f", "mime_type": "text/plain", "size": 5.0}},
		"file_issues": []any{map[string]any{"name": "b.exe", "field_name": "g", "reason": "unsupported_type"}},
	}, apiservertest.Decode[runs.Run](t, body).Input)
}

// Files beyond the review are stored, but agents did not get them.
func TestGetRun_ShowsUnreviewedFiles(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	run := createRunWithFiles(t, w, store.File{Name: "a.txt", FieldName: "f", MIMEType: "text/plain", Reason: store.FileBeyondReview})
	key := w.CreateKey(t, nil)
	status, body := w.Call(t, key, http.MethodGet, "/runs/"+run.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Equal(t, map[string]any{
		"name":  "Ada",
		"files": []any{map[string]any{"name": "a.txt", "field_name": "f", "mime_type": "text/plain", "size": 5.0}},
		"file_issues": []any{
			map[string]any{"name": "a.txt", "field_name": "f", "reason": "review_budget"},
			map[string]any{"name": "b.exe", "field_name": "g", "reason": "unsupported_type"},
		},
	}, apiservertest.Decode[runs.Run](t, body).Input)
	status, body = w.Call(t, key, http.MethodGet, "/runs/"+run.String()+"/files/0", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "hello", string(body))
}
