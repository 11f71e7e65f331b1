// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// After a failed request, appends are sent alone: for a moment after most failures, and longer if the gateway does not know shared
// requests or asks for it. The appends of a rejected request are sent alone at once, and after any other failure after a pause.
func TestAppendQueue_SharesNoRequestAfterFailure(t *testing.T) {
	t.Parallel()
	response := func(status int, retryAfter time.Duration) error {
		return fmt.Errorf("sharing: %w", &errorResponse{statusError("POST", status, "no"), status, retryAfter})
	}
	for name, row := range map[string]struct {
		failure error
		atOnce  bool
		want    time.Duration
	}{
		"no connection":         {io.ErrUnexpectedEOF, false, separateTime},
		"busy":                  {response(http.StatusServiceUnavailable, 0), false, separateTime},
		"an entry is suspected": {response(http.StatusServiceUnavailable, 7*time.Second), false, 7 * time.Second},
		"invalid":               {response(http.StatusBadRequest, 0), true, separateTime},
		"of an earlier release": {response(http.StatusNotFound, 0), true, unsupportedTime},
		"another method":        {response(http.StatusMethodNotAllowed, 0), true, unsupportedTime},
	} {
		t.Run(name, func(t *testing.T) {
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
				gateway.finish <- row.failure
				both := []error{<-results, <-results}
				require.ErrorIs(t, errors.Join(both...), errAlone, "the append that waits is sent at once")
				require.Equal(t, row.atOnce, errors.Is(both[0], errAlone) && errors.Is(both[1], errAlone))
				require.NotContains(t, both, nil)
				time.Sleep(row.want - time.Nanosecond)
				try()
				require.ErrorIs(t, <-results, errAlone)
				time.Sleep(time.Nanosecond)
				try()
				require.Len(t, <-gateway.begun, 1)
				gateway.finish <- nil
				require.NoError(t, <-results)
			})
		})
	}
}

// roundTrip is a transport that calls a function.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An append that a shared request could not store for lack of capacity is sent again after a pause, as if it had been sent alone.
func TestJournal_PausesAfterSharedRefusal(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"too many": http.StatusTooManyRequests, "busy": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var refused, alone time.Time
				client, err := NewClient(Options{URL: "http://gateway", Token: "t"})
				require.NoError(t, err)
				client.http = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					require.True(t, strings.HasSuffix(r.URL.Path, "/journal"), r.URL.Path)
					alone = time.Now()
					return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
				})}
				client.appends.send = func(_ context.Context, appends []RunAppend) ([]error, error) {
					refused = time.Now()
					return []error{statusError("POST", status, "no capacity")}, nil
				}
				require.NoError(t, client.Journal(t.Context(), uuid.New(), JournalRequest{}))
				require.True(t, alone.After(refused))
			})
		})
	}
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

// A failed request does not shorten the time that an earlier failure has begun.
func TestAppendQueue_KeepsLongerSeparation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &appendQueue{}
		q.separate(unsupportedTime)
		q.separate(separateTime)
		time.Sleep(unsupportedTime - 1) // in a bubble
		require.False(t, q.addWaiting(&pendingAppend{}))
	})
}
