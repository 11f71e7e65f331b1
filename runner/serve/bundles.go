// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/bundle"
)

// bundleCache holds the bundles used last, by digest. Runs keep the bundle that
// they began with, also after it left the cache.
type bundleCache struct {
	source interface {
		Bundle(ctx context.Context, digest string, limit int64) ([]byte, error)
	}
	most int

	mu      sync.Mutex
	held    map[string]*bundle.Project
	order   []string // least recently used first
	pending map[string]*fetching
}

// fetching is a fetch that several wait for.
type fetching struct {
	done    chan struct{}
	project *bundle.Project
	err     error
}

func newBundleCache(d Dispatch, most int) *bundleCache {
	return &bundleCache{source: d, most: most, held: map[string]*bundle.Project{}, pending: map[string]*fetching{}}
}

// digests lists what is held.
func (b *bundleCache) digests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

// get returns a bundle, fetching it when needed.
func (b *bundleCache) get(ctx context.Context, digest string) (*bundle.Project, error) {
	for {
		b.mu.Lock()
		if p := b.held[digest]; p != nil {
			b.use(digest)
			b.mu.Unlock()
			return p, nil
		}
		f, waiting := b.pending[digest]
		if !waiting {
			f = &fetching{done: make(chan struct{})}
			b.pending[digest] = f
		}
		b.mu.Unlock()
		if !waiting {
			b.fetch(ctx, digest, f)
			return f.project, f.err
		}
		select {
		case <-f.done:
			if f.err == nil {
				return f.project, nil
			}
			// The one that fetched may have been cut off: try it alone.
			if ctx.Err() == nil {
				continue
			}
			return nil, f.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *bundleCache) fetch(ctx context.Context, digest string, f *fetching) {
	f.project, f.err = b.open(ctx, digest)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, digest)
	if f.err == nil {
		b.held[digest] = f.project
		b.use(digest)
		if len(b.order) > b.most {
			delete(b.held, b.order[0])
			b.order = b.order[1:]
		}
	}
	close(f.done)
}

func (b *bundleCache) open(ctx context.Context, digest string) (*bundle.Project, error) {
	data, err := b.source.Bundle(ctx, digest, bundle.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("fetching bundle %s: %w", digest, err)
	}
	project, err := bundle.Open(bytes.NewReader(data), digest)
	if err != nil {
		return nil, fmt.Errorf("opening bundle %s: %w", digest, err)
	}
	return project, nil
}

// use moves a digest to the end of the order.
func (b *bundleCache) use(digest string) {
	if i := slices.Index(b.order, digest); i >= 0 {
		b.order = slices.Delete(b.order, i, i+1)
	}
	b.order = append(b.order, digest)
}
