// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// TestHeartbeat_ReadsNoRuns: one statement renews all named runs of the environment.
func TestHeartbeat_ReadsNoRuns(t *testing.T) {
	t.Parallel()
	f := &fake{}
	h := handlerOf(f)
	var req dispatchapi.HeartbeatRequest
	for range dispatchapi.MaxLeases {
		req.Leases = append(req.Leases, dispatchapi.Held{Lease: dispatchapi.Lease{RunID: uuid.New(), Token: 1}, TestName: "short"})
	}
	body, err := json.Marshal(req)
	require.NoError(t, err)
	w := ask(t, h, "a", http.MethodPost, "/v1/heartbeat", string(body))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Zero(t, f.calls("RunEnvironments"))
	require.Equal(t, store.Key{ProjectID: named("a"), ID: named("a")}, f.beating)
	require.Len(t, f.renewed, dispatchapi.MaxLeases)
	require.Equal(t, "short", f.renewed[0].TestName)
}

// TestOwned_CachesMissingRuns: for every call.
func TestOwned_CachesMissingRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{none: true}
		h := handlerOf(f)
		run := uuid.NewString()
		for reads := 1; reads < 3; reads++ {
			for range 5 {
				w := ask(t, h, "a", http.MethodPost, "/v1/runs/"+run+"/release", `{"token":1}`)
				require.Equal(t, http.StatusNotFound, w.Code)
			}
			require.Equal(t, reads, f.calls("RunEnvironments"))
			time.Sleep(absentTTL) // bubble time
		}
	})
}

// TestJournal_RejectsPlatformEntries: the platform's entries about resumed or late runs decide what
// a run does next.
func TestJournal_RejectsPlatformEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.JournalKind{store.JournalResumed, store.JournalExpired} {
		for _, call := range []string{`journal`, `complete`} {
			f := &fake{}
			field := map[string]string{"journal": "entries", "complete": "journal"}[call]
			w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/runs/"+uuid.NewString()+"/"+call,
				fmt.Sprintf(`{"token":1,"status":"completed",%q:[{"sequence":1,"kind":%q,"data":{}}]}`, field, kind))
			require.Equal(t, http.StatusUnprocessableEntity, w.Code, w.Body.String())
			require.Contains(t, w.Body.String(), `"reserved_kind"`)
			require.Empty(t, f.written)
			require.Zero(t, f.calls("Complete"))
		}
	}
}

// TestJournals_ReportEachAppend: an append does not fail because of another one.
func TestJournals_ReportEachAppend(t *testing.T) {
	t.Parallel()
	f := &fake{lost: func(l store.Lease) bool { return l.Token != 1 }}
	h := handlerOf(f)
	elsewhere := uuid.New()
	h.owners.Put(store.Key{ProjectID: named("a"), ID: elsewhere}, named("b"))
	appendOf := func(run uuid.UUID, token int, kind string) string {
		return fmt.Sprintf(`{"run_id":%q,"token":%d,"entries":[{"sequence":1,"kind":%q,"data":{}}]}`, run, token, kind)
	}
	w := ask(t, h, "a", http.MethodPost, "/v1/journals", `{"appends":[`+strings.Join([]string{
		appendOf(uuid.New(), 2, "model_answer"), appendOf(uuid.New(), 1, "model_answer"), appendOf(uuid.New(), 1, "resumed"), appendOf(elsewhere, 1, "model_answer"),
	}, ",")+`]}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var got dispatchapi.AppendResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	var statuses []int
	for _, result := range got.Results {
		statuses = append(statuses, result.Status)
	}
	require.Equal(t, []int{http.StatusConflict, http.StatusNoContent, http.StatusUnprocessableEntity, http.StatusNotFound}, statuses)
	require.Len(t, f.written, 2, "without the reserved kind and the run of another environment")
}

// TestJournals_ReadOwnersTogether: a gateway that knows none of the runs reads them in one call.
func TestJournals_ReadOwnersTogether(t *testing.T) {
	t.Parallel()
	f := &fake{}
	h := handlerOf(f)
	var appends []string
	for range 5 {
		appends = append(appends, fmt.Sprintf(`{"run_id":%q,"token":1,"entries":[{"sequence":1,"kind":"model_answer","data":{}}]}`, uuid.New()))
	}
	for range 2 {
		w := ask(t, h, "a", http.MethodPost, "/v1/journals", `{"appends":[`+strings.Join(appends, ",")+`]}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Equal(t, 1, f.calls("RunEnvironments"), "the second request finds them in the cache")
	}
	require.Len(t, f.written, 10)
}

