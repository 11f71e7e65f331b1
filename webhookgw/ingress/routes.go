// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// routes caches routes. A cached one may be old, for it only lets in: the commit
// asserts it, and what it refuses is judged by load, which is never old.
//
// The ids of all connectors are known, so that reading those that strangers make
// up, of which each must be read before it is refused, stands in no other's way.
type routes struct {
	source store.Routes
	logger *slog.Logger
	cached *lru.Cache[store.Key, store.Route]
	// known and unknown are how many are read at once.
	known, unknown *semaphore.Weighted
	lost           chan struct{} // holds one: connectors may have come unseen
	learned        atomic.Bool   // all ids were read once

	mutex     sync.Mutex
	ids       map[store.Key]struct{}
	reading   map[store.Key]*reading
	strangers int // of reading: those whose id is not in ids
}

// reading coalesces the reads of one route. A read that began before a caller
// came may not have seen what the caller must see, so callers that come while
// one is under way share the one after it.
type reading struct {
	current, next *read
	stranger      bool
}

type read struct {
	done  chan struct{}
	route store.Route
	err   error
}

// errStrangers is what requests for unknown ids get while too many are read.
var errStrangers = later(http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown,
	"Too many requests for URLs that nobody knows are under way. If this one is right, send the request again.")

func newRoutes(source store.Routes, logger *slog.Logger) *routes {
	cached, err := lru.New[store.Key, store.Route](maxRoutes)
	if err != nil {
		panic("making a cache of routes: " + err.Error()) // refuses sizes below 1 alone
	}
	return &routes{
		source: source, logger: logger, cached: cached, lost: make(chan struct{}, 1),
		known: semaphore.NewWeighted(maxReads), unknown: semaphore.NewWeighted(maxStrangerReads),
		ids: map[store.Key]struct{}{}, reading: map[store.Key]*reading{},
	}
}

// peek returns the cached route, if there is one.
func (r *routes) peek(key store.Key) (store.Route, bool) { return r.cached.Get(key) }

// knows says whether there is, or lately was, such a connector.
func (r *routes) knows(key store.Key) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, known := r.ids[key]
	return known
}

// load reads a route as it is at some moment after the call; store.ErrNotFound
// when no such connector exists, errStrangers when too many ask for such.
func (r *routes) load(ctx context.Context, key store.Key) (store.Route, error) {
	mine, err := r.join(key)
	if err != nil {
		return store.Route{}, err
	}
	select {
	case <-mine.done:
		return mine.route, mine.err
	case <-ctx.Done():
		return store.Route{}, context.Cause(ctx)
	}
}

// join returns a read that has not begun yet, and sees that it will.
func (r *routes) join(key store.Key) (*read, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at, busy := r.reading[key]
	if busy {
		if at.next == nil {
			at.next = &read{done: make(chan struct{})}
		}
		return at.next, nil
	}
	at = &reading{current: &read{done: make(chan struct{})}}
	if _, known := r.ids[key]; !known {
		if r.strangers >= maxStrangers {
			return nil, errStrangers
		}
		at.stranger = true
		r.strangers++
	}
	r.reading[key] = at
	go r.work(key, at)
	return at.current, nil
}

// work reads until nobody waits for another read.
func (r *routes) work(key store.Key, at *reading) {
	for current := at.current; current != nil; {
		current.route, current.err = r.fetch(key, at.stranger)
		r.mutex.Lock()
		r.remember(key, current)
		at.current, at.next = at.next, nil
		if at.current == nil {
			delete(r.reading, key)
			if at.stranger {
				r.strangers--
			}
		}
		close(current.done)
		current = at.current
		r.mutex.Unlock()
	}
}

func (r *routes) fetch(key store.Key, stranger bool) (store.Route, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	budget := r.known
	if stranger {
		budget = r.unknown
	}
	switch err := budget.Acquire(ctx, 1); {
	case err != nil && stranger:
		return store.Route{}, errStrangers
	case err != nil:
		return store.Route{}, fmt.Errorf("waiting to read a route: %w", err)
	}
	defer budget.Release(1)
	return r.source.Route(ctx, key)
}

func (r *routes) remember(key store.Key, result *read) {
	switch {
	case result.err == nil:
		r.cached.Add(key, result.route)
		r.ids[key] = struct{}{}
	case errors.Is(result.err, store.ErrNotFound):
		r.cached.Remove(key)
		delete(r.ids, key)
	}
}

// follow forgets routes that hints name, until the channel closes. With those that
// were lost nothing is forgotten, or all requests would read at once: what has
// changed meanwhile is found at its next commit.
func (r *routes) follow(hints <-chan store.Hint) {
	for hint := range hints {
		if hint.Key != (store.Key{}) {
			r.cached.Remove(hint.Key)
			r.learn(hint.Key)
			continue
		}
		select {
		case r.lost <- struct{}{}:
		default: // the ids are read soon
		}
	}
}

// learn makes ids known. One that goes by unseen is found to be gone when it is
// asked for.
func (r *routes) learn(keys ...store.Key) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, key := range keys {
		r.ids[key] = struct{}{}
	}
}

// run keeps the ids of all connectors known until ctx ends: it reads them at the
// start, and when hints may have been lost.
func (r *routes) run(ctx context.Context) {
	for {
		for err := r.runOnce(ctx); err != nil && ctx.Err() == nil; err = r.runOnce(ctx) {
			r.logger.Error("reading the ids of all connectors", "error", err)
			_ = pause.For(ctx, learnAgain) // ended or not, ctx is looked at
		}
		select {
		case <-r.lost:
		case <-ctx.Done():
			return
		}
	}
}

// runOnce reads the ids of all connectors.
func (r *routes) runOnce(ctx context.Context) error {
	for after := (store.Key{}); ; {
		page, err := r.page(ctx, after)
		if err != nil {
			return err
		}
		r.learn(page...)
		if len(page) < maxIDs {
			r.learned.Store(true)
			return nil
		}
		after = page[len(page)-1]
	}
}

func (r *routes) page(ctx context.Context, after store.Key) ([]store.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return r.source.ConnectorIDs(ctx, after, maxIDs)
}
