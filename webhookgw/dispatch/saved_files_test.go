// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

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
