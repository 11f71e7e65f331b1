// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

const (
	typeEvents = "text/event-stream"
	// keepAlive is the interval of comments in a stream, so that proxies do not close the
	// connection.
	keepAlive = 15 * time.Second
)

// eventStream is the response of a sync webhook as a stream of server-sent events:
//
//   - accepted, with the started runs
//   - progress, for each known change of a run's status
//   - finally result with the response of a sync webhook, or error with a problem
type eventStream struct {
	w            http.ResponseWriter
	paced        *httpserver.PacedAnswer
	tick         *time.Ticker
	sentStatuses map[uuid.UUID]store.RunStatus
	err          error // the first write error: the client disconnected or does not read
}

// beginEvents responds that a request was accepted, and starts the stream. The caller calls close.
func beginEvents(w http.ResponseWriter, a admission) *eventStream {
	e := &eventStream{w: w, paced: httpserver.NewPacedAnswer(w, pace), tick: time.NewTicker(keepAlive), sentStatuses: map[uuid.UUID]store.RunStatus{}}
	header := w.Header()
	header.Set("Content-Type", typeEvents)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // disables buffering in nginx
	w.WriteHeader(http.StatusOK)
	e.sendEvent("accepted", inboundAnswerOf(a))
	for i, id := range a.RunIDs {
		e.progress(id, a.knownStatus(i))
	}
	return e
}

func (e *eventStream) close() { e.tick.Stop() }

// heartbeats returns the ticker of the keep-alive, or nil without a stream.
func (e *eventStream) heartbeats() <-chan time.Time {
	if e == nil {
		return nil
	}
	return e.tick.C
}

// sendHeartbeat sends a comment.
func (e *eventStream) sendHeartbeat() error {
	e.writeNow([]byte(":\n\n"))
	return e.err
}

// progress sends the status of a run, once per status.
func (e *eventStream) progress(run uuid.UUID, status store.RunStatus) {
	if e == nil || status == "" || e.sentStatuses[run] == status || status.Terminal() {
		return
	}
	e.sentStatuses[run] = status
	e.sendEvent("progress", webhookapi.Progress{RunID: run, Status: string(status)})
}

// sendEvent sends an event whose data is one line of JSON.
func (e *eventStream) sendEvent(name string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("encoding an event: %v", err)) // it only has texts, numbers and IDs
	}
	e.writeNow([]byte("event: " + name + "\ndata: " + string(text) + "\n\n"))
}

// writeNow writes and flushes at once, within the pace of the client.
func (e *eventStream) writeNow(text []byte) {
	if e.err != nil {
		return
	}
	defer e.paced.Done() // each event has its own time limit
	if _, e.err = e.paced.Write(text); e.err == nil {
		e.err = e.flushWriter()
	}
}

// flushWriter flushes the response. A test recorder has nothing to flush.
func (e *eventStream) flushWriter() error {
	if err := http.NewResponseController(e.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// sendError sends an error event, so there will be no results.
func (e *eventStream) sendError(p httpserver.Problem) { e.sendEvent("error", p) }

// beginResults starts the result event and returns the writer for its data.
func (e *eventStream) beginResults() *httpserver.PacedAnswer {
	_, e.err = e.paced.Write([]byte("event: result\ndata: "))
	return e.paced
}

// endResults ends the result event. Its data has ended with a line feed.
func (e *eventStream) endResults() { e.writeNow([]byte("\n")) }

// wantsEvents reports whether a request's Accept header prefers text/event-stream to JSON. With
// equal preference, or with a wildcard, the response is JSON.
func wantsEvents(r *http.Request) bool {
	var stream, plain float64
	for _, header := range r.Header.Values("Accept") {
		for entry := range strings.SplitSeq(header, ",") {
			kind, parameters, err := mime.ParseMediaType(entry)
			if err != nil {
				continue
			}
			weight := 1.0
			if q, given := parameters["q"]; given {
				if weight, err = strconv.ParseFloat(q, 64); err != nil || weight < 0 || weight > 1 {
					continue
				}
			}
			switch kind {
			case typeEvents:
				stream = max(stream, weight)
			case typeJSON:
				plain = max(plain, weight)
			}
		}
	}
	return stream > plain
}
