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
	// MaxStreams is how many are open at once, of which a project has one part in
	// StreamShare.
	MaxStreams  = 256
	StreamShare = 8
	// streamTime is how long one lasts: its reader comes again, from where it was.
	streamTime = 15 * time.Minute
	// streamCheck is how often it is looked whether the reader still may read, streamPoll
	// how often the store is asked although there was no hint, and something is sent.
	streamCheck, streamPoll = 2 * time.Second, 15 * time.Second
	// streamPace is how long what is written may gather, so that a build that writes much
	// does not have the store asked for each line.
	streamPace = 200 * time.Millisecond
	// streamRetry is what callers are told who find no place.
	streamRetry = 5 * time.Second
)

// events are an answer that is written event by event, as HTML's EventSource reads it. The
// server bounds how long each may take.
type events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// newEvents begins the answer.
func newEvents(w http.ResponseWriter) *events {
	header := w.Header()
	header.Set("Content-Type", rest.EventsType)
	header.Set("X-Accel-Buffering", "no") // else a proxy keeps it to itself
	w.WriteHeader(http.StatusOK)
	return &events{w: w, flush: http.NewResponseController(w)}
}

// event sends one, whose data is JSON, on a line.
func (e *events) event(name string, id int64, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	return e.write("id: %d\nevent: %s\ndata: %s\n\n", id, name, text)
}

// beat sends nothing, so that all between here and the reader see that the stream lasts.
func (e *events) beat() error { return e.write(":\n\n") }

func (e *events) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(e.w, format, args...); err != nil {
		return err
	}
	return e.flush.Flush()
}
