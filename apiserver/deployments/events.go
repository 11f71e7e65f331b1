// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// Limits of streams of events.
const (
	// MaxStreams limits the open streams. StreamShare is the divisor of a project's part.
	MaxStreams  = 256
	StreamShare = 8
	// streamTime limits a stream. The client reconnects and resumes.
	streamTime = 15 * time.Minute
	// streamCheck is the interval of permission checks. streamPoll is the interval of reads and heartbeats without
	// notifications.
	streamCheck, streamPoll = 2 * time.Second, 15 * time.Second
	// streamPace is the minimum time between reads of the store, so that a verbose build does not cause a read per line.
	streamPace = 200 * time.Millisecond
	// streamRetry is the Retry-After if there are too many streams.
	streamRetry = 5 * time.Second
)

// events is a response in the format of HTML's EventSource. The server limits the time of each write.
type events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// newEvents starts the response.
func newEvents(w http.ResponseWriter) *events {
	header := w.Header()
	header.Set("Content-Type", rest.EventsType)
	header.Set("X-Accel-Buffering", "no") // prevents buffering in proxies
	w.WriteHeader(http.StatusOK)
	return &events{w: w, flush: http.NewResponseController(w)}
}

// event sends an event with JSON data on one line.
func (e *events) event(name string, id int64, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	return e.write("id: %d\nevent: %s\ndata: %s\n\n", id, name, text)
}

// beat sends a comment, so that proxies and the client keep the connection.
func (e *events) beat() error { return e.write(":\n\n") }

func (e *events) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(e.w, format, args...); err != nil {
		return err
	}
	return e.flush.Flush()
}
