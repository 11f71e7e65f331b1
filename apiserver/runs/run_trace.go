// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/store"
)

// Span is a step of a run.
type Span struct {
	ID         string                      `json:"id" doc:"The ID of the step: 16 hexadecimal digits, as in traceparent headers of its requests." example:"b7ad6b7169203331"`
	ParentID   *string                     `json:"parent_id" doc:"The step that this step is a part of; null for the run itself."`
	Name       string                      `json:"name" doc:"The name of the step." example:"chat gpt-5"`
	Kind       SpanKind                    `json:"kind" doc:"The kind of the step."`
	StartedAt  time.Time                   `json:"started_at" doc:"When the step started."`
	EndedAt    *time.Time                  `json:"ended_at" doc:"When the step ended; null before."`
	DurationMS *int64                      `json:"duration_ms" doc:"Duration of the step in milliseconds; null before its end."`
	Error      *string                     `json:"error" doc:"Why the step failed; else null."`
	ErrorType  *string                     `json:"error_type" doc:"Why the step failed, as a code; else null." example:"tool_error"`
	TokenUsage rest.Null[costs.TokenUsage] `json:"token_usage" doc:"Tokens of a model request; null for other steps."`
	Cost       rest.Null[costs.Cost]       `json:"cost" doc:"Cost of a model request, in the currency of the price; null for other steps and without a known price."`
	Attributes rest.Object                 `json:"attributes" doc:"More about the step, with the names of OpenTelemetry's conventions for generative AI. Other names begin with agentplatform."`
	Events     []SpanEvent                 `json:"events" doc:"The failed attempts of a model request, which was sent again after each attempt; empty for other steps."`
	Input      any                         `json:"input" doc:"The arguments of a call as JSON; {\"omitted_bytes\": n} if they are large."`
	Output     any                         `json:"output" doc:"The answer of a model or the result of a call as JSON; {\"omitted_bytes\": n} if it is large."`
}

func (Span) Doc() string { return "A step of a run." }

// SpanEvent is something that happened during a step.
type SpanEvent struct {
	At         time.Time   `json:"at" doc:"When it happened."`
	Name       string      `json:"name" doc:"The kind of the event." example:"agentplatform.attempt"`
	Attributes rest.Object `json:"attributes" doc:"More about the event, as in attributes of steps."`
}

func (SpanEvent) Doc() string { return "Something that happened during a step." }

// LogLine is a log line of a run.
type LogLine struct {
	At       time.Time   `json:"at" doc:"When the call or the script that wrote the line ended."`
	Level    LogLevel    `json:"level" doc:"The severity."`
	Message  string      `json:"message" doc:"The text."`
	Fields   rest.Object `json:"fields" doc:"The fields of the line; null without fields."`
	Position *string     `json:"position" doc:"The file, the line and the column in the repository; null if unknown." example:"tools/orders/refund.star:12:5"`
	SpanID   string      `json:"span_id" doc:"The step that wrote the line."`
}

func (LogLine) Doc() string { return "A log line of a run." }

// maxTraceJournal limits the journal that a request reads, in bytes of its entries. At most store.MaxJournalPage of them are in
// memory at a time.
const maxTraceJournal = 8 << 20

// addTrace adds the steps and the log lines that the journal of a run has so far. It leaves out what follows the first
// maxTraceJournal bytes.
func (s *API) addTrace(ctx context.Context, run store.Run, shown *Run) error {
	t := newTracer(s, run)
	defer t.reportUnreadable(ctx)
	if err := t.addVersion(ctx, run); err != nil {
		return err
	}
	for last := false; !last && !shown.TracesTruncated; {
		var err error
		if last, err = t.readPage(ctx, store.MaxEntries, func() {}); err != nil {
			return err
		}
		shown.TracesTruncated = !last && t.read >= maxTraceJournal
	}
	built := t.trace.BuildTrace(tracedRun(run))
	for i := range built.Spans {
		shown.Traces = append(shown.Traces, showSpan(&built.Spans[i]))
	}
	for i := range built.Lines {
		shown.Logs = append(shown.Logs, showLine(&built.Lines[i]))
	}
	shown.MoreTraces, shown.MoreLogs = built.MoreSpans, built.MoreLines
	return nil
}

