// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// oneToken is a store with one runner's token, until it is replaced, and with
// one run, once it is queued.
type oneToken struct {
	Store
	mutex            sync.Mutex
	replaced, queued bool
	tokens, claims   int
}

func (s *oneToken) Token(_ context.Context, digest []byte) (store.Token, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tokens++
	if s.replaced {
		return store.Token{}, store.ErrNotFound
	}
	return store.Token{SHA256: digest, Kind: store.TokenRunner}, nil
}

func (s *oneToken) Claim(context.Context, store.Claim) ([]store.Claimed, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.claims++
	if !s.queued {
		return nil, nil
	}
	s.queued = false
	return []store.Claimed{{Run: store.Run{ID: uuid.New()}}}, nil
}

func (s *oneToken) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{}, nil
}

func (s *oneToken) set(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change()
}

// waiting begins a claim that waits for a run, in a bubble of synctest.
func waiting(h *Handler) <-chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/claim", strings.NewReader(`{"limit":1,"wait_seconds":30}`))
		r.Header.Set("Authorization", "Bearer token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answered <- w
	}()
	synctest.Wait()
	return answered
}

// TestATokenThatEndedWhileAClaimWaitsTakesNoRun: when the claim looks again, what
// was remembered of the token is too old.
func TestATokenThatEndedWhileAClaimWaitsTakesNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &oneToken{}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		answered := waiting(h)
		s.set(func() { s.replaced, s.queued = true, true })
		w := <-answered
		require.Equal(t, http.StatusUnauthorized, w.Code, w.Body.String())
		require.True(t, s.queued, "the run is for who has the new token")
		require.Equal(t, 1, s.claims)
	})
}

func TestATokenThatHoldsTakesWhatComesWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &oneToken{}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		first, second := waiting(h), waiting(h)
		s.set(func() { s.queued = true })
		took := 0
		for _, answered := range []<-chan *httptest.ResponseRecorder{first, second} {
			w := <-answered
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			var resp dispatchapi.ClaimResponse
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
			took += len(resp.Runs)
		}
		require.Equal(t, 1, took)
		require.LessOrEqual(t, s.tokens, 2*31, "no more than one read a second and waiting claim")
	})
}
