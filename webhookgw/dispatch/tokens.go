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
	// tokenFor is how long a runner's token is taken for valid without asking again,
	// while no hint says that something of its environment has changed. No such hint
	// tells of the end of a build.
	tokenFor = 5 * time.Minute
	// unknownPerSecond is how many tokens that nobody has shown yet are looked for a
	// second for one address, unknownBurst how many at once: a pod has one, but pods
	// may share an address. All together are looked for unknownReads at a time.
	unknownPerSecond = 50
	unknownBurst     = 200
	unknownReads     = 4
	// knownReads is how many tokens that are known are read anew at once: what wakes
	// all runners at the same moment does not ask the store for each at once.
	knownReads = 4
	// lookupPatience is how long such a token waits for its turn, lookupTime how long
	// it is looked for.
	lookupPatience, lookupTime = 5 * time.Second, 10 * time.Second
)

// tokens finds whose tokens are. Those that were shown before cost nothing while they
// hold. One that was not is new or invented: it is looked for in its turn, once for
// all who show it, and those of one address do not stand in the way of another's.
type tokens struct {
	source  store.Tokens
	wakeups *wakeups
	known   *cache.Cache[[sha256.Size]byte, knownToken]
	// absent are those that were looked for in vain.
	absent *cache.Cache[[sha256.Size]byte, struct{}]
	// reads are of tokens that nobody has shown lately, rereads of the others.
	reads, rereads *semaphore.Weighted
	lookups        singleflight.Group
	again          singleflight.Group // of known ones, after a hint

	mutex   sync.Mutex // of the making of senders
	senders *cache.Cache[netip.Addr, *rate.Limiter]
}

// knownToken is a token, with when it was read and how many hints there were of its
// environment.
type knownToken struct {
	store.Token
	rung uint64
	read time.Time
}

var (
	errToken  = httpserver.NewProblem(http.StatusUnauthorized, httpserver.CodeInvalidToken, "The token is missing, unknown, or of something that ended.")
	errTokens = later(http.StatusServiceUnavailable, httpserver.CodeBusy, "Too many tokens are being looked for; call again.")
)

func newTokens(source store.Tokens, w *wakeups) *tokens {
	return &tokens{
		source: source, wakeups: w, reads: semaphore.NewWeighted(unknownReads), rereads: semaphore.NewWeighted(knownReads),
		known:   cache.New[[sha256.Size]byte, knownToken](maxRecent, tokenFor, nil),
		absent:  cache.New[[sha256.Size]byte, struct{}](maxRecent, absentFor, nil),
		senders: cache.New[netip.Addr, *rate.Limiter](maxRecent, 0, nil),
	}
}

// of is the token of a request; errToken without a valid one.
func (t *tokens) of(r *http.Request) (store.Token, error) {
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
		return t.find(r, digest)
	}
	rung := t.wakeups.rung(known.Environment())
	lasting := known.Kind == store.TokenRunner && known.rung == rung
	if time.Since(known.read) < recentFor || lasting {
		return known.Token, nil
	}
	return t.readOnce(r.Context(), digest, rung)
}

// readOnce is read, once for all who want it at the same moment: a hint wakes everybody
// who waits with the token.
func (t *tokens) readOnce(ctx context.Context, digest [sha256.Size]byte, rung uint64) (store.Token, error) {
	found := t.again.DoChan(string(digest[:])+strconv.FormatUint(rung, 10), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		if t.rereads.Acquire(ctx, 1) != nil {
			return store.Token{}, errTokens
		}
		defer t.rereads.Release(1)
		return t.read(ctx, digest, rung)
	})
	select {
	case answer := <-found:
		token, _ := answer.Val.(store.Token)
		return token, answer.Err
	case <-ctx.Done():
		return store.Token{}, context.Cause(ctx)
	}
}

// read asks the store for a token; rung are the hints that came before.
func (t *tokens) read(ctx context.Context, digest [sha256.Size]byte, rung uint64) (store.Token, error) {
	token, err := t.source.Token(ctx, digest[:])
	switch {
	case errors.Is(err, store.ErrNotFound):
		t.absent.Put(digest, struct{}{})
		return store.Token{}, errToken
	case err == nil:
		t.known.Put(digest, knownToken{Token: token, rung: rung, read: time.Now()})
	}
	return token, err
}

// find looks for a token that nobody has shown lately, once for all who wait for it.
func (t *tokens) find(r *http.Request, digest [sha256.Size]byte) (store.Token, error) {
	found := t.lookups.DoChan(string(digest[:]), func() (any, error) {
		return t.lookUp(context.WithoutCancel(r.Context()), t.sender(r), digest)
	})
	select {
	case answer := <-found:
		token, _ := answer.Val.(store.Token)
		return token, answer.Err
	case <-r.Context().Done():
		return store.Token{}, context.Cause(r.Context())
	}
}

// sender is the budget of the address that a request came from.
func (t *tokens) sender(r *http.Request) *rate.Limiter {
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

// lookUp asks the store for a token, in its sender's turn.
func (t *tokens) lookUp(ctx context.Context, sender *rate.Limiter, digest [sha256.Size]byte) (store.Token, error) {
	turn, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	if sender.Wait(turn) != nil || t.reads.Acquire(turn, 1) != nil {
		return store.Token{}, errTokens
	}
	defer t.reads.Release(1)
	ctx, cancel = context.WithTimeout(ctx, lookupTime)
	defer cancel()
	// Whose it is shows only once it was read: hints before that were not counted.
	return t.read(ctx, digest, math.MaxUint64)
}
