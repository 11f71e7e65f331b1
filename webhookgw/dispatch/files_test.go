// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// TestFiles_OnlyReviewedContent: files beyond the review budget are reported like omitted ones.
func TestFiles_OnlyReviewedContent(t *testing.T) {
	t.Parallel()
	blob := uuid.New()
	wire := wireFiles([]store.File{
		{Name: "a", FieldName: "f", MIMEType: "text/plain", Size: 5, Blob: &blob},
		{Name: "b", FieldName: "f", Reason: store.FileUnsupported},
		{Name: "c", FieldName: "g", MIMEType: "text/plain", Size: 7, Blob: &blob, Reason: store.FileBeyondReview},
	})
	require.Equal(t, dispatchapi.Files{
		Files: []dispatchapi.File{{Name: "a", FieldName: "f", MIMEType: "text/plain", Size: 5}},
		Issues: []dispatchapi.FileIssue{
			{Name: "b", FieldName: "f", Reason: "unsupported_type"}, {Name: "c", FieldName: "g", Reason: "review_budget"},
		},
	}, wire)
}

// saving is a store with one saved file. It keeps what a request saves.
type saving struct {
	*fake
	lease   store.Lease
	entries []store.JournalEntry
	body    string
	failure error
}

func (s *saving) SaveFile(_ context.Context, l store.Lease, entries []store.JournalEntry, body io.Reader) error {
	text, err := io.ReadAll(body)
	s.lease, s.entries, s.body = l, entries, string(text)
	if err == nil {
		err = s.failure
	}
	return err
}

func (s *saving) OpenSavedFile(_ context.Context, _ store.Key, id string, offset int64) (store.SavedFile, io.ReadCloser, error) {
	if id != "s1" {
		return store.SavedFile{}, nil, store.ErrNotFound
	}
	return store.SavedFile{ID: id}, io.NopCloser(strings.NewReader("0123456789"[offset:])), nil
}

const saveJournal = `{"token":7,"entries":[{"sequence":1,"kind":"file","data":{"id":"s1"}},{"sequence":2,"kind":"tool_result","data":1}]}`

func TestSaveFile_PassesEntriesAndBytes(t *testing.T) {
	t.Parallel()
	s := &saving{fake: &fake{}}
	h := New(Options{Store: s})
	target := fmt.Sprintf("/v1/runs/%s/saved?journal=%d", known, len(saveJournal))
	w := ask(t, h, "a", http.MethodPut, target, saveJournal+"\n the bytes")
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	require.Equal(t, store.Lease{Run: store.Key{ProjectID: named("a"), ID: known}, Token: 7}, s.lease)
	require.Equal(t, []store.JournalKind{store.JournalFile, store.JournalToolResult}, []store.JournalKind{s.entries[0].Kind, s.entries[1].Kind})
	require.Equal(t, "\n the bytes", s.body)
}

func TestSaveFile_RejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	whole := strconv.Itoa(len(saveJournal))
	for name, row := range map[string]struct {
		size, body string
		failure    error
		want       int
	}{
		"no size":         {"", saveJournal, nil, http.StatusUnprocessableEntity},
		"a negative size": {"-1", saveJournal, nil, http.StatusUnprocessableEntity},
		"a large size":    {strconv.Itoa(dispatchapi.MaxSavedJournal + 1), saveJournal, nil, http.StatusUnprocessableEntity},
		"too few bytes":   {"500", saveJournal, nil, http.StatusBadRequest},
		"no JSON":         {"5", saveJournal, nil, http.StatusBadRequest},
		"a large file":    {whole, saveJournal + strings.Repeat("x", dispatchapi.MaxSavedFile+1), nil, http.StatusRequestEntityTooLarge},
		"the largest":     {whole, saveJournal + strings.Repeat("x", dispatchapi.MaxSavedFile), nil, http.StatusNoContent},
		"a stale claim":   {whole, saveJournal, store.ErrFenced, http.StatusConflict},
		"too much":        {whole, saveJournal, store.ErrTooLarge, http.StatusRequestEntityTooLarge},
		"full storage":    {whole, saveJournal, fmt.Errorf("saving: %w", &store.StorageFullError{Stored: 7, Limit: 5}), http.StatusUnprocessableEntity},
		"a slow body":     {whole, saveJournal, os.ErrDeadlineExceeded, http.StatusServiceUnavailable},
		"other bytes":     {whole, saveJournal, store.ErrInvalid, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := New(Options{Store: &saving{fake: &fake{}, failure: row.failure}})
			w := ask(t, h, "a", http.MethodPut, fmt.Sprintf("/v1/runs/%s/saved?journal=%s", known, row.size), row.body)
			require.Equal(t, row.want, w.Code, w.Body)
		})
	}
}

