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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// oneToken is a store with one runner token, until it is replaced, and one run, once it is queued.
type oneToken struct {
	Store
	mutex            sync.Mutex
	replaced, queued bool
	tokens, claims   int
}

func (*oneToken) Actions(context.Context, store.Key, []string) ([]store.Action, error) {
	return nil, nil
}

func (*oneToken) Connections() int { return fakeConnections }

func (s *oneToken) Token(_ context.Context, digest []byte) (store.Token, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tokens++
	if s.replaced {
		return store.Token{}, store.ErrNotFound
	}
	return store.Token{SHA256: digest, Kind: store.TokenRunner}, nil
}

func (s *oneToken) Claim(context.Context, store.Claim) (store.ClaimResult, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.claims++
	if !s.queued {
		return store.ClaimResult{}, nil
	}
	s.queued = false
	return store.ClaimResult{Runs: []store.Claimed{{Run: store.Run{ID: uuid.New()}}}}, nil
}

func (s *oneToken) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{}, nil
}

func (s *oneToken) set(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change()
}

// waiting starts a claim that waits for a run, in a synctest bubble.
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

// TestClaim_ExpiredTokenGetsNoRun: the hint about the token wakes the claim, which reads the token
// again.
func TestClaim_ExpiredTokenGetsNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &oneToken{}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		answered := waiting(h)
		s.set(func() { s.replaced, s.queued = true, true })
		time.Sleep(cacheTTL) // bubble time: cached for this long
		h.wakeups.notifyEnvironment(store.Key{})
		w := <-answered
		require.Equal(t, http.StatusUnauthorized, w.Code, w.Body.String())
		require.True(t, s.queued, "the runner with the new token gets the run")
		require.Equal(t, 1, s.claims)
	})
}

func TestClaim_ValidTokenGetsNewRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &oneToken{}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		first, second := waiting(h), waiting(h)
		s.set(func() { s.queued = true })
		h.wakeups.notifyEnvironment(store.Key{})
		took := 0
		for _, answered := range []<-chan *httptest.ResponseRecorder{first, second} {
			w := <-answered
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			var resp dispatchapi.ClaimResponse
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &resp))
			took += len(resp.Runs)
		}
		require.Equal(t, 1, took)
		require.LessOrEqual(t, s.tokens, 2, "read once, and again after a change")
	})
}

// TestWakeups_FreeSlotWakesWaitingRunners: only runners that skipped runs are woken. A slot that
// becomes free during the query is not missed.
func TestWakeups_FreeSlotWakesWaitingRunners(t *testing.T) {
	t.Parallel()
	w, environment := newWakeups(), store.Key{ID: uuid.New()}
	woken := func(ring <-chan struct{}) bool {
		select {
		case <-ring:
			return true
		default:
			return false
		}
	}
	ring, _, freed := w.nextHint(environment)
	w.noteFreed(environment)
	require.False(t, woken(ring), "no runner skipped a run")
	require.True(t, w.noteLeftover(environment, freed), "a slot became free during the query")
	_, _, freed = w.nextHint(environment)
	require.False(t, w.noteLeftover(environment, freed))
	w.noteFreed(store.Key{ID: uuid.New()})
	require.False(t, woken(ring), "of another environment")
	w.noteFreed(environment)
	require.True(t, woken(ring))
	ring, _, _ = w.nextHint(environment)
	w.noteFreed(environment)
	require.False(t, woken(ring), "it queries again first")
}

// TestJournal_StoresCost: the cost of a model call is stored with its entry.
func TestJournal_StoresCost(t *testing.T) {
	t.Parallel()
	usage := dispatchapi.TokenUsage{InputTokens: 1, OutputTokens: 2, ThinkingTokens: 3, CachedInputTokens: 4, TotalTokens: 6}
	got, err := storeEntries([]dispatchapi.JournalEntry{{Sequence: 1, Kind: dispatchapi.JournalModelAnswer, Usage: &dispatchapi.ModelUsage{
		Model: "m", TokenUsage: usage, Cost: &dispatchapi.Cost{Currency: "EUR", Nanos: 5},
	}}})
	require.NoError(t, err)
	require.Equal(t, &store.ModelUsage{Model: "m", TokenUsage: store.TokenUsage(usage), Cost: store.Cost{Currency: store.EUR, Nanos: 5}}, got[0].Usage)
}

// TestClaim_FullRunnerQueriesAgain: a full runner has no empty result, so its next request queries
// the store.
func TestClaim_FullRunnerQueriesAgain(t *testing.T) {
	t.Parallel()
	s := &oneToken{}
	h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
	ask := func(limit string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/claim", strings.NewReader(`{"runner_id":"r","places":1,"limit":`+limit+`}`))
		r.Header.Set("Authorization", "Bearer token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	}
	ask("0")
	ask("1")
	require.Equal(t, 2, s.claims)
	ask("1")
	require.Equal(t, 2, s.claims, "empty result a moment ago")
}

// TestTokens_ExpiryOfCachedTokens: no hint reports the end of a build, so its token is read again.
// A runner's token is only read once more, to count hints from then on.
func TestTokens_ExpiryOfCachedTokens(t *testing.T) {
	t.Parallel()
	for kind, reads := range map[store.TokenKind]int{store.TokenBuild: 4, store.TokenRunner: 2} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &kindOfToken{kind: kind}
				h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("Authorization", "Bearer token")
				for range 4 {
					_, err := h.tokens.tokenOf(r)
					require.NoError(t, err)
					time.Sleep(cacheTTL) // bubble time
				}
				require.Equal(t, reads, s.reads, kind)
			})
		})
	}
}

// kindOfToken is a store with one token of a kind.
type kindOfToken struct {
	Store
	kind  store.TokenKind
	reads int
}

func (*kindOfToken) Connections() int { return fakeConnections }

func (s *kindOfToken) Token(_ context.Context, digest []byte) (store.Token, error) {
	s.reads++
	return store.Token{SHA256: digest, Kind: s.kind}, nil
}
