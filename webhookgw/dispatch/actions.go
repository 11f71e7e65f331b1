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

// actionsFor is how long tools are taken for those of an agent without asking again, while no
// hint says that a connector of the project or its links have changed.
const actionsFor = tokenFor

// actions remembers the tools by which agents send, while it follows the hints of what may
// change them. One that is gone sends nothing meanwhile: the store refuses.
type actions struct {
	known     *cache.Cache[agentKey, knownActions]
	following atomic.Bool

	mutex sync.Mutex
	// changes counts the hints, lost those that may have been lost; changed is the number of
	// the last hint of a project.
	changes, lost uint64
	changed       *cache.Cache[uuid.UUID, uint64]
}

type agentKey struct {
	environment store.Key
	name        string
}

// knownActions are an agent's, with the number of the last hint of its project before they
// were read.
type knownActions struct {
	all  []store.Action
	seen uint64
}

func newActions() *actions {
	return &actions{known: cache.New[agentKey, knownActions](maxRecent, actionsFor, nil), changed: cache.New[uuid.UUID, uint64](maxRecent, 0, nil)}
}

// seen is the number of the last hint of a project. It is to be taken before the store is
// asked, so that no hint falls between.
func (a *actions) seen(project uuid.UUID) uint64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	last, known := a.changed.Get(project)
	if !known { // it is forgotten, perhaps
		a.changes++
		last = a.changes
		a.changed.Put(project, last)
	}
	return max(last, a.lost)
}

// of are the tools of agents in an environment: what is remembered, and what read reads of the
// others.
func (a *actions) of(
	ctx context.Context, environment store.Key, agents []string, read func(ctx context.Context, agents []string) ([]store.Action, error),
) (all map[string][]store.Action, err error) {
	following := a.following.Load()
	seen := a.seen(environment.ProjectID)
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
			a.known.Put(agentKey{environment, name}, knownActions{all[name], seen})
		}
	}
	return all, nil
}

// follow forgets what hints name, until the channel closes.
func (a *actions) follow(hints <-chan store.Hint) {
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
