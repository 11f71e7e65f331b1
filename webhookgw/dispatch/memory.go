// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// smallRequest is the size up to which requests are not counted.
	smallRequest = 64 << 10
	// maxInFlight is how many bytes of larger requests are held at once, and
	// projectInFlight how many of them are of one project: tokens are read by tenants.
	maxInFlight     = 96 << 20
	projectInFlight = maxInFlight / 4
)

// memory counts the bytes of requests that are held.
type memory struct {
	mutex     sync.Mutex
	held      int64
	byProject map[uuid.UUID]int64
}

func newMemory() *memory { return &memory{byProject: map[uuid.UUID]int64{}} }

var (
	errProjectInFlight = httpserver.Problem{
		Title: http.StatusText(http.StatusTooManyRequests), Status: http.StatusTooManyRequests, Code: httpserver.CodeTooManyWaiting,
		Detail:     fmt.Sprintf("Requests of this project hold %d MiB; call again.", projectInFlight>>20),
		RetryAfter: time.Second,
	}
	errInFlight = httpserver.Problem{
		Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable, Code: httpserver.CodeBusy,
		Detail:     "The gateway holds as many requests as it has memory for; call again.",
		RetryAfter: time.Second,
	}
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
	size = min(size, dispatchapi.MaxRequest)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case m.byProject[project]+size > projectInFlight:
		return nil, errProjectInFlight
	case m.held+size > maxInFlight:
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
