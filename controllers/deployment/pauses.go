// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"maps"
	"sync"
	"time"
)

const (
	// slow is how long a provider may take and still be told the next status at once.
	slow = 5 * time.Second
	// mostPause is the longest pause of a project whose provider refuses, fails or is slow.
	mostPause = 10 * time.Minute
	// spread is by how much more than the pause the deployments that wait for its end come
	// later, at most: not all of them at once.
	spread = 0.5
)

// pauses are those of the projects whose provider does not take what it is told, so that one
// with a thousand deployments asks no more often than one with one. The zero value is ready;
// its methods are safe for concurrent use.
type pauses struct {
	mu sync.Mutex
	of map[string]paused // by namespace
}

// paused is a project with a pause.
type paused struct {
	// at is when its provider was told something last, and pause the time from then on in which
	// it is told nothing.
	at    time.Time
	pause time.Duration
	// with is what the provider was told with: where that has changed, nobody is to wait for what
	// came of the old one.
	with toldWith
}

// toldWith is what decides over whom a project tells, and whether it is let: the generation of the
// Project, and the version of the git Secret that it names, "" where there is none.
type toldWith struct {
	generation    int64
	secretVersion string
}

// rest is how long a project's provider is told nothing yet.
func (p *pauses) rest(namespace string, with toldWith, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.of[namespace]
	if last.with != with {
		last.pause = min(last.pause, soonest) // one that changes all the time has no more calls by that
	}
	return max(0, last.pause-now.Sub(last.at))
}

// failed doubles the pause that a project has.
func (p *pauses) failed(namespace string, with toldWith, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Who has not been told anything for that long has no deployment that waits.
	maps.DeleteFunc(p.of, func(_ string, last paused) bool { return now.Sub(last.at) > 2*mostPause })
	last := p.of[namespace]
	if last.with != with {
		last.pause = 0
	}
	if p.of == nil {
		p.of = map[string]paused{}
	}
	p.of[namespace] = paused{at: now, pause: min(max(2*last.pause, soonest), mostPause), with: with}
}

// ended ends a project's pause.
func (p *pauses) ended(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, namespace)
}
