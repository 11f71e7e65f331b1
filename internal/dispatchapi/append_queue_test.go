// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// heldRequests is a gateway that responds when it is told to.
type heldRequests struct {
	begun  chan []RunAppend
	finish chan error // of the request
}

func newHeldRequests() heldRequests {
	return heldRequests{begun: make(chan []RunAppend, 8), finish: make(chan error)}
}

// send fails the append of the run uuid.Max.
func (h heldRequests) send(_ context.Context, appends []RunAppend) ([]error, error) {
	h.begun <- appends
	if err := <-h.finish; err != nil {
		return nil, err
	}
	errs := make([]error, len(appends))
	for i, a := range appends {
		if a.RunID == uuid.Max {
			errs[i] = ErrFenced
		}
	}
	return errs, nil
}

func appendOf(run uuid.UUID, bytes int) RunAppend {
	return RunAppend{RunID: run, JournalRequest: JournalRequest{Entries: Entries{{Data: make([]byte, bytes)}}}}
}

func TestAppendQueue_SharesRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gateway, results := newHeldRequests(), make(chan error, 8)
		q := &appendQueue{send: gateway.send}
		try := func(ctx context.Context, a RunAppend) {
			go func() { results <- q.tryAppend(ctx, a) }()
			synctest.Wait()
		}
		try(t.Context(), appendOf(uuid.New(), 10))
		require.Len(t, <-gateway.begun, 1, "an append does not wait for others")
		gone, leave := context.WithCancel(t.Context())
		try(t.Context(), appendOf(uuid.New(), 10))
		try(t.Context(), appendOf(uuid.Max, 10))
		try(gone, appendOf(uuid.New(), 10))
		leave()
		require.ErrorIs(t, <-results, context.Canceled)
		try(t.Context(), appendOf(uuid.New(), maxAppendSize))
		require.Equal(t, errAlone, <-results, "a large append shares no request")

		gateway.finish <- nil
		require.NoError(t, <-results)
		require.Len(t, <-gateway.begun, 2, "without the cancelled append")
		gateway.finish <- nil
		both := []error{<-results, <-results}
		require.ErrorIs(t, errors.Join(both...), ErrFenced)
		require.Contains(t, both, nil, "an append does not fail because of another one")
		synctest.Wait()
		require.Zero(t, q.senders)
	})
}

// A gateway that hangs delays the appends that it got, and no others.
func TestAppendQueue_PassesHangingRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gateway, results := newHeldRequests(), make(chan error, 8)
		q := &appendQueue{send: gateway.send}
		for range 3 {
			go func() { results <- q.tryAppend(t.Context(), appendOf(uuid.New(), 10)) }()
			synctest.Wait()
		}
		require.Len(t, <-gateway.begun, 1)
		begun := time.Now()
		require.Len(t, <-gateway.begun, 2)
		require.Equal(t, shareWait, time.Since(begun))
		for range 2 {
			gateway.finish <- nil
		}
		for range 3 {
			require.NoError(t, <-results)
		}
		synctest.Wait()
		require.Zero(t, q.senders)
	})
}

func TestAppendQueue_SharesNoRequestAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gateway, results := newHeldRequests(), make(chan error, 8)
		q := &appendQueue{send: gateway.send}
		try := func() {
			go func() { results <- q.tryAppend(t.Context(), appendOf(uuid.New(), 10)) }()
			synctest.Wait()
		}
		try()
		try()
		require.Len(t, <-gateway.begun, 1)
		gateway.finish <- errAlone
		require.Equal(t, errAlone, <-results)
		require.Equal(t, errAlone, <-results, "of the append that waits")
		try()
		require.Equal(t, errAlone, <-results)
		time.Sleep(separateTime)
		try()
		require.Len(t, <-gateway.begun, 1)
		gateway.finish <- nil
		require.NoError(t, <-results)
	})
}

func TestAppendQueue_LimitsRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ appends, size, want int }{
		"number of appends": {MaxAppends + 1, 1, MaxAppends},
		"bytes":             {MaxAppends, maxAppendSize, maxAppendBytes / maxAppendSize},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &appendQueue{senders: 1}
			for range c.appends {
				q.waiting = append(q.waiting, &pendingAppend{size: c.size})
			}
			require.Len(t, q.nextBatch(), c.want)
			require.Len(t, q.waiting, c.appends-c.want)
		})
	}
}

// respondToAppends is a gateway that fences the append with the token 1, and that has no capacity for the one with the token 2.
func respondToAppends(w http.ResponseWriter, r *http.Request) {
	var req AppendRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	resp := AppendResponse{}
	for _, a := range req.Appends {
		result := AppendResult{Status: http.StatusNoContent}
		switch a.Token {
		case 1:
			result = AppendResult{Status: http.StatusConflict, Detail: "fenced"}
		case 2:
			result = AppendResult{Status: http.StatusServiceUnavailable, Detail: "busy"}
		}
		resp.Results = append(resp.Results, result)
	}
	_ = json.NewEncoder(w).Encode(resp)
}

// Appends that come together reach each gateway: one that knows their request, one of an earlier release, and one that fails.
func TestJournal_ReachesEachGateway(t *testing.T) {
	t.Parallel()
	const appends = 8
	for name, shared := range map[string]http.HandlerFunc{
		"current":               respondToAppends,
		"of an earlier release": http.NotFound,
		"that sends nothing":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) },
		"without a result": func(w http.ResponseWriter, r *http.Request) {
			var req AppendRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			_ = json.NewEncoder(w).Encode(AppendResponse{Results: make([]AppendResult, len(req.Appends))})
		},
		"that rejects the token": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, proceed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/journal") {
					shared(w, r)
					return
				}
				once.Do(func() { close(first); <-proceed })
				var req JournalRequest
				_ = json.NewDecoder(r.Body).Decode(&req)
				if req.Token == 1 {
					w.WriteHeader(http.StatusConflict)
				}
			}))
			t.Cleanup(server.Close)
			client, err := NewClient(Options{URL: server.URL, Token: "t"})
			require.NoError(t, err)
			errs, group := make([]error, appends), sync.WaitGroup{}
			ask := func(i int) {
				group.Go(func() { errs[i] = client.Journal(t.Context(), uuid.New(), JournalRequest{Token: int64(i)}) })
			}
			ask(0)
			<-first
			for i := range appends - 1 {
				ask(i + 1)
			}
			close(proceed)
			group.Wait()
			for i, err := range errs {
				if i == 1 {
					require.ErrorIs(t, err, ErrFenced)
				} else {
					require.NoError(t, err, fmt.Sprint(i))
				}
			}
		})
	}
}
