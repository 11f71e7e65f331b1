// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/store"
)

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
