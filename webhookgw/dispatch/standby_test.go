// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
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
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

const (
	waitsForRuns = `{"limit":2,"places":2,"wait_seconds":30,"runner_id":"r"}`
	ofA          = "a"
)

func environmentOf(name string) store.Key { return store.Key{ProjectID: named(name), ID: named(name)} }

// polled is a waiting claim.
type polled struct {
	end    context.CancelFunc
	answer chan *httptest.ResponseRecorder
}

// poll sends a claim of the runner of A, and returns when it waits or has its response.
func poll(t *testing.T, h *Handler, request string) polled {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	p := polled{end, make(chan *httptest.ResponseRecorder, 1)}
	go func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/claim", strings.NewReader(request))
		r.Header.Set("Authorization", "Bearer "+ofA)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		p.answer <- w
	}()
	synctest.Wait()
	return p
}

// runs returns the runs of the response.
func (p polled) runs(t *testing.T) []uuid.UUID {
	t.Helper()
	w := <-p.answer
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var resp dispatchapi.ClaimResponse
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
	ids := []uuid.UUID{}
	for _, run := range resp.Runs {
		ids = append(ids, run.ID)
	}
	return ids
}

// begun returns a started run of A.
func begun() store.Claimed {
	return store.Claimed{Run: store.Run{ID: uuid.New(), ProjectID: named(ofA), Attempt: 1}, Token: 7}
}

// standing returns a handler with its waiting runners.
func standing(t *testing.T, f *fake) (*Handler, *handoff.Runners) {
	t.Helper()
	h := running(t, f)
	return h, h.opts.Runners
}

// TestStandby_StartedRunEndsWait: without a query; the runner's empty result is no longer valid.
func TestStandby_StartedRunEndsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h, runners := standing(t, f)
		p := poll(t, h, waitsForRuns)
		held, run := runners.Hold(environmentOf(ofA)), begun()
		require.Equal(t, "r", held.ID)
		require.Equal(t, 2, held.Slots)
		held.Give([]store.Claimed{run})
		require.Equal(t, []uuid.UUID{run.Run.ID}, p.runs(t))
		require.Equal(t, 1, f.calls("Claim"))
		require.Nil(t, runners.Hold(environmentOf(ofA)))
		p = poll(t, h, waitsForRuns)
		require.Equal(t, 2, f.calls("Claim"), "its empty result is dropped")
		p.end()
		<-p.answer
	})
}

// TestStandby_HoldWithoutRunQueriesStore: a run with an unknown outcome may have started.
func TestStandby_HoldWithoutRunQueriesStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h, runners := standing(t, f)
		p, since := poll(t, h, waitsForRuns), time.Now()
		runners.Hold(environmentOf(ofA)).Give(nil)
		synctest.Wait()
		require.Equal(t, 2, f.calls("Claim"))
		require.Empty(t, p.runs(t))
		require.Equal(t, maxWait, time.Since(since), "it waits for the rest of its time")
	})
}

// TestStandby_SkipsUnsuitableRunners: without a free slot, without the bundle of the run, or before
// an empty result.
func TestStandby_SkipsUnsuitableRunners(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"no free slot":   `{"limit":0,"places":2,"wait_seconds":30,"runner_id":"r"}`,
		"refuses bundle": `{"limit":1,"places":2,"wait_seconds":30,"runner_id":"r","refused":["sha256:` + strings.Repeat("0", 64) + `"]}`,
		"does not wait":  `{"limit":1,"places":2,"runner_id":"r"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, runners := standing(t, &fake{})
				p := poll(t, h, request)
				require.Nil(t, runners.Hold(environmentOf(ofA)))
				p.end()
				<-p.answer
			})
		})
	}
}

// TestStandby_ReleasesUnclaimedRun: if the request or the token of the runner has ended.
func TestStandby_ReleasesUnclaimedRun(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(f *fake, h *Handler, p polled){
		"disconnected": func(_ *fake, _ *Handler, p polled) { p.end() },
		"token": func(f *fake, h *Handler, _ polled) {
			f.mutex.Lock()
			f.tokens = map[string]bool{}
			f.mutex.Unlock()
			time.Sleep(cacheTTL)
			h.wakeups.notifyEnvironment(environmentOf(ofA)) // as the hint about its end does
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				h, runners := standing(t, f)
				p := poll(t, h, waitsForRuns)
				held, run := runners.Hold(environmentOf(ofA)), begun()
				gone(f, h, p)
				synctest.Wait()
				held.Give([]store.Claimed{run})
				<-p.answer
				require.Equal(t, []store.Lease{{Run: run.Run.Key(), Token: run.Token}}, f.released)
			})
		})
	}
}