// tracer computes the trace of a run while it reads the journal, page by page.
type tracer struct {
	api   *API
	run   store.Key
	trace *runtrace.Builder
	// after is the last entry that was read. read counts the bytes of all of them.
	after, read int64
	// unreadable counts the entries that the trace leaves out. cause is the error of the first one.
	unreadable int
	cause      error
}

func newTracer(s *API, run store.Run) *tracer {
	return &tracer{api: s, run: run.Key(), trace: runtrace.NewBuilder(run.ID.String())}
}

// addVersion adds the bundle of a run that has started.
func (t *tracer) addVersion(ctx context.Context, run store.Run) error {
	if run.DeploymentID == nil || t.trace.Version != "" {
		return nil
	}
	d, err := t.api.Store.Deployment(ctx, store.Key{ProjectID: run.ProjectID, ID: *run.DeploymentID})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reading the deployment of run %s: %w", run.ID, err)
	}
	t.trace.Version = d.BundleDigest
	return nil
}

// readPage adds the next entries, at most limit, and calls use after each of them. It reports whether the journal has no more.
func (t *tracer) readPage(ctx context.Context, limit int, use func()) (last bool, err error) {
	page, err := t.api.Store.JournalAfter(ctx, t.run, t.after, limit)
	if err != nil {
		return false, fmt.Errorf("reading the journal of run %s: %w", t.run.ID, err)
	}
	for _, entry := range page {
		t.after = entry.Sequence
		t.read += entry.Size()
		e := runtrace.NewEntry(entry.Sequence, string(entry.Kind), entry.Data, entry.At)
		if err := t.trace.AddEntry(&e); err != nil {
			t.unreadable++
			t.cause = cmp.Or(t.cause, err)
		}
		use()
	}
	return store.LastJournalPage(page, limit), nil
}

// reportUnreadable logs once that entries were left out.
func (t *tracer) reportUnreadable(ctx context.Context) {
	if t.unreadable > 0 {
		t.api.Service.Logger.WarnContext(ctx, "a journal has entries that cannot be read", "run", t.run, "entries", t.unreadable, "error", t.cause)
	}
}

func tracedRun(run store.Run) runtrace.Run {
	out := runtrace.Run{
		ID: run.ID.String(), AgentName: run.AgentName, Status: string(run.Status), ErrorCode: string(run.ErrorCode), Error: run.Error,
		Attempt: run.Attempt, Queued: run.QueuedAt,
	}
	if run.StartedAt != nil {
		out.Started = *run.StartedAt
	}
	if run.EndedAt != nil {
		out.Ended = *run.EndedAt
	}
	return out
}

func showSpan(s *runtrace.Span) Span {
	out := Span{
		ID: s.ID, ParentID: rest.Optional(s.Parent), Name: s.Name, Kind: SpanKind(s.Kind), StartedAt: s.Start.UTC(),
		Error: rest.Optional(s.Error), ErrorType: rest.Optional(s.ErrorType), Attributes: showAttributes(s.Attributes),
		Events: []SpanEvent{}, Input: showContent(s.Input), Output: showContent(s.Output),
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, SpanEvent{At: e.At.UTC(), Name: e.Name, Attributes: showAttributes(e.Attributes)})
	}
	if s.HasEnded() {
		end, ms := s.End.UTC(), s.Duration().Milliseconds()
		out.EndedAt, out.DurationMS = &end, &ms
	}
	if s.Usage != nil {
		usage := costs.TokenUsage(*s.Usage)
		out.TokenUsage.Value = &usage
	}
	if s.Cost != nil {
		cost := costs.NewCost(store.Cost{Currency: store.Currency(s.Cost.Currency), Nanos: s.Cost.Nanos})
		out.Cost.Value = &cost
	}
	return out
}

func showAttributes(attributes map[string]any) rest.Object {
	if text, err := json.Marshal(attributes); err == nil {
		return text
	}
	return rest.Object("{}")
}

func showContent(content json.RawMessage) any {
	if content == nil {
		return nil
	}
	return content
}

func showLine(l *runtrace.Line) LogLine {
	return LogLine{
		At: l.At.UTC(), Level: LogLevel(l.Level), Message: l.Text, Fields: rest.Object(l.Fields), Position: rest.Optional(l.Position),
		SpanID: l.SpanID,
	}
}