// TestSaveFile_AbortsWithItsBody: a body that is cut off is not the end of the file, and its client gets no response.
func TestSaveFile_AbortsWithItsBody(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{"among the entries": saveJournal[:9], "in the file": saveJournal + "the beginning"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &saving{fake: &fake{}}
			h := New(Options{Store: s})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("/v1/runs/%s/saved?journal=%d", known, len(saveJournal)),
				io.MultiReader(strings.NewReader(sent), iotest.ErrReader(io.ErrUnexpectedEOF)))
			r.Header.Set("Authorization", "Bearer a")
			require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			require.True(t, h.saves.Free())
			require.True(t, h.calls.Free())
		})
	}
}

// TestSaveFile_WaitsForTurn: a save has a turn in the queue of store calls, except while it waits for bytes of the file.
func TestSaveFile_WaitsForTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &saving{fake: &fake{}}
		h := New(Options{Store: s})
		body, sender := io.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("/v1/runs/%s/saved?journal=%d", known, len(saveJournal)), body)
		r.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			h.ServeHTTP(w, r)
			close(done)
		}()
		_, err := sender.Write([]byte(saveJournal + "the"))
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, h.calls.Free(), "it waits for the body")
		var grants []*quota.Grant
		for range connectionShare(fakeConnections, callParts) / callShare {
			grant, err := h.calls.Wait(t.Context(), named("a"), 1)
			require.NoError(t, err)
			grants = append(grants, grant)
		}
		_, err = sender.Write([]byte(" bytes"))
		require.NoError(t, err)
		require.NoError(t, sender.Close())
		synctest.Wait()
		select {
		case <-done:
			require.Fail(t, "the save took no turn")
		default:
		}
		for _, grant := range grants {
			grant.End()
		}
		<-done
		require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		require.Equal(t, "the bytes", s.body)
		require.True(t, h.calls.Free())
		require.True(t, h.saves.Free())
	})
}

// TestSaveFile_UsesItsOwnMemory: saves that take all of their memory leave the memory of other transfers.
func TestSaveFile_UsesItsOwnMemory(t *testing.T) {
	t.Parallel()
	h := New(Options{Store: &saving{fake: &fake{}}})
	grant, err := h.streams.Wait(t.Context(), named("a"), maxStreamBytes)
	require.NoError(t, err)
	defer grant.End()
	w := ask(t, h, "a", http.MethodPut, fmt.Sprintf("/v1/runs/%s/saved?journal=%d", known, len(saveJournal)), saveJournal)
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
}

// deadlineRecorder records the deadlines of reading a request.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(at time.Time) error {
	d.deadlines = append(d.deadlines, at)
	return nil
}

// TestSaveFile_LimitsTimeOfBody: each read of the body has a deadline, and the end of the body removes it.
func TestSaveFile_LimitsTimeOfBody(t *testing.T) {
	t.Parallel()
	h := New(Options{Store: &saving{fake: &fake{}}})
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("/v1/runs/%s/saved?journal=%d", known, len(saveJournal)),
		strings.NewReader(saveJournal+"the bytes"))
	r.Header.Set("Authorization", "Bearer a")
	begin := time.Now()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
	require.GreaterOrEqual(t, len(w.deadlines), 3)
	for _, at := range w.deadlines[:2] { // of the entries and of the file
		require.WithinRange(t, at, begin, time.Now().Add(dispatchapi.SaveTimeout))
	}
	require.True(t, w.deadlines[len(w.deadlines)-1].IsZero(), "the handler can take longer")
}

func TestSavedFile_ReadsParts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		path, body string
		want       int
	}{
		"a part":           {"s1?token=1&offset=2&length=3", "234", http.StatusOK},
		"the end":          {"s1?token=1&offset=8&length=30", "89", http.StatusOK},
		"another file":     {"s2?token=1&offset=0&length=1", "", http.StatusNotFound},
		"no claim":         {"s1?offset=0&length=1", "", http.StatusUnprocessableEntity},
		"a negative start": {"s1?token=1&offset=-1&length=1", "", http.StatusUnprocessableEntity},
		"no length":        {"s1?token=1&offset=0", "", http.StatusUnprocessableEntity},
		"a large part":     {fmt.Sprintf("s1?token=1&offset=0&length=%d", dispatchapi.MaxSavedPart+1), "", http.StatusUnprocessableEntity},
		"a stale claim":    {"s1?token=2&offset=0&length=1", "", http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := New(Options{Store: &saving{fake: &fake{lost: func(l store.Lease) bool { return l.Token == 2 }}}})
			w := ask(t, h, "a", http.MethodGet, "/v1/runs/"+known.String()+"/saved/"+row.path, "")
			require.Equal(t, row.want, w.Code, w.Body)
			if row.want == http.StatusOK {
				require.Equal(t, row.body, w.Body.String())
			}
		})
	}
}
