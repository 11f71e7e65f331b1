// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// runStreamSlots are the slots of rest.MaxStreams that a stream takes: it keeps the steps of the run, up to
	// runtrace.MaxSpans, and the events of a page.
	runStreamSlots = 4
	// streamPage is the number of journal entries whose events wait for a slow reader.
	streamPage = 100
)

// RunEventsInput is the request to follow a run.
type RunEventsInput struct {
	RunPath
	LastEventID int64 `header:"Last-Event-ID" minimum:"0" maximum:"1000000000" doc:"The ID of the last event that the client read. The stream continues after it." example:"3"`
}

// RunEnd is the data of the event end.
type RunEnd struct {
	Status     RunStatus `json:"status" doc:"The final status of the run."`
	ErrorCode  *string   `json:"error_code" doc:"Why the run failed, as a code; else null."`
	MoreTraces int       `json:"more_traces" doc:"Number of steps beyond the limit."`
	MoreLogs   int       `json:"more_logs" doc:"Number of log lines beyond the limits."`
}

var streamRunEvents = rest.Handle((*API).streamRunEvents, rest.Endpoint{
	Method: rest.Get, Path: "/runs/{run_id}/events", ID: "streamRunEvents",
	Permissions: rest.Requires("runs.view"), Errors: rest.ReadErrors,
	Stream:  true,
	Summary: "Follow an agent run",
	Doc: "Streams the steps and the log lines of a run as server-sent events, from its beginning, while the run goes on.\n\n" +
		"A `step` event has a step as in `traces` of the run. Calls of tools and scripts come when they begin and again when they " +
		"end or change; model requests and reads of scripts come when they end. The last event with its `id` counts. A step can come before the step that `parent_id` names. If that step never comes, the " +
		"step is a part of the run. A `log` event has a line as in `logs`. The last event, `end`, has the data `{\"status\": " +
		"\"completed\", \"error_code\": null, \"more_traces\": 0, \"more_logs\": 0}`, or another final status, and ends the " +
		"stream. Read the run for its output.\n\n" +
		"To resume, send the ID of the last event with an ID as `Last-Event-ID`. The other events after it come again. An idle " +
		"stream gets a comment every fifteen seconds. A stream lasts at most fifteen minutes. It also ends when the service " +
		"stops, and when the key is revoked or changed. Connect again if the stream ends without an `end` event. Returns 429 if " +
		"the project has too many open streams.",
	Example: rest.Example{Path: "/runs/{run}/events"},
})

// streamRunEvents sends the steps and the log lines of a run while it goes on.
func (s *API) streamRunEvents(ctx context.Context, c *rest.Caller, in *RunEventsInput) (rest.Response[func(huma.Context)], error) {
	run, err := s.run(ctx, c, in.RunID)
	if err != nil {
		return rest.Response[func(huma.Context)]{}, err
	}
	events := runEvents{tracer: newTracer(s, run), caller: c, known: in.LastEventID}
	return s.Service.OpenStream(ctx, c, rest.Stream{
		Topic: store.TopicRun, Key: run.Key(), Slots: runStreamSlots, Send: events.sendNew,
		Renew: func() { s.Service.Store.FollowRun(run.Key()) }, Close: events.reportUnreadable,
	})
}

// runEvents are the events of a run. The ID of an event is the number of the journal entry that it completes.
type runEvents struct {
	*tracer
	caller *rest.Caller
	// known is the last entry whose events the reader has.
	known int64
	// shown is the open run as it was sent.
	shown runtrace.Run
}

// sendNew sends the events of new journal entries, and the end of the run.
func (r *runEvents) sendNew(ctx context.Context, to *rest.Events) (complete bool, err error) {
	// The run is read before its journal: the journal of a run that has ended is complete.
	run, err := r.api.Store.Run(ctx, r.run)
	switch {
	case errors.Is(err, store.ErrNotFound): // erased; the reader connects again and gets 404
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading run %s: %w", r.run.ID, err)
	}
	if err := r.addVersion(ctx, run); err != nil {
		return false, err
	}
	if !run.Status.Terminal() && !r.hasShown(tracedRun(run)) {
		r.shown = tracedRun(run)
		if gone, err := r.writeEvents(ctx, to, stepEvents([]runtrace.Span{r.trace.RunSpan(r.shown)})); gone || err != nil {
			return true, err
		}
	}
	for last := false; !last; {
		var events pageEvents
		events, last, err = r.readEvents(ctx)
		if refused := (rest.Problem{}); errors.As(err, &refused) {
			return false, nil // the project reads too much at the moment
		}
		if err != nil {
			return false, err
		}
		if gone, err := r.writeEvents(ctx, to, events); gone || err != nil {
			return true, err
		}
	}
	if run.Status.Terminal() {
		return true, r.sendEnd(ctx, to, run)
	}
	return false, nil
}

// hasShown reports whether the reader has this state of the run.
func (r *runEvents) hasShown(run runtrace.Run) bool {
	return run.Status == r.shown.Status && run.Attempt == r.shown.Attempt && run.Started.Equal(r.shown.Started)
}

// pageEvents are events, or the error of encoding one.
type pageEvents struct {
	events []rest.Event
	err    error
}

func (p *pageEvents) addEvent(name string, data any) {
	event, err := rest.NewEvent(name, data)
	p.events, p.err = append(p.events, event), cmp.Or(p.err, err)
}

func stepEvents(spans []runtrace.Span) (out pageEvents) {
	for i := range spans {
		out.addEvent("step", showSpan(&spans[i]))
	}
	return out
}

// readEvents returns the events of the next journal entries that the reader does not have. It takes a turn of the project's
// readings, which ends before a slow reader gets the events.
func (r *runEvents) readEvents(ctx context.Context) (out pageEvents, last bool, err error) {
	end, err := r.api.Service.WaitForHistoryRead(ctx, r.caller)
	if err != nil {
		return out, false, err
	}
	defer end()
	last, err = r.readPage(ctx, streamPage, func() {
		changes := r.trace.TakeChanges()
		if r.after <= r.known {
			return
		}
		entry := stepEvents(changes.Spans)
		for i := range changes.Lines {
			entry.addEvent("log", showLine(&changes.Lines[i]))
		}
		if n := len(entry.events); n > 0 {
			entry.events[n-1] = entry.events[n-1].WithID(r.after)
		}
		out.events, out.err = append(out.events, entry.events...), cmp.Or(out.err, entry.err)
	})
	return out, last, err
}

// writeEvents sends events. It reports whether the reader is gone or the stream has ended.
func (r *runEvents) writeEvents(ctx context.Context, to *rest.Events, page pageEvents) (gone bool, err error) {
	if page.err != nil {
		return false, page.err
	}
	for _, event := range page.events {
		if !to.WriteEvent(ctx, event) {
			return true, nil
		}
	}
	return false, nil
}

// sendEnd sends the steps that the end of the run changes, and the end.
func (r *runEvents) sendEnd(ctx context.Context, to *rest.Events, run store.Run) error {
	out := stepEvents(r.trace.EndRun(tracedRun(run)))
	end := RunEnd{Status: RunStatus(run.Status), ErrorCode: rest.Optional(string(run.ErrorCode))}
	end.MoreTraces, end.MoreLogs = r.trace.Omitted()
	out.addEvent("end", end)
	out.events[len(out.events)-1] = out.events[len(out.events)-1].WithID(r.after)
	_, err := r.writeEvents(ctx, to, out)
	return err
}
