// SPDX-License-Identifier: Apache-2.0

package restclient

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// maxEventLine is the size limit of a line of an event stream in bytes.
const maxEventLine = 2 << 20

// eventEnd is the name of the last event of each stream.
const eventEnd = "end"

// Event is an event of a stream.
type Event struct {
	Name string
	// Data is the JSON as the server sent it.
	Data json.RawMessage
}

// DeploymentLog returns the log of a build part by part, as it is written, until the deployment has ended. A stream that
// breaks off is resumed after the last part.
func (a *API) DeploymentLog(ctx context.Context, deploymentID string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for event, err := range a.events(ctx, func() (*http.Request, error) {
			return NewStreamDeploymentLogsRequest(a.server, a.project, deploymentID, nil)
		}) {
			var part struct {
				Text string `json:"text"`
			}
			if err == nil {
				err = json.Unmarshal(event.Data, &part)
			}
			if event.Name == eventEnd || !yield(part.Text, err) {
				return
			}
		}
	}
}

// RunEvents returns the steps and the log lines of a run as they happen, and then the event "end". A stream that breaks off is
// resumed where it stopped. The run's own step can come again unchanged.
func (a *API) RunEvents(ctx context.Context, runID string) iter.Seq2[Event, error] {
	return a.events(ctx, func() (*http.Request, error) { return NewStreamRunEventsRequest(a.server, a.project, runID, nil) })
}

// events returns the events of a stream up to the event "end". A stream that breaks off is resumed after the last event.
func (a *API) events(ctx context.Context, newRequest func() (*http.Request, error)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &eventStream{api: a, newRequest: newRequest, yield: yield, passed: map[string]int{}}
		for attempt := 1; ; attempt++ {
			before := s.lastEvent
			s.openedAt = time.Time{}
			err := s.readEvents(ctx)
			if s.done {
				return
			}
			if s.lastEvent != before || s.stayedOpen() {
				attempt = 0
			}
			if err := a.waitToRetry(ctx, err, attempt); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}

// eventStream is a stream of events that is being read.
type eventStream struct {
	api        *API
	newRequest func() (*http.Request, error)
	yield      func(Event, error) bool

	// lastEvent is the ID of the last event that had one. A resumed stream repeats the events after it. passed counts the ones
	// that the consumer has, and read the ones of this connection, by name and data.
	lastEvent    string
	passed, read map[string]int
	// openedAt is the time of the response of this connection, zero before it.
	openedAt time.Time
	// done is true after the last event, and after the consumer stopped.
	done bool
}

// stayedOpen reports whether the connection worked for a while, also without events.
func (s *eventStream) stayedOpen() bool {
	return !s.openedAt.IsZero() && s.api.Now().Sub(s.openedAt) > MaxPause
}

// readEvents opens the stream after lastEvent and reads it until it breaks off or is done.
func (s *eventStream) readEvents(ctx context.Context) error {
	response, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	s.read, s.openedAt = map[string]int{}, s.api.Now()
	var event Event
	var id string
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEventLine)
	for !s.done && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event.Name = value
		case "id":
			id = value
		case "data":
			event.Data = json.RawMessage(value)
		case "": // The end of an event, or a comment between events.
			if event.Data != nil {
				s.passEvent(event, id)
			}
			event, id = Event{}, ""
		}
	}
	return lines.Err()
}

// open sends the request for the events after lastEvent.
func (s *eventStream) open(ctx context.Context) (*http.Response, error) {
	request, err := s.newRequest()
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.api.key)
	request.Header.Set("Accept", "text/event-stream")
	if s.lastEvent != "" {
		request.Header.Set("Last-Event-ID", s.lastEvent)
	}
	response, err := s.api.HTTP.Do(request.WithContext(ctx))
	if err != nil {
		return nil, s.api.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, readProblem(response)
	}
	return response, nil
}

// passEvent passes an event to the consumer, unless the consumer has it.
func (s *eventStream) passEvent(event Event, id string) {
	text := event.Name + " " + string(event.Data)
	if s.read[text]++; s.read[text] > s.passed[text] {
		s.passed[text]++
		s.done = !s.yield(event, nil) || event.Name == eventEnd
	}
	if id != "" {
		s.lastEvent = id
		clear(s.passed)
		clear(s.read)
	}
}
