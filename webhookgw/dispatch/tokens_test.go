// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

func tokensOf(f *fake) *tokenCache { return newTokenCache(f, newWakeups()) }

// show sends a token from an address.
func show(t *testing.T, from *tokenCache, address, token string) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.RemoteAddr = address + ":1234"
	_, err := from.tokenOf(r)
	return err
}

// TestTokens_LimitUnknownTokens: few made-up tokens are looked up, and valid tokens of other
// addresses are found meanwhile.
func TestTokens_LimitUnknownTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		from := tokensOf(f)
		answered := make(chan error, 1000)
		for i := range cap(answered) {
			go func() { answered <- show(t, from, "10.0.0.1", fmt.Sprint("invented-", i)) }()
		}
		synctest.Wait()
		require.Equal(t, unknownBurst, f.calls("Token"))
		require.NoError(t, show(t, from, "10.0.0.2", "modest"))
		time.Sleep(lookupQueueTimeout) // bubble time
		synctest.Wait()
		require.LessOrEqual(t, f.calls("Token"), 1+unknownBurst+unknownPerSecond*int(lookupQueueTimeout/time.Second))
		refused := map[string]int{}
		for range cap(answered) {
			refused[(<-answered).Error()]++
		}
		require.Equal(t, f.calls("Token")-1, refused[errToken.Error()])
		require.Equal(t, cap(answered), refused[errToken.Error()]+refused[errTokens.Error()], "repeated requests are looked up")
		time.Sleep(time.Second)
		require.NoError(t, show(t, from, "10.0.0.1", "a"), "in the queue of the same address")
	})
}

// TestTokens_LookupIsShared: a missing token is cached for a moment only, so that a new token is
// found.
func TestTokens_LookupIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{tokens: map[string]bool{}}
		from := tokensOf(f)
		for range 10 {
			require.Equal(t, errToken, show(t, from, "10.0.0.1", "a"))
		}
		require.Equal(t, 1, f.calls("Token"))
		f.tokens["a"] = true
		time.Sleep(absentTTL) // bubble time
		f.hold = make(chan struct{})
		answered := make(chan error, 10)
		for range cap(answered) {
			go func() { answered <- show(t, from, "10.0.0.1", "a") }()
		}
		synctest.Wait()
		close(f.hold)
		for range cap(answered) {
			require.NoError(t, <-answered)
		}
		require.Equal(t, 2, f.calls("Token"))
	})
}

// TestTokens_KnownTokensDoNotWait: after a hint a known token is read at once.
func TestTokens_KnownTokensDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		from := tokensOf(f)
		require.NoError(t, show(t, from, "10.0.0.1", "a"))
		for i := range 2 * unknownBurst {
			go func() { _ = show(t, from, "10.0.0.1", fmt.Sprint("invented-", i)) }()
		}
		time.Sleep(cacheTTL) // bubble time
		begin := time.Now()
		for range 3 {
			from.wakeups.notifyEnvironment(store.Key{ProjectID: named("a"), ID: named("a")})
			time.Sleep(cacheTTL)
			require.NoError(t, show(t, from, "10.0.0.1", "a"))
		}
		require.Equal(t, 3*cacheTTL, time.Since(begin), "bubble time")
		time.Sleep(lookupQueueTimeout)
	})
}

// slowTokens has a different runner for each token. Its reads block once slow is set.
type slowTokens struct {
	store.Tokens
	slow  bool
	under chan struct{} // one value for each running read
}

func (s *slowTokens) Token(ctx context.Context, digest []byte) (store.Token, error) {
	if !s.slow {
		id := named(string(digest))
		return store.Token{Kind: store.TokenRunner, ProjectID: id, EnvironmentID: id}, nil
	}
	s.under <- struct{}{}
	<-ctx.Done()
	<-s.under
	return store.Token{}, ctx.Err()
}

// TestTokens_LimitConcurrentReads: when one event wakes all runners, each with its own token.
func TestTokens_LimitConcurrentReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const runners = 100
		source := &slowTokens{under: make(chan struct{}, runners)}
		from := tokensOf(&fake{})
		from.source = source
		for i := range runners {
			require.NoError(t, show(t, from, fmt.Sprintf("10.0.0.%d", i), fmt.Sprint("runner-", i)))
		}
		time.Sleep(cacheTTL) // bubble time
		source.slow = true
		from.wakeups.wakeAll()
		answers := make(chan error, runners)
		for i := range runners {
			go func() { answers <- show(t, from, "10.0.0.1", fmt.Sprint("runner-", i)) }()
		}
		synctest.Wait()
		require.Len(t, source.under, knownReads)
		time.Sleep(2 * lookupTimeout)
		require.Len(t, answers, runners, "no request waits forever")
	})
}
