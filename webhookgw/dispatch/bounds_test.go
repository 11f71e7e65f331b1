// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// TestClaim_LimitsResponse: runners fetch inputs and journals beyond the limit, and get further
// runs with the next request.
func TestClaim_LimitsResponse(t *testing.T) {
	t.Parallel()
	input := []byte(strings.Repeat("i", store.MaxInlineInput))
	f := &fake{entry: `"` + strings.Repeat("e", 1<<10) + `"`, length: 200}
	for range maxClaim + 36 {
		f.claimed = append(f.claimed, store.Claimed{
			Run: store.Run{ProjectID: named("a"), ID: uuid.New()}, Input: input, JournalLength: f.length, JournalSize: f.length << 10,
		})
	}
	f.claimed[0].JournalLength, f.claimed[0].JournalSize = 60_000, 60_000*(store.EntryOverhead+3) // small entries
	h := handlerOf(f)
	w := ask(t, h, "a", http.MethodPost, "/v1/claim", `{"limit":64}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Less(t, w.Body.Len(), 3<<20, "including the base64 overhead")
	var resp dispatchapi.ClaimResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
	require.Len(t, resp.Runs, maxClaim)
	for i, run := range resp.Runs {
		require.Equal(t, f.claimed[i].Run.ID, run.ID)
		require.Equal(t, i >= maxInline/store.MaxInlineInput, run.InputElsewhere, i)
		require.Equal(t, run.InputElsewhere, len(run.Input) == 0)
		require.Equal(t, i != 1, run.JournalElsewhere, i)
		require.Equal(t, run.JournalElsewhere, len(run.Journal) == 0)
	}
	require.True(t, h.claims.Free(), "its memory is released")
}

// TestClaim_UnreadableJournal: the run is already claimed, so it is returned. The runner fetches
// the journal, and the journal uses no space of others.
func TestClaim_UnreadableJournal(t *testing.T) {
	t.Parallel()
	f := &fake{entry: `"e"`, length: 2}
	for range 3 {
		f.claimed = append(f.claimed, store.Claimed{
			Run: store.Run{ProjectID: named("a"), ID: uuid.New()}, Input: []byte("i"), JournalLength: f.length, JournalSize: maxInlineJournals / 2,
		})
	}
	f.unread = f.claimed[0].Run.ID
	h := handlerOf(f)
	w := ask(t, h, "a", http.MethodPost, "/v1/claim", `{"limit":3}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var resp dispatchapi.ClaimResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
	require.Len(t, resp.Runs, len(f.claimed))
	for i, run := range resp.Runs {
		require.Equal(t, f.claimed[i].Run.ID, run.ID)
		require.Equal(t, []byte("i"), run.Input)
		require.Equal(t, i == 0, run.JournalElsewhere, i)
		require.Equal(t, run.JournalElsewhere, len(run.Journal) == 0, i)
	}
	require.True(t, h.claims.Free(), "its memory is released")
}

// TestClaim_LimitsBytesOfJournals: whatever size a run claims to have, a journal beyond the limit and an incomplete one are not
// part of the response.
func TestClaim_LimitsBytesOfJournals(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		entry  string
		length int64
	}{
		"large":      {`"` + strings.Repeat("e", maxInlineJournals) + `"`, 1},
		"incomplete": {`"e"`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{entry: row.entry, length: 1, claimed: []store.Claimed{{
				Run: store.Run{ProjectID: named("a"), ID: uuid.New()}, Input: []byte("i"), JournalLength: row.length, JournalSize: 200,
			}}}
			w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/claim", `{"limit":1}`)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			var resp dispatchapi.ClaimResponse
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
			require.True(t, resp.Runs[0].JournalElsewhere)
			require.Empty(t, resp.Runs[0].Journal)
		})
	}
}

// TestJournal_LimitsReadsPerProject: only the project with many concurrent reads waits.
func TestJournal_LimitsReadsPerProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = maxStreamBytes / projectShare / journalStream
		f := &fake{entry: `"e"`, length: 2, reading: make(chan struct{})}
		h := handlerOf(f)
		answered := make(chan int, 64)
		fetch := func(token string) {
			target := "/v1/runs/" + uuid.NewString() + "/journal?token=1"
			answered <- ask(t, h, token, http.MethodGet, target, "").Code
		}
		for range 64 {
			go fetch("greedy")
		}
		synctest.Wait()
		require.Equal(t, most, f.calls("JournalAfter"))
		go fetch("modest")
		synctest.Wait()
		require.Equal(t, most+1, f.calls("JournalAfter"), "another project's is read at once")
		codes := map[int]int{}
		for range most {
			f.reading <- struct{}{}
			codes[<-answered]++
		}
		synctest.Wait()
		require.Equal(t, map[int]int{http.StatusOK: most}, codes)
		require.Equal(t, 2*most+1, f.calls("JournalAfter"), "the next ones")
		time.Sleep(queueTimeout) // bubble time
		synctest.Wait()
		for range 64 - 2*most {
			codes[<-answered]++
		}
		require.Equal(t, 64-2*most, codes[http.StatusTooManyRequests], "the runners ask again")
		close(f.reading)
		for range most + 1 {
			require.Equal(t, http.StatusOK, <-answered)
		}
		require.True(t, h.streams.Free())
	})
}

// slowWriter accepts one part at a time, each within the limit.
type slowWriter struct{ *httptest.ResponseRecorder }

func (s slowWriter) Write(p []byte) (int, error) {
	time.Sleep(responseTimeout / 4) // bubble time
	return s.ResponseRecorder.Write(p)
}

// TestStream_ClosesSlowReaders: for every kind of response.
func TestStream_ClosesSlowReaders(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2<<20)
	for path, f := range map[string]*fake{
		"journal?token=1": {entry: `"` + large[:1<<20] + `"`, length: 16},
		"input":           {body: strings.NewReader(large)},
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := handlerOf(f)
				r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/runs/%s/%s", uuid.New(), path), nil)
				r.Header.Set("Authorization", "Bearer a")
				w := slowWriter{httptest.NewRecorder()}
				require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, r) }, "it does not look complete")
				require.NotZero(t, w.Body.Len())
				require.LessOrEqual(t, w.Body.Len(), 5*(64<<10))
				require.True(t, h.streams.Free())
			})
		})
	}
}
