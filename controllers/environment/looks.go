// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"sync"
	"time"
)

const (
	// looksApart is how long a repository is left alone after a look, whatever wakes
	// the next one: a Secret that changes all the time is no reason to ask all the time.
	looksApart = 10 * time.Second
	// mostPause is the longest pause of a repository that does not answer in time.
	mostPause = 10 * time.Minute
	// heldApart is how many times as long a repository is left alone as it took to send its
	// folders: who is slow has one of the few places for that no more than a thirtieth of the
	// time.
	heldApart = 30
	// foldersPatience is how many looks in a row may fail to see which commits touch
	// git.path before every commit counts.
	foldersPatience = 5
)

// looks remember how the last look at each project's repository went. Its zero value is
// ready; its methods are safe for concurrent use.
type looks struct {
	mu sync.Mutex
	of map[string]lastLook // by namespace
}

type lastLook struct {
	at time.Time
	// pause is the time after at in which nobody looks.
	pause time.Duration
	// unseen counts the looks since the folders were seen.
	unseen int
	// held is how long the folders were being sent since the look before.
	held time.Duration
}

// rest is how long the repository is left alone yet.
func (l *looks) rest(namespace string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.of[namespace]
	if !ok {
		return 0
	}
	return max(0, last.pause-now.Sub(last.at))
}

// took ends a look; late says that the repository did not answer in time, which doubles
// the pause that it has, from interval on. One that was slow has a longer pause too.
func (l *looks) took(namespace string, now time.Time, interval time.Duration, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.of[namespace]
	pause := max(looksApart, heldApart*last.held)
	if late {
		pause = max(pause, 2*max(interval, last.pause))
	}
	last.pause, last.held = min(pause, mostPause), 0
	if last.at = now; l.of == nil {
		l.of = map[string]lastLook{}
	}
	l.of[namespace] = last
}

// seen says that it was seen what folders hold, or that it never will be.
func (l *looks) seen(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.of[namespace]; ok {
		last.unseen = 0
		l.of[namespace] = last
	}
}

// held says how long the repository took to send its folders.
func (l *looks) held(namespace string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]lastLook{}
	}
	last := l.of[namespace]
	last.held = took
	l.of[namespace] = last
}

// unseen says that it was not seen what folders hold, and whether the next look may.
func (l *looks) unseen(namespace string) (wait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]lastLook{}
	}
	last := l.of[namespace]
	last.unseen = (last.unseen + 1) % foldersPatience
	l.of[namespace] = last
	return last.unseen > 0
}

// forget is for repositories that nobody follows any more. What was asked is remembered
// as long as it is left alone.
func (l *looks) forget(namespace string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.of[namespace]; ok && now.Sub(last.at) >= last.pause {
		delete(l.of, namespace)
	}
}
