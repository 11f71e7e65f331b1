// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// tokenTTL is how long a runner's token is cached, unless a hint reports a change of its
	// environment. No hint reports the end of a build.
	tokenTTL = 5 * time.Minute
	// unknownPerSecond limits the lookups of unknown tokens per address and second, and unknownBurst
	// the lookups at once. A pod usually has its own address.
	// unknownReads limits all concurrent lookups.
	unknownPerSecond = 50
	unknownBurst     = 200
	unknownReads     = 4
	// knownReads limits the concurrent reads of known tokens, because one event can wake all
	// runners at the same moment.
	knownReads = 4
	// lookupQueueTimeout is how long a lookup waits in the queue. lookupTimeout limits the lookup.
	lookupQueueTimeout, lookupTimeout = 5 * time.Second, 10 * time.Second
)

// tokenCache maps tokens to environments and deployments. Cached tokens need no query. An unknown token
// is new or made up. It is looked up once for all its requests, after a wait in the queue of its
// address, so addresses do not delay each other.
type tokenCache struct {
	source  store.Tokens
	wakeups *wakeups
	known   *cache.Cache[[sha256.Size]byte, knownToken]
	// absent caches tokens that do not exist.
	absent *cache.Cache[[sha256.Size]byte, struct{}]
	// reads limits lookups of unknown tokens, rereads lookups of known ones.
	reads, rereads *semaphore.Weighted
	lookups        singleflight.Group
	again          singleflight.Group // for known tokens after a hint

	mutex   sync.Mutex // guards the creation of senders
	senders *cache.Cache[netip.Addr, *rate.Limiter]
}

// knownToken is a cached token, with the time of the read and the number of hints for its
// environment.
type knownToken struct {
	store.Token
	queuedHints uint64
	read        time.Time
}

var (
	errToken  = httpserver.NewProblem(http.StatusUnauthorized, httpserver.CodeInvalidToken, "The token is missing or unknown, or its build or environment has ended.")
	errTokens = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy, "Too many unknown tokens are being looked up. Retry later.")
)

func newTokenCache(source store.Tokens, w *wakeups) *tokenCache {
	return &tokenCache{
		source: source, wakeups: w, reads: semaphore.NewWeighted(unknownReads), rereads: semaphore.NewWeighted(knownReads),
		known:   cache.New[[sha256.Size]byte, knownToken](maxRecent, tokenTTL, nil),
		absent:  cache.New[[sha256.Size]byte, struct{}](maxRecent, absentTTL, nil),
		senders: cache.New[netip.Addr, *rate.Limiter](maxRecent, 0, nil),
	}
}

// tokenOf returns the token of a request, or errToken.
func (t *tokenCache) tokenOf(r *http.Request) (store.Token, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || text == "" {
		return store.Token{}, errToken
	}
	digest := sha256.Sum256([]byte(text))
	if _, absent := t.absent.Get(digest); absent {
		return store.Token{}, errToken
	}
	known, found := t.known.Get(digest)
	if !found {
		return t.findToken(r, digest)
	}
	rung := t.wakeups.hintCount(known.Environment())
	lasting := known.Kind == store.TokenRunner && known.queuedHints == rung
	if time.Since(known.read) < cacheTTL || lasting {
		return known.Token, nil
	}
	return t.readOnce(r.Context(), digest, rung)
}

// readOnce reads a token once for all concurrent requests. A hint wakes all requests that wait with
// the token.
func (t *tokenCache) readOnce(ctx context.Context, digest [sha256.Size]byte, rung uint64) (store.Token, error) {
	found := t.again.DoChan(string(digest[:])+strconv.FormatUint(rung, 10), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		if t.rereads.Acquire(ctx, 1) != nil {
			return store.Token{}, errTokens
		}
		defer t.rereads.Release(1)
		return t.readToken(ctx, digest, rung)
	})
	select {
	case answer := <-found:
		token, _ := answer.Val.(store.Token)
		return token, answer.Err
	case <-ctx.Done():
		return store.Token{}, context.Cause(ctx)
	}
}

// readToken reads a token from the store. rung is the number of hints before the read.
func (t *tokenCache) readToken(ctx context.Context, digest [sha256.Size]byte, rung uint64) (store.Token, error) {
	token, err := t.source.Token(ctx, digest[:])
	switch {
	case errors.Is(err, store.ErrNotFound):
		t.absent.Put(digest, struct{}{})
		return store.Token{}, errToken
	case err == nil:
		t.known.Put(digest, knownToken{Token: token, queuedHints: rung, read: time.Now()})
	}
	return token, err
}

// findToken looks up an unknown token, once for all its requests.
func (t *tokenCache) findToken(r *http.Request, digest [sha256.Size]byte) (store.Token, error) {
	found := t.lookups.DoChan(string(digest[:]), func() (any, error) {
		return t.lookUpToken(context.WithoutCancel(r.Context()), t.senderLimiter(r), digest)
	})
	select {
	case answer := <-found:
		token, _ := answer.Val.(store.Token)
		return token, answer.Err
	case <-r.Context().Done():
		return store.Token{}, context.Cause(r.Context())
	}
}

// senderLimiter returns the rate limiter of the request's address.
func (t *tokenCache) senderLimiter(r *http.Request) *rate.Limiter {
	address := httpserver.Proxies(nil).Client(r)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	sender, known := t.senders.Get(address)
	if !known {
		sender = rate.NewLimiter(unknownPerSecond, unknownBurst)
		t.senders.Put(address, sender)
	}
	return sender
}

// lookUpToken reads a token from the store within the rate limit of its sender.
func (t *tokenCache) lookUpToken(ctx context.Context, sender *rate.Limiter, digest [sha256.Size]byte) (store.Token, error) {
	turn, cancel := context.WithTimeout(ctx, lookupQueueTimeout)
	defer cancel()
	if sender.Wait(turn) != nil || t.reads.Acquire(turn, 1) != nil {
		return store.Token{}, errTokens
	}
	defer t.reads.Release(1)
	ctx, cancel = context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	// The environment is unknown before the read, so earlier hints were not counted.
	return t.readToken(ctx, digest, math.MaxUint64)
}
