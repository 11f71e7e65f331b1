// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/store"
)

// actionsTTL is how long the tools of an agent are cached, unless a hint reports a change of the
// project's connectors or links.
const actionsTTL = tokenTTL

// toolCache caches the tools that agents send with, and follows the hints about changes. If a tool
// was removed meanwhile, the store rejects its deliveries.
type toolCache struct {
	known     *cache.Cache[agentKey, cachedTools]
	following atomic.Bool

	mutex sync.Mutex
	// changes counts the hints, and lost the losses of hints. changed has the number of the last
	// hint for each project.
	changes, lost uint64
	changed       *cache.Cache[uuid.UUID, uint64]
}

type agentKey struct {
	environment store.Key
	name        string
}

// cachedTools has the tools of an agent, and the number of the project's last hint before they
// were read.
type cachedTools struct {
	all  []store.Action
	seen uint64
}

func newToolCache() *toolCache {
	return &toolCache{known: cache.New[agentKey, cachedTools](maxRecent, actionsTTL, nil), changed: cache.New[uuid.UUID, uint64](maxRecent, 0, nil)}
}

// lastHint returns the number of the last hint for a project. Call it before the store query, so that
// no hint is missed.
func (a *toolCache) lastHint(project uuid.UUID) uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	last, known := a.changed.Get(project)
	if !known { // possibly evicted
		a.changes++
		last = a.changes
		a.changed.Put(project, last)
	}
	return max(last, a.lost)
}

// toolsOf returns the tools of agents in an environment. It calls read for tools that are not cached.
func (a *toolCache) toolsOf(
	ctx context.Context, environment store.Key, agents []string, read func(ctx context.Context, agents []string) ([]store.Action, error),
) (all map[string][]store.Action, err error) {
	following := a.following.Load()
	seen := a.lastHint(environment.ProjectID)
	all = map[string][]store.Action{}
	var unknown []string
	for _, name := range agents {
		if known, ok := a.known.Get(agentKey{environment, name}); ok && following && known.seen == seen {
			all[name] = known.all
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return all, nil
	}
	found, err := read(ctx, unknown)
	if err != nil {
		return nil, err
	}
	for _, action := range found {
		all[action.AgentName] = append(all[action.AgentName], action)
	}
	for _, name := range unknown {
		if following {
			a.known.Put(agentKey{environment, name}, cachedTools{all[name], seen})
		}
	}
	return all, nil
}

// followHints drops the cached tools of changed projects until the channel closes.
func (a *toolCache) followHints(hints <-chan store.Hint) {
	a.following.Store(true)
	defer a.following.Store(false)
	for hint := range hints {
		a.mutex.Lock()
		a.changes++
		if hint.Key == (store.Key{}) {
			a.lost = a.changes
		} else {
			a.changed.Put(hint.Key.ProjectID, a.changes)
		}
		a.mutex.Unlock()
	}
}
