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
	// prefetchTime bounds fetching one bundle ahead.
	prefetchTime = time.Minute
	// prefetchPause is the pause after a fetch that failed; each further one is
	// longer, up to maxPrefetchPause.
	prefetchPause, maxPrefetchPause = time.Second, 30 * time.Second
)

// prefetcher fetches bundles that are about to go live, beside everything else.
type prefetcher struct {
	bundles *bundleCache
	changed chan struct{}

	mu     sync.Mutex
	wanted []string
}

func newPrefetcher(b *bundleCache) *prefetcher {
	return &prefetcher{bundles: b, changed: make(chan struct{}, 1)}
}

// want says what dispatch wants by now. What it wanted before goes on as it is: a
// failed fetch is not tried again sooner for being asked for again.
func (p *prefetcher) want(digests []string) {
	missing := slices.DeleteFunc(slices.Clone(digests), p.bundles.settled)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.wanted, missing) {
		p.wanted = missing
		wake(p.changed)
	}
}

// run fetches what is wanted until ctx ends.
func (p *prefetcher) run(ctx context.Context) {
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
		if p.fetch(ctx, wanted) {
			p.done(wanted)
		} else {
			again.Reset(pauses.NextBackOff())
		}
	}
}

// done forgets what was wanted, unless that is something else by now: what leaves the
// cache may be wanted again.
func (p *prefetcher) done(wanted []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.wanted, wanted) {
		p.wanted = nil
	}
}

// fetch fetches what is missing; false when that is worth repeating.
func (p *prefetcher) fetch(ctx context.Context, wanted []string) bool {
	ok := true
	for _, digest := range wanted {
		if p.bundles.settled(digest) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, prefetchTime)
		_, err := p.bundles.get(limited, digest)
		cancel()
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "prefetching a bundle", "digest", digest, "error", err)
			ok = ok && errors.Is(err, errUnopened)
		}
	}
	return ok
}
