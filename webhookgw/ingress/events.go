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
	// keepAlive is how often something is sent of an answer that is a stream, so that no proxy
	// takes its connection for a dead one.
	keepAlive = 15 * time.Second
)

// events is an answer to a sync webhook as a stream of server-sent events: accepted with the
// runs that were started, progress for each state of a run that the gateway comes to know,
// and then either result with what a sync webhook is answered, or error with a problem.
type events struct {
	w     http.ResponseWriter
	paced *httpserver.PacedAnswer
	tick  *time.Ticker
	told  map[uuid.UUID]store.RunStatus
	err   error // of writing: the client is gone, or does not read
}

// beginEvents answers that a request was accepted. The caller calls close.
func beginEvents(w http.ResponseWriter, a admission) *events {
	e := &events{w: w, paced: httpserver.NewPacedAnswer(w, pace), tick: time.NewTicker(keepAlive), told: map[uuid.UUID]store.RunStatus{}}
	header := w.Header()
	header.Set("Content-Type", typeEvents)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // what proxies of nginx heed
	w.WriteHeader(http.StatusOK)
	e.send("accepted", inboundAnswerOf(a))
	for i, id := range a.RunIDs {
		e.progress(id, a.known(i))
	}
	return e
}

func (e *events) close() { e.tick.Stop() }

// beats is when something is to be sent; never where the answer is no stream.
func (e *events) beats() <-chan time.Time {
	if e == nil {
		return nil
	}
	return e.tick.C
}

// beat sends a comment.
func (e *events) beat() error {
	e.write([]byte(":\n\n"))
	return e.err
}

// progress tells the state of a run, once.
func (e *events) progress(run uuid.UUID, status store.RunStatus) {
	if e == nil || status == "" || e.told[run] == status || status.Terminal() {
		return
	}
	e.told[run] = status
	e.send("progress", webhookapi.Progress{RunID: run, Status: string(status)})
}

// send sends an event with data of one line, as JSON is.
func (e *events) send(name string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("an event that is no JSON: %v", err)) // they are texts, numbers and ids
	}
	e.write([]byte("event: " + name + "\ndata: " + string(text) + "\n\n"))
}

// write sends at once, for as long as the client reads with the pace.
func (e *events) write(text []byte) {
	if e.err != nil {
		return
	}
	defer e.paced.Done() // the next event has its own time
	if _, e.err = e.paced.Write(text); e.err == nil {
		e.err = e.flush()
	}
}

// flush sends what was written. A recorder of a test has nothing to be flushed.
func (e *events) flush() error {
	if err := http.NewResponseController(e.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// fail tells that there will be no results.
func (e *events) fail(p httpserver.Problem) { e.send("error", p) }

// beginResults begins the event with the results and says where they are to be written.
func (e *events) beginResults() *httpserver.PacedAnswer {
	_, e.err = e.paced.Write([]byte("event: result\ndata: "))
	return e.paced
}

// endResults ends the event whose data has ended with a line feed.
func (e *events) endResults() { e.write([]byte("\n")) }

// wantsEvents says whether a request's Accept names text/event-stream, and prefers it to JSON. Who
// names both alike is answered with JSON, as is who takes everything.
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
