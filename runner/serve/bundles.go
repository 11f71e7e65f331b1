// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

const (
	// maxRefused limits the remembered refused bundles to the latest ones.
	maxRefused = dispatchapi.MaxDigests
	// refusedTime is how long a refused bundle is remembered. A damaged bundle is fetched again
	// after it.
	refusedTime = 10 * time.Minute
)

// errUnopened is the error for a fetched bundle that this runner cannot open. A runner of another
// release may be able to.
var errUnopened = errors.New("this runner cannot open the bundle")

// bundleCache holds the most recently used bundles by digest. A run keeps its bundle after the
// cache has dropped it.
type bundleCache struct {
	source interface {
		Bundle(ctx context.Context, digest string, limit int64) ([]byte, error)
	}
	most    int
	changed chan struct{} // closed when a bundle is opened or refused

	mu      sync.Mutex
	held    map[string]*bundle.Project
	order   []string // least recently used first
	pending map[string]*fetching
	refused []refusal // oldest first
}

// refusal is a bundle that could not be opened.
type refusal struct {
	digest string
	until  time.Time
}

// fetching is a fetch that several callers wait for.
type fetching struct {
	done    chan struct{}
	project *bundle.Project
	err     error
}

func newBundleCache(d Dispatch, most int) *bundleCache {
	return &bundleCache{source: d, most: most, changed: make(chan struct{}, 1), held: map[string]*bundle.Project{}, pending: map[string]*fetching{}}
}

// digests lists the cached bundles.
func (b *bundleCache) digests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

// refusals lists the bundles that could not be opened.
func (b *bundleCache) refusals() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refused = slices.DeleteFunc(b.refused, func(r refusal) bool { return !now.Before(r.until) })
	digests := make([]string, 0, len(b.refused))
	for _, r := range b.refused {
		digests = append(digests, r.digest)
	}
	return digests
}

// settled reports whether fetching a bundle is pointless.
func (b *bundleCache) settled(digest string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[digest] != nil || b.refuses(digest)
}

// refuses reports whether a bundle could not be opened. The caller holds b.mu.
func (b *bundleCache) refuses(digest string) bool {
	now := time.Now()
	return slices.ContainsFunc(b.refused, func(r refusal) bool { return r.digest == digest && now.Before(r.until) })
}

// getBundle returns a bundle and fetches it if needed. It can return errUnopened.
func (b *bundleCache) getBundle(ctx context.Context, digest string) (*bundle.Project, error) {
	for {
		b.mu.Lock()
		if p := b.held[digest]; p != nil {
			b.markUsed(digest)
			b.mu.Unlock()
			return p, nil
		}
		if b.refuses(digest) {
			b.mu.Unlock()
			return nil, fmt.Errorf("opening bundle %s: %w", digest, errUnopened)
		}
		f, waiting := b.pending[digest]
		if !waiting {
			f = &fetching{done: make(chan struct{})}
			b.pending[digest] = f
		}
		b.mu.Unlock()
		if !waiting {
			b.fetchBundle(ctx, digest, f)
			return f.project, f.err
		}
		select {
		case <-f.done:
			if f.err == nil {
				return f.project, nil
			}
			// The caller that fetched may have been cancelled, so fetch again.
			if ctx.Err() == nil {
				continue
			}
			return nil, f.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *bundleCache) fetchBundle(ctx context.Context, digest string, f *fetching) {
	f.project, f.err = b.openBundle(ctx, digest)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, digest)
	switch {
	case f.err == nil:
		b.held[digest] = f.project
		b.markUsed(digest)
		if len(b.order) > b.most {
			delete(b.held, b.order[0])
			b.order = b.order[1:]
		}
	case errors.Is(f.err, errUnopened):
		b.refused = append(b.refused, refusal{digest, time.Now().Add(refusedTime)})
		b.refused = b.refused[max(0, len(b.refused)-maxRefused):]
	}
	close(f.done)
	notifyOnce(b.changed)
}

func (b *bundleCache) openBundle(ctx context.Context, digest string) (*bundle.Project, error) {
	data, err := b.source.Bundle(ctx, digest, bundle.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("fetching bundle %s: %w", digest, err)
	}
	project, err := bundle.Open(bytes.NewReader(data), digest)
	if err != nil {
		return nil, fmt.Errorf("opening bundle %s: %w: %w", digest, errUnopened, err)
	}
	return project, nil
}

// markUsed moves a digest to the end of the order.
func (b *bundleCache) markUsed(digest string) {
	if i := slices.Index(b.order, digest); i >= 0 {
		b.order = slices.Delete(b.order, i, i+1)
	}
	b.order = append(b.order, digest)
}
