// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// attached records an event with files of these texts and one that was omitted, and returns
// its run.
func (p *past) attached(t testing.TB, files ...store.File) uuid.UUID {
	t.Helper()
	for i := range files {
		files[i] = p.stored(t, files[i], "hello")
	}
	run, _ := p.eventWith(t, "hello", append(files, store.File{Name: "b.exe", FieldName: "g", Reason: store.FileUnsupported}))
	return run
}

// stored is an accepted file with these bytes.
func (p *past) stored(t testing.TB, file store.File, content string) store.File {
	t.Helper()
	blob, err := uuid.NewV7()
	require.NoError(t, err)
	_, err = p.db.PutBlob(t.Context(), store.Key{ProjectID: p.projectID, ID: blob}, strings.NewReader(content))
	require.NoError(t, err)
	file.Blob, file.Size = &blob, int64(len(content))
	return file
}

func TestAnInputSaysWhatBecameOfItsFiles(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	run := w.attached(t, store.File{Name: "a.txt", FieldName: "f", MIMEType: "text/plain"})
	status, body := w.call(t, w.key(t, nil), http.MethodGet, "/runs/"+run.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Equal(t, map[string]any{
		"name":        "Ada",
		"files":       []any{map[string]any{"name": "a.txt", "field_name": "f", "mime_type": "text/plain", "size": 5.0}},
		"file_issues": []any{map[string]any{"name": "b.exe", "field_name": "g", "reason": "unsupported_type"}},
	}, decode[Run](t, body).Input)
}

// TestAnInputShowsFilesBeyondTheReview: they are there to be read, and agents did not get them.
func TestAnInputShowsFilesBeyondTheReview(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	run := w.attached(t, store.File{Name: "a.txt", FieldName: "f", MIMEType: "text/plain", Reason: store.FileBeyondReview})
	key := w.key(t, nil)
	status, body := w.call(t, key, http.MethodGet, "/runs/"+run.String(), "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Equal(t, map[string]any{
		"name":  "Ada",
		"files": []any{map[string]any{"name": "a.txt", "field_name": "f", "mime_type": "text/plain", "size": 5.0}},
		"file_issues": []any{
			map[string]any{"name": "a.txt", "field_name": "f", "reason": "review_budget"},
			map[string]any{"name": "b.exe", "field_name": "g", "reason": "unsupported_type"},
		},
	}, decode[Run](t, body).Input)
	status, body = w.call(t, key, http.MethodGet, "/runs/"+run.String()+"/files/0", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "hello", string(body))
}
