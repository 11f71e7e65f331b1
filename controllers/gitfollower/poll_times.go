// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"sync"
	"time"
)

const (
	// minPollInterval is the minimum time between two polls of a repository, whatever triggers the second
	// one. A Secret that changes often must not cause many polls.
	minPollInterval = 10 * time.Second
	// maxPollPause is the maximum pause of a repository that does not respond in time.
	maxPollPause = 10 * time.Minute
	// transferPauseFactor is the factor between the time that receiving and reading a repository's folders took and
	// the pause after that. A slow repository therefore uses one of the few slots for at most a thirtieth of the
	// time.
	transferPauseFactor = 30
	// pollPauseFactor is the factor between the duration of a poll and the pause after it. A slow server
	// therefore uses one of the workers for at most a quarter of the time.
	pollPauseFactor = 3
	// maxTreeFailures is the number of consecutive polls that may fail to read the tree of git.path.
	// After that, every commit counts as a change.
	maxTreeFailures = 5
)

// pollTimes has the result of the last poll of each project's repository. The zero value is ready. Its
// methods are safe for concurrent use.
type pollTimes struct {
	mu          sync.Mutex
	byNamespace map[string]lastPoll
}

type lastPoll struct {
	at time.Time
	// pause is the time after at without polls.
	pause time.Duration
	// treeFailures is the number of polls since the folders were read.
	treeFailures int
	// transferTime is how long the repository's folders have been received and read since the previous poll.
	transferTime time.Duration
}

// remainingPause returns the remaining pause of a repository.
func (l *pollTimes) remainingPause(namespace string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.byNamespace[namespace]
	if !ok {
		return 0
	}
	return max(0, last.pause-now.Sub(last.at))
}

// recordPoll records the end of a poll and its duration. late reports that the repository did not respond
// in time, which doubles its pause, starting from interval. A slow repository has a longer pause too.
func (l *pollTimes) recordPoll(namespace string, now time.Time, took, interval time.Duration, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.byNamespace[namespace]
	pause := max(minPollInterval, transferPauseFactor*last.transferTime, pollPauseFactor*took)
	if late {
		pause = max(pause, 2*max(interval, last.pause))
	}
	last.pause, last.transferTime = min(pause, maxPollPause), 0
	if last.at = now; l.byNamespace == nil {
		l.byNamespace = map[string]lastPoll{}
	}
	l.byNamespace[namespace] = last
}

// recordTreeRead records that the folders were read, or can never be read.
func (l *pollTimes) recordTreeRead(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.byNamespace[namespace]; ok {
		last.treeFailures = 0
		l.byNamespace[namespace] = last
	}
}

// recordTransferTime adds the time for receiving or reading the repository's folders.
func (l *pollTimes) recordTransferTime(namespace string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byNamespace == nil {
		l.byNamespace = map[string]lastPoll{}
	}
	last := l.byNamespace[namespace]
	last.transferTime += took
	l.byNamespace[namespace] = last
}

// recordTreeUnread records that the folders were not read, and reports whether the next poll may read them.
func (l *pollTimes) recordTreeUnread(namespace string) (wait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byNamespace == nil {
		l.byNamespace = map[string]lastPoll{}
	}
	last := l.byNamespace[namespace]
	last.treeFailures = (last.treeFailures + 1) % maxTreeFailures
	l.byNamespace[namespace] = last
	return last.treeFailures > 0
}

// forgetRepository removes a repository that no environment follows, after its pause.
func (l *pollTimes) forgetRepository(namespace string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.byNamespace[namespace]; ok && now.Sub(last.at) >= last.pause {
		delete(l.byNamespace, namespace)
	}
}
