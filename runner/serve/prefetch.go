// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// prefetchTime limits the prefetch of one bundle.
	prefetchTime = time.Minute
	// prefetchPause is the first pause after a failed prefetch. The pauses grow to
	// maxPrefetchPause.
	prefetchPause, maxPrefetchPause = time.Second, 30 * time.Second
)

// prefetcher fetches bundles that are about to go live.
type prefetcher struct {
	bundles *bundleCache
	changed chan struct{}

	mu     sync.Mutex
	wanted []string
}

func newPrefetcher(b *bundleCache) *prefetcher {
	return &prefetcher{bundles: b, changed: make(chan struct{}, 1)}
}

// setWanted sets the wanted bundles. A request for the same bundle does not shorten the pause after a
// failure.
func (p *prefetcher) setWanted(digests []string) {
	missing := slices.DeleteFunc(slices.Clone(digests), p.bundles.settled)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.wanted, missing) {
		p.wanted = missing
		notifyOnce(p.changed)
	}
}

// runLoop fetches wanted bundles until ctx ends.
func (p *prefetcher) runLoop(ctx context.Context) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = prefetchPause, maxPrefetchPause
	again := time.NewTimer(maxPrefetchPause)
	defer again.Stop()
	for {
		select {
		case <-p.changed:
			pauses.Reset()
		case <-again.C:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		wanted := slices.Clone(p.wanted)
		p.mu.Unlock()
		if p.fetchMissing(ctx, wanted) {
			p.clearWanted(wanted)
		} else {
			again.Reset(pauses.NextBackOff())
		}
	}
}

// clearWanted clears the wanted bundles unless they have changed. A bundle that leaves the cache can be
// wanted again.
func (p *prefetcher) clearWanted(wanted []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.wanted, wanted) {
		p.wanted = nil
	}
}

// fetchMissing fetches missing bundles. It returns false if a retry is useful.
func (p *prefetcher) fetchMissing(ctx context.Context, wanted []string) bool {
	ok := true
	for _, digest := range wanted {
		if p.bundles.settled(digest) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, prefetchTime)
		_, err := p.bundles.getBundle(limited, digest)
		cancel()
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "prefetching a bundle", "digest", digest, "error", err)
			ok = ok && errors.Is(err, errUnopened)
		}
	}
	return ok
}
