// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"sync"
	"time"
)

const (
	// looksApart is the minimum time between two polls of a repository, whatever triggers the second
	// one. A Secret that changes often must not cause many polls.
	looksApart = 10 * time.Second
	// mostPause is the maximum pause of a repository that does not respond in time.
	mostPause = 10 * time.Minute
	// heldApart is the factor between the time that receiving and reading a repository's folders took and
	// the pause after that. A slow repository therefore uses one of the few slots for at most a thirtieth of the
	// time.
	heldApart = 30
	// tookApart is the factor between the duration of a poll and the pause after it. A slow server
	// therefore uses one of the workers for at most a quarter of the time.
	tookApart = 3
	// foldersPatience is the number of consecutive polls that may fail to read the tree of git.path.
	// After that, every commit counts as a change.
	foldersPatience = 5
)

// looks has the result of the last poll of each project's repository. The zero value is ready. Its
// methods are safe for concurrent use.
type looks struct {
	mu sync.Mutex
	of map[string]lastLook // by namespace
}

type lastLook struct {
	at time.Time
	// pause is the time after at without polls.
	pause time.Duration
	// unseen is the number of polls since the folders were read.
	unseen int
	// held is how long the repository's folders have been received and read since the previous poll.
	held time.Duration
}

// remainingPause returns the remaining pause of a repository.
func (l *looks) remainingPause(namespace string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.of[namespace]
	if !ok {
		return 0
	}
	return max(0, last.pause-now.Sub(last.at))
}

// recordPoll records the end of a poll and its duration. late reports that the repository did not respond
// in time, which doubles its pause, starting from interval. A slow repository has a longer pause too.
func (l *looks) recordPoll(namespace string, now time.Time, took, interval time.Duration, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.of[namespace]
	pause := max(looksApart, heldApart*last.held, tookApart*took)
	if late {
		pause = max(pause, 2*max(interval, last.pause))
	}
	last.pause, last.held = min(pause, mostPause), 0
	if last.at = now; l.of == nil {
		l.of = map[string]lastLook{}
	}
	l.of[namespace] = last
}

// recordTreeRead records that the folders were read, or can never be read.
func (l *looks) recordTreeRead(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.of[namespace]; ok {
		last.unseen = 0
		l.of[namespace] = last
	}
}

// recordTransferTime adds the time for receiving or reading the repository's folders.
func (l *looks) recordTransferTime(namespace string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]lastLook{}
	}
	last := l.of[namespace]
	last.held += took
	l.of[namespace] = last
}

// recordTreeUnread records that the folders were not read, and reports whether the next poll may read them.
func (l *looks) recordTreeUnread(namespace string) (wait bool) {
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

// forgetRepository removes a repository that no environment follows, after its pause.
func (l *looks) forgetRepository(namespace string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.of[namespace]; ok && now.Sub(last.at) >= last.pause {
		delete(l.of, namespace)
	}
}
