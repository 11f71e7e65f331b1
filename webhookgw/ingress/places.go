// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// places are counted out to projects: of all of them one project has at most a
// part, so that it takes no other's.
type places struct {
	all, share int64

	mutex sync.Mutex
	taken map[uuid.UUID]int64
	total int64
}

// newPlaces shares places out; a project has a fourth of them, and at least one.
func newPlaces(all int64) *places {
	return &places{all: all, share: max(all/projectShare, 1), taken: map[uuid.UUID]int64{}}
}

// room says whether places are left.
type room int

const (
	roomLeft    room = iota
	shareTaken       // by the project itself
	placesTaken      // by all projects together
)

// take takes n places for a project, where there is room. What is larger than a
// share alone counts as one.
func (p *places) take(project uuid.UUID, n int64) room {
	n = min(n, p.share)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.taken[project]+n > p.share:
		return shareTaken
	case p.total+n > p.all:
		return placesTaken
	}
	p.taken[project] += n
	p.total += n
	return roomLeft
}

// give gives back what was taken.
func (p *places) give(project uuid.UUID, n int64) {
	n = min(n, p.share)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.total -= n
	if p.taken[project] -= n; p.taken[project] == 0 {
		delete(p.taken, project)
	}
}

// refusal is why there is no place: for whoever has taken its own share 429, for
// whom others are in the way of 503. Nil where there is one.
func (r room) refusal(ofShare, ofAll httpserver.Problem) error {
	switch r {
	case shareTaken:
		return ofShare
	case placesTaken:
		return ofAll
	}
	return nil
}

// later is a problem that goes by without anybody's doing.
func later(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = retryAfter
	return p
}

var (
	errManyWait = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"As many of the project's requests as may be waiting are waiting to be recorded. Send the request again.")
	errAllWait = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests as may be waiting are waiting to be recorded. Send the request again.")
	errManyIncoming = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"As many of the project's requests are coming in as may. Send the request again.")
	errAllIncoming = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests are coming in as may. Send the request again.")
	errManyBodies = later(http.StatusTooManyRequests, httpserver.CodeTooManyLargeBodies,
		"As many of the project's requests with more than 64 KiB are under way as may be. Send the request again.")
	errAllBodies = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests with more than 64 KiB are under way as may be. Send the request again.")
	errManyCallers = later(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"As many callers wait for the project's agents as may. Send the request again, or with `Prefer: respond-async`.")
	errAllCallers = later(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"As many callers wait for agents as may. Send the request again, or with `Prefer: respond-async`.")
)
