// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/store"
)

// routes caches routes. A cached one may be old; load never is.
type routes struct {
	source store.Routes
	reads  *semaphore.Weighted

	mutex   sync.Mutex
	cached  map[store.Key]store.Route
	reading map[store.Key]*reading
}

// reading coalesces the reads of one route. A read that began before a caller
// came may not have seen what the caller must see, so callers that come while
// one is under way share the one after it.
type reading struct {
	current, next *read
}

type read struct {
	done  chan struct{}
	route store.Route
	err   error
}

func newRoutes(source store.Routes) *routes {
	return &routes{
		source: source, reads: semaphore.NewWeighted(maxReads),
		cached: map[store.Key]store.Route{}, reading: map[store.Key]*reading{},
	}
}

// peek returns the cached route, if there is one.
func (r *routes) peek(key store.Key) (store.Route, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	route, ok := r.cached[key]
	return route, ok
}

// load reads a route as it is at some moment after the call; store.ErrNotFound
// when no such connector exists.
func (r *routes) load(ctx context.Context, key store.Key) (store.Route, error) {
	mine := r.join(key)
	select {
	case <-mine.done:
		return mine.route, mine.err
	case <-ctx.Done():
		return store.Route{}, context.Cause(ctx)
	}
}

// join returns a read that has not begun yet, and sees that it will.
func (r *routes) join(key store.Key) *read {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at, busy := r.reading[key]
	if !busy {
		at = &reading{current: &read{done: make(chan struct{})}}
		r.reading[key] = at
		go r.work(key, at)
		return at.current
	}
	if at.next == nil {
		at.next = &read{done: make(chan struct{})}
	}
	return at.next
}

// work reads until nobody waits for another read.
func (r *routes) work(key store.Key, at *reading) {
	for current := at.current; current != nil; {
		current.route, current.err = r.fetch(key)
		r.mutex.Lock()
		r.remember(key, current)
		at.current, at.next = at.next, nil
		if at.current == nil {
			delete(r.reading, key)
		}
		close(current.done)
		current = at.current
		r.mutex.Unlock()
	}
}

func (r *routes) fetch(key store.Key) (store.Route, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if err := r.reads.Acquire(ctx, 1); err != nil {
		return store.Route{}, err
	}
	defer r.reads.Release(1)
	return r.source.Route(ctx, key)
}

func (r *routes) remember(key store.Key, result *read) {
	switch {
	case result.err == nil:
		if len(r.cached) >= maxRoutes {
			clear(r.cached)
		}
		r.cached[key] = result.route
	case errors.Is(result.err, store.ErrNotFound):
		delete(r.cached, key)
	}
}

// follow forgets routes that hints name, until the channel closes.
func (r *routes) follow(hints <-chan store.Hint) {
	for hint := range hints {
		r.mutex.Lock()
		if hint.Key == (store.Key{}) {
			clear(r.cached)
		} else {
			delete(r.cached, hint.Key)
		}
		r.mutex.Unlock()
	}
}