// TestJournals_AreSeparateAfterFailure: one of the appends of the failed statement may be the cause.
func TestJournals_AreSeparateAfterFailure(t *testing.T) {
	t.Parallel()
	h := handlerOf(&fake{})
	h.appends.suspect.Put(named("a"), struct{}{})
	body := fmt.Sprintf(`{"appends":[{"run_id":%q,"token":1,"entries":[]}]}`, uuid.New())
	w := ask(t, h, "a", http.MethodPost, "/v1/journals", body)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "60", w.Header().Get("Retry-After"), "so long the runner sends each append alone")
	require.Equal(t, http.StatusOK, ask(t, h, "b", http.MethodPost, "/v1/journals", body).Code)
}

// TestJournal_TruncatesModelName: the model service chooses its name.
func TestJournal_TruncatesModelName(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := ask(t, handlerOf(f), "a", http.MethodPost, "/v1/runs/"+uuid.NewString()+"/journal",
		`{"token":1,"entries":[{"sequence":1,"kind":"model_answer","data":{},"usage":{"model":"`+strings.Repeat("m", 1<<20)+`"}}]}`)
	require.Equal(t, http.StatusNoContent, w.Code, w.Body.String())
	require.LessOrEqual(t, len(f.written[0].Usage.Model), dispatchapi.MaxModel)
	require.True(t, strings.HasPrefix(f.written[0].Usage.Model, "mmm"))
}

// TestJournal_ReadRequiresClaim: as a write does.
func TestJournal_ReadRequiresClaim(t *testing.T) {
	t.Parallel()
	for query, status := range map[string]int{
		"?token=1": http.StatusOK, "?token=2": http.StatusConflict, "?token=x": http.StatusUnprocessableEntity, "": http.StatusUnprocessableEntity,
	} {
		t.Run(query, func(t *testing.T) {
			f := &fake{entry: `"<e>"`, length: 5, lost: func(l store.Lease) bool { return l.Token != 1 }}
			w := ask(t, handlerOf(f), "a", http.MethodGet, "/v1/runs/"+uuid.NewString()+"/journal"+query, "")
			require.Equal(t, status, w.Code)
			if status == http.StatusOK {
				require.Equal(t, 5, strings.Count(w.Body.String(), `"<e>"`), w.Body.String())
			} else {
				require.Zero(t, f.calls("JournalAfter"))
			}
		})
	}
}

// TestRelease_DelayedRunWakesRunner: when the delay is over, without another hint.
func TestRelease_DelayedRunWakesRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := handlerOf(f)
		answered := make(chan time.Duration)
		begin := time.Now()
		go func() {
			w := ask(t, h, "a", http.MethodPost, "/v1/claim", `{"limit":1,"wait_seconds":30}`)
			require.Contains(t, w.Body.String(), `"runs":[{`)
			answered <- time.Since(begin)
		}()
		synctest.Wait()
		f.claimed = []store.Claimed{{Run: store.Run{ID: uuid.New()}}}
		w := ask(t, h, "a", http.MethodPost, "/v1/runs/"+uuid.NewString()+"/release", `{"token":1,"delay_seconds":5}`)
		require.Equal(t, http.StatusNoContent, w.Code, w.Body.String())
		require.Equal(t, 5*time.Second, <-answered, "bubble time")
	})
}

// slowClaim is a store that completes a claim when allowed, and returns its result only while the
// context is valid.
type slowClaim struct {
	fake
	may      chan struct{}
	leased   store.Lease
	released []store.Lease
}

func (s *slowClaim) Claim(ctx context.Context, claim store.Claim) (store.ClaimResult, error) {
	s.count("Claim")
	select {
	case <-s.may:
	case <-ctx.Done():
		return store.ClaimResult{}, context.Cause(ctx)
	}
	return store.ClaimResult{Runs: []store.Claimed{{Run: store.Run{ID: s.leased.Run.ID, ProjectID: s.leased.Run.ProjectID}, Token: s.leased.Token}}}, nil
}

func (s *slowClaim) Release(_ context.Context, l store.Lease, _ time.Duration) error {
	s.released = append(s.released, l)
	return nil
}

// TestClaim_ReleasesRunsOfDisconnectedRunner: a draining runner can disconnect during its claim. It
// does not get the claimed runs, and otherwise no runner would before the lease expires.
func TestClaim_ReleasesRunsOfDisconnectedRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowClaim{may: make(chan struct{}), leased: store.Lease{Run: store.Key{ProjectID: named("a"), ID: uuid.New()}, Token: 7}}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/claim", strings.NewReader(`{"runner_id":"r","places":1,"limit":1,"wait_seconds":20}`))
			r.Header.Set("Authorization", "Bearer a")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		require.Equal(t, 1, s.calls("Claim"))
		leave()
		synctest.Wait()
		close(s.may)
		<-answered
		require.Equal(t, []store.Lease{s.leased}, s.released)
	})
}
