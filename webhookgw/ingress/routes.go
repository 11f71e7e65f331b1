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

// routeCache caches routes. A cached route can be outdated, because it only admits requests. The commit
// asserts the version of the route, and the handler checks each rejection with a fresh read.
//
// The cache also has the IDs of all connectors. Requests for other IDs need a read before they are
// rejected. Their reads are limited separately, so that they do not delay requests for existing
// connectors.
type routeCache struct {
	source store.Routes
	logger *slog.Logger
	cached *lru.Cache[store.Key, *webhook]
	// known and unknown limit the concurrent reads.
	known, unknown *semaphore.Weighted
	lost           chan struct{} // capacity 1: hints about new connectors may be lost
	learned        atomic.Bool   // all IDs were read once

	mutex     sync.Mutex
	ids       map[store.Key]struct{}
	reading   map[store.Key]*routeReading
	strangers int // reads of IDs that are not in ids
}

// routeReading merges the reads of one route. A read that started before a request arrived may be outdated.
// So requests that arrive during a read share the next read.
type routeReading struct {
	current, next *routeRead
	stranger      bool
}

type routeRead struct {
	done  chan struct{}
	route *webhook
	err   error
}

// errStrangers is the response for unknown IDs while too many are being read.
var errStrangers = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown,
	"Too many requests for unknown URLs are in progress. If this URL is right, send the request again.")

func newRouteCache(source store.Routes, logger *slog.Logger) *routeCache {
	cached, err := lru.New[store.Key, *webhook](maxRoutes)
	if err != nil {
		panic("creating a cache of routes: " + err.Error()) // lru.New only fails for sizes below 1
	}
	return &routeCache{
		source: source, logger: logger, cached: cached, lost: make(chan struct{}, 1),
		known: semaphore.NewWeighted(maxReads), unknown: semaphore.NewWeighted(maxStrangerReads),
		ids: map[store.Key]struct{}{}, reading: map[store.Key]*routeReading{},
	}
}

// cachedRoute returns the cached route, if there is one.
func (r *routeCache) cachedRoute(key store.Key) (*webhook, bool) { return r.cached.Get(key) }

// isKnown reports whether a connector exists or existed recently.
func (r *routeCache) isKnown(key store.Key) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, known := r.ids[key]
	return known
}

// loadRoute reads a route after the call started. It returns store.ErrNotFound if the connector does not
// exist, and errStrangers if too many unknown IDs are being read.
func (r *routeCache) loadRoute(ctx context.Context, key store.Key) (*webhook, error) {
	mine, err := r.joinRead(key)
	if err != nil {
		return nil, err
	}
	select {
	case <-mine.done:
		return mine.route, mine.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// joinRead returns a read that has not started yet, and makes sure that it starts.
func (r *routeCache) joinRead(key store.Key) (*routeRead, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at, busy := r.reading[key]
	if busy {
		if at.next == nil {
			at.next = &routeRead{done: make(chan struct{})}
		}
		return at.next, nil
	}
	at = &routeReading{current: &routeRead{done: make(chan struct{})}}
	if _, known := r.ids[key]; !known {
		if r.strangers >= maxStrangers {
			return nil, errStrangers
		}
		at.stranger = true
		r.strangers++
	}
	r.reading[key] = at
	go r.readRoutes(key, at)
	return at.current, nil
}

// readRoutes reads until no request waits for another read.
func (r *routeCache) readRoutes(key store.Key, at *routeReading) {
	for current := at.current; current != nil; {
		current.route, current.err = r.fetchRoute(key, at.stranger)
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

func (r *routeCache) fetchRoute(key store.Key, stranger bool) (*webhook, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	budget := r.known
	if stranger {
		budget = r.unknown
	}
	switch err := budget.Acquire(ctx, 1); {
	case err != nil && stranger:
		return nil, errStrangers
	case err != nil:
		return nil, fmt.Errorf("waiting to read a route: %w", err)
	}
	defer budget.Release(1)
	route, err := r.source.Route(ctx, key)
	if err != nil {
		return nil, err
	}
	return newWebhook(route)
}

func (r *routeCache) remember(key store.Key, result *routeRead) {
	switch {
	case result.err == nil:
		r.cached.Add(key, result.route)
		r.ids[key] = struct{}{}
	case errors.Is(result.err, store.ErrNotFound):
		r.cached.Remove(key)
		delete(r.ids, key)
	}
}

// followHints drops the routes that hints name, until the channel closes. If hints were lost it drops
// nothing, because otherwise all requests would read at once. The next commit detects changed
// routes.
func (r *routeCache) followHints(hints <-chan store.Hint) {
	for hint := range hints {
		if hint.Key != (store.Key{}) {
			r.cached.Remove(hint.Key)
			r.addKnown(hint.Key)
			continue
		}
		select {
		case r.lost <- struct{}{}:
		default: // the IDs are read soon
		}
	}
}

// addKnown adds IDs. A missed deletion is detected when the ID is requested.
func (r *routeCache) addKnown(keys ...store.Key) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, key := range keys {
		r.ids[key] = struct{}{}
	}
}

// refreshKnown keeps the IDs of all connectors up to date until ctx ends. It reads them at the start and
// when hints may have been lost.
func (r *routeCache) refreshKnown(ctx context.Context) {
	for {
		for err := r.runOnce(ctx); err != nil && ctx.Err() == nil; err = r.runOnce(ctx) {
			r.logger.Error("reading the IDs of all connectors", "error", err)
			_ = pause.For(ctx, idRetryPause) // the loop checks ctx
		}
		select {
		case <-r.lost:
		case <-ctx.Done():
			return
		}
	}
}

// runOnce reads the IDs of all connectors.
func (r *routeCache) runOnce(ctx context.Context) error {
	for after := (store.Key{}); ; {
		page, err := r.connectorPage(ctx, after)
		if err != nil {
			return err
		}
		r.addKnown(page...)
		if len(page) < maxIDs {
			r.learned.Store(true)
			return nil
		}
		after = page[len(page)-1]
	}
}

func (r *routeCache) connectorPage(ctx context.Context, after store.Key) ([]store.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return r.source.ConnectorIDs(ctx, after, maxIDs)
}
