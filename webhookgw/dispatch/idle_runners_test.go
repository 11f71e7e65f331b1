// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// running runs a handler until the test ends.
func running(t *testing.T, f *fake) *Handler {
	t.Helper()
	h := handlerOf(f)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return h
}

// TestAttendance_IdleRunnersCostNoQueries: a runner with an empty result and an unchanged request
// waits without a query, except the one that records all waiting runners. After a while the store
// is queried again.
func TestAttendance_IdleRunnersCostNoQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := running(t, f)
		polls := func(request string) {
			require.Equal(t, http.StatusOK, ask(t, h, "a", http.MethodPost, "/v1/claim", request).Code)
		}
		const usual = `{"limit":1,"places":4,"wait_seconds":30,"runner_id":"r"}`
		begun := time.Now()
		polls(usual)
		require.Equal(t, 1, f.calls("Claim"))
		for time.Since(begun) < emptyResultTTL-maxWait {
			polls(usual)
		}
		require.Equal(t, 1, f.calls("Claim"))
		require.InDelta(t, time.Since(begun)/presenceInterval, f.calls("Attend"), 1)
		polls(`{"limit":1,"places":5,"wait_seconds":30,"runner_id":"r"}`)
		require.Equal(t, 2, f.calls("Claim"), "it has another free slot")
		polls(`{"limit":1,"places":4,"wait_seconds":30,"runner_id":"s"}`)
		require.Equal(t, 3, f.calls("Claim"), "another runner")
		polls(usual[:len(usual)-1] + `,"unanswered":true}`)
		require.Equal(t, 4, f.calls("Claim"), "a response was lost, and is queried once")
		time.Sleep(emptyResultTTL)
		polls(usual)
		require.Equal(t, 5, f.calls("Claim"), "after a while")
	})
}

// TestAttendance_FindsRunsAfterLostHint: the check of all waiting runners' queues finds the run.
func TestAttendance_FindsRunsAfterLostHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{waits: []store.Key{{ProjectID: named("a"), ID: named("a")}}}
		h := running(t, f)
		begun := time.Now()
		w := ask(t, h, "a", http.MethodPost, "/v1/claim", `{"limit":1,"places":4,"wait_seconds":30,"runner_id":"r"}`)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, 2, f.calls("Claim"), "woken once")
		require.Equal(t, maxWait, time.Since(begun), "the result is still empty")
	})
}

// TestAttendance_StoreUnavailable: waiting runners query the store again and get its error, because
// runs may be queued at another gateway.
func TestAttendance_StoreUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{away: errors.New("away")}
		h := running(t, f)
		p := poll(t, h, waitsForRuns)
		require.Equal(t, 1, f.calls("Claim"))
		time.Sleep(presenceInterval)
		synctest.Wait()
		require.Equal(t, 2, f.calls("Claim"))
		p.end()
		<-p.answer
	})
}

// TestTokens_HintReadsTokenOnce: however many requests wait with the token.
func TestTokens_HintReadsTokenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := running(t, f)
		for i := range 50 {
			p := poll(t, h, strings.Replace(waitsForRuns, `"r"`, fmt.Sprintf(`"r-%d"`, i), 1))
			defer func() {
				p.end()
				<-p.answer
			}()
		}
		require.Equal(t, 1, f.calls("Token"))
		time.Sleep(cacheTTL)
		f.mutex.Lock()
		f.hold = make(chan struct{})
		f.mutex.Unlock()
		h.wakeups.notifyEnvironment(environmentOf(ofA))
		synctest.Wait()
		require.Equal(t, 2, f.calls("Token"))
		close(f.hold)
		synctest.Wait()
		require.Equal(t, 2, f.calls("Token"))
	})
}
