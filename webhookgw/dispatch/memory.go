// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"net/http"
	"sync"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// smallRequest is the size up to which requests are not counted: one a connection
	// is little, and a heartbeat should not fail for want of room for other things.
	smallRequest = 16 << 10
	// maxInFlight is how many bytes of larger requests are held at once; of them a
	// project has a share, for tokens are read by tenants.
	maxInFlight = 96 << 20
)

// memory counts the bytes that are held. It lets nobody wait: who sends them comes
// again.
type memory struct {
	all, share int64

	mutex     sync.Mutex
	held      int64
	byProject map[uuid.UUID]int64
}

func newMemory(all int64) *memory {
	return &memory{all: all, share: all / budgetShare, byProject: map[uuid.UUID]int64{}}
}

var (
	errProjectInFlight = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Requests of this project hold as much memory as they may; call again.")
	errInFlight = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway holds as many requests as it has memory for; call again.")
)

// hold counts a request of a project until release is called. One that streams its
// body is not held.
func (m *memory) hold(project uuid.UUID, r *http.Request) (release func(), err error) {
	size := r.ContentLength
	if size < 0 {
		size = dispatchapi.MaxRequest
	}
	if size <= smallRequest || r.Method != http.MethodPost {
		return func() {}, nil
	}
	return m.take(project, min(size, dispatchapi.MaxRequest))
}

// take counts bytes of a project until release is called; more than its share count
// as that. A Problem when there is no room.
func (m *memory) take(project uuid.UUID, size int64) (release func(), err error) {
	size = min(size, m.share)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case m.byProject[project]+size > m.share:
		return nil, errProjectInFlight
	case m.held+size > m.all:
		return nil, errInFlight
	}
	m.held += size
	m.byProject[project] += size
	return func() { m.release(project, size) }, nil
}

func (m *memory) release(project uuid.UUID, size int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.held -= size
	if m.byProject[project] -= size; m.byProject[project] == 0 {
		delete(m.byProject, project)
	}
}
