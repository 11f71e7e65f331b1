// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

// Limits of streams of events.
const (
	// MaxStreams is the number of slots for open streams. A project has one part in StreamShare of them.
	MaxStreams  = 256
	StreamShare = 8
	// streamTime limits a stream. Its reader connects again and resumes.
	streamTime = 15 * time.Minute
	// streamCheck is how often the permission of the reader is checked. streamPoll is how often the store is read without a
	// hint, and a comment is sent. The first poll comes after streamSettle, because a process that changes the object may
	// send no hints before it knows of the stream.
	streamCheck, streamPoll, streamSettle = 2 * time.Second, 15 * time.Second, time.Second
	// streamPace is how long changes gather, so that an object that changes a lot does not cause a query for each change.
	streamPace = 200 * time.Millisecond
	// streamRetry is the Retry-After of callers that get no slot.
	streamRetry = 5 * time.Second
)

// Stream is a stream of events about an object.
type Stream struct {
	// Key names the object, Topic the hints of its changes.
	Topic store.Topic
	Key   store.Key
	// Slots is the number of slots of MaxStreams that the stream takes, for the memory that it needs.
	Slots int64
	// Renew is called at the start and then with each poll, Close at the end; nil for none.
	Renew func()
	Close func(ctx context.Context)
	// Send sends what is new, until its context ends. It reports whether the stream is complete. An error ends the stream too,
	// and the reader connects again.
	Send func(ctx context.Context, to *Events) (complete bool, err error)
}

// OpenStream returns the response of an endpoint that streams events. The stream ends when it is complete, the reader is gone
// or has lost its permission, the facade stops, or after streamTime.
func (s *Service) OpenStream(ctx context.Context, c *Caller, stream Stream) (Response[func(huma.Context)], error) {
	err := LimitProblem(s.Streams.Take(c.ProjectID, stream.Slots), "too many open streams of events; close one or retry later", streamRetry)
	if err != nil {
		return Response[func(huma.Context)]{}, err
	}
	gone := ClientGone(ctx)
	return Response[func(huma.Context)]{Body: func(ctx huma.Context) {
		defer s.Streams.Give(c.ProjectID, stream.Slots)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx.Context()), streamTime)
		defer cancel()
		_, w := humachi.Unwrap(ctx)
		open := openStream{Stream: stream, service: s, caller: c, events: newEvents(w), gone: gone}
		if err := open.run(within); err != nil {
			s.Logger.WarnContext(within, "a stream of events broke off", "endpoint", c.Endpoint.ID, "object", stream.Key, "error", err)
		}
	}}, nil
}

// openStream is a stream with a reader.
type openStream struct {
	Stream
	service *Service
	caller  *Caller
	events  *Events
	// gone is closed when the reader is gone.
	gone <-chan struct{}
}

func (o *openStream) run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	checks := time.NewTicker(streamCheck)
	defer checks.Stop()
	watching.Go(func() { o.watch(ctx, cancel, checks.C) })
	hints, stop := o.service.Store.Subscribe(o.Topic)
	defer stop()
	poll := time.NewTicker(streamSettle)
	defer poll.Stop()
	if o.Close != nil {
		defer o.Close(ctx)
	}
	o.renewInterest()
	if o.events.sendComment() != nil { // the reader learns at once that there is a stream
		return nil
	}
	for {
		complete, err := o.Send(ctx, o.events)
		if ctx.Err() != nil {
			return nil
		}
		if complete || err != nil || o.events.gone {
			return err
		}
		if !o.wait(ctx, hints, poll) || pause.For(ctx, streamPace) != nil {
			return nil
		}
	}
}

// watch cancels the stream, also while it sends, if the reader is gone or has lost its permission, or if the facade stops. A
// panic ends the stream, and not the facade.
func (o *openStream) watch(ctx context.Context, cancel context.CancelFunc, checks <-chan time.Time) {
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			o.service.Logger.ErrorContext(ctx, "checking a stream of events panicked", "endpoint", o.caller.Endpoint.ID, "object", o.Key, "panic", p,
				"stack", string(debug.Stack()))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.gone:
			return
		case <-o.service.Stopping:
			return
		case <-checks:
			if !o.service.stillAllows(ctx, o.caller) {
				return
			}
		}
	}
}

func (o *openStream) renewInterest() {
	if o.Renew != nil {
		o.Renew()
	}
}

// wait returns when there may be more to send. It returns false if the stream ends.
func (o *openStream) wait(ctx context.Context, hints <-chan store.Hint, poll *time.Ticker) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case hint, open := <-hints:
			if !open {
				return false // the store is closed
			}
			if hint.Key == o.Key || hint.Key == (store.Key{}) {
				return true
			}
		case <-poll.C:
			poll.Reset(streamPoll)
			o.renewInterest()
			return o.events.sendComment() == nil
		}
	}
}

// stillAllows reports whether a caller's key is valid and unchanged since the call began, and still has the permission.
// Informers know the keys.
func (s *Service) stillAllows(ctx context.Context, c *Caller) bool {
	now, err := s.Index.Current(ctx, c.Key)
	if err != nil || now == nil || !s.IsValidKey(now) || now.Generation != c.Key.Generation {
		return false
	}
	return s.Require(ctx, c, c.Endpoint.Permissions[0].Permission) == nil
}

// Events is a response that is written event by event, in the format of server-sent events. The server limits the time of each
// write.
type Events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	gone  bool // a write failed
}

// newEvents begins the response.
func newEvents(w http.ResponseWriter) *Events {
	header := w.Header()
	header.Set("Content-Type", EventsType)
	header.Set("X-Accel-Buffering", "no") // otherwise proxies collect the response
	w.WriteHeader(http.StatusOK)
	return &Events{w: w, flush: http.NewResponseController(w)}
}

// Event is an event of a stream. Data is JSON, without line breaks.
type Event struct {
	Name string
	// ID is the value of Last-Event-ID with which a reader resumes after the event. Events without an ID come again if the
	// stream breaks off before the next event with one.
	ID    int64
	HasID bool
	Data  []byte
}

// NewEvent returns an event without an ID.
func NewEvent(name string, data any) (Event, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return Event{}, fmt.Errorf("encoding the event %s: %w", name, err)
	}
	return Event{Name: name, Data: text}, nil
}

// WithID returns the event with an ID.
func (e Event) WithID(id int64) Event {
	e.ID, e.HasID = id, true
	return e
}

// WriteEvent sends an event, unless the stream has ended. It reports whether the reader can get more events.
func (e *Events) WriteEvent(ctx context.Context, event Event) bool {
	if ctx.Err() != nil {
		return false
	}
	id := ""
	if event.HasID {
		id = fmt.Sprintf("id: %d\n", event.ID)
	}
	return e.writeText("%sevent: %s\ndata: %s\n\n", id, event.Name, event.Data) == nil
}

// sendComment sends a comment, so that everything between here and the reader sees that the stream lasts.
func (e *Events) sendComment() error { return e.writeText(":\n\n") }

func (e *Events) writeText(format string, args ...any) error {
	if _, err := fmt.Fprintf(e.w, format, args...); err != nil {
		e.gone = true
		return err
	}
	if err := e.flush.Flush(); err != nil {
		e.gone = true
		return err
	}
	return nil
}
