// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/filetype"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/input"
	"github.com/agentplatform/agentplatform/runner/script"
)

// trial is a prepared case with the results of its runs.
type trial struct {
	*bundle.Case
	agent   string
	opts    Options
	engine  *engine.Engine
	verdict *expr.Verdict // nil expects a completed run
	message string
	files   []engine.File
	actions []dispatchapi.Action
	// values creates the run's context.
	values func() map[string]any

	outcomes []outcome
	done     int // ended runs, guarded by the board
}

// outcome is the outcome of one run.
type outcome struct {
	took     time.Duration
	usage    dispatchapi.TokenUsage
	findings []Finding
	notes    []string
	// costs are the costs of its model calls by day.
	costs dispatchapi.DayCosts
}

// lateError is the cause of a timeout.
type lateError struct{ message string }

func (e *lateError) Error() string { return e.message }

// prepareAll prepares the cases of all suites.
func prepareAll(opts Options, scripts *script.Pool) (trials []*trial, err error) {
	for _, s := range opts.Project.Suites {
		for _, c := range s.Cases {
			if opts.Only != nil && !opts.Only(s.Agent, c) {
				continue
			}
			t, err := prepare(opts, scripts, s, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.At(), err)
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

func prepare(opts Options, scripts *script.Pool, s *bundle.Suite, c *bundle.Case) (*trial, error) {
	t := &trial{Case: c, agent: s.Agent, opts: opts, engine: engineOf(opts, scripts, s, c), outcomes: make([]outcome, c.Runs)}
	if c.ExpectedResult != "" {
		verdict, err := expr.NewVerdict(c.ExpectedResult)
		if err != nil {
			return nil, fmt.Errorf("reading expected_result: %w", err)
		}
		t.verdict = verdict
	}
	for _, a := range opts.Project.Actions(opts.Project.BaseName(s.Agent)) {
		t.actions = append(t.actions, dispatchapi.Action{Name: a.Name, Connector: a.Connector})
	}
	var about dispatchapi.Files
	for _, name := range c.Files {
		data := opts.Project.Files[bundle.TestFile(name)]
		f := engine.File{Name: path.Base(name), MIMEType: filetype.Of(name, data), Data: data}
		t.files = append(t.files, f)
		about.Files = append(about.Files, dispatchapi.File{Name: f.Name, FieldName: "files", MIMEType: f.MIMEType, Size: int64(len(data))})
	}
	payload := c.Payload
	if payload == nil {
		payload = map[string]any{}
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("writing the payload: %w", err)
	}
	read := func() (string, map[string]any, error) {
		return input.Read("application/json", raw, len(t.files) > 0, about)
	}
	if t.message, _, err = read(); err != nil {
		return nil, err
	}
	t.values = func() map[string]any {
		_, values, err := read()
		if err != nil {
			return nil // Impossible: it was read before.
		}
		return values
	}
	return t, nil
}

// runOnce runs the case once and judges it.
func (t *trial) runOnce(ctx context.Context, number int) (out outcome) {
	if ctx.Err() != nil {
		return outcome{findings: []Finding{{At: t.At(), Expected: "the case is run", Got: "it was not: " + context.Cause(ctx).Error()}}}
	}
	limit := time.Duration(t.TimeoutSeconds) * time.Second
	own, cancel := context.WithTimeoutCause(ctx, limit, &lateError{fmt.Sprintf("the run took longer than %s, the timeout_s of the case", limit)})
	defer cancel()
	id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "test:%s/%s/%d", t.agent, t.Name, number)).String()
	values, headers := t.values(), map[string]string{}
	for name, value := range t.Context.Headers {
		headers[strings.ToLower(name)] = value
	}
	of := t.opts.Project.BaseName(t.agent)
	input.Facts{RunID: id, AgentName: of, Headers: headers}.AddTo(values)
	journal := &memory{now: t.opts.Now}
	begin := t.opts.Now()
	var requests, unmockedCalls unmockedList
	noted := &noteList{}
	mocked := withUnmocked(withUnmocked(own, unmockedRequest, &requests), unmockedCall, &unmockedCalls)
	ended := t.engine.Execute(context.WithValue(mocked, noteKey{}, noted), engine.Input{
		RunID: id, AgentName: of, TestName: t.opts.Project.Agent(t.agent).TestName, Project: t.opts.Project, Message: t.message, Files: t.files, Context: values,
		Attempt: 1, Actions: t.actions, Outbound: Nowhere{}, Journal: journal, SavedFiles: &engine.MemoryFiles{Journal: journal},
	})
	out.notes = noted.listNotes()
	out.took, out.usage = t.opts.Now().Sub(begin), ended.Usage
	journal.addEntries(ended.Trailing)
	out.costs = journal.costs
	calls, err := engine.Calls(journal.entries)
	if err != nil {
		out.findings = []Finding{{At: t.At(), Expected: "the run can be judged", Got: err.Error()}}
		return out
	}
	judging, done := context.WithTimeoutCause(ctx, limit, &lateError{fmt.Sprintf("the verdict took longer than %s", limit)})
	defer done()
	out.findings = slices.Concat(requests.listFindings(t.At("mocks", "http"), "a mock in mocks.http answers each request"),
		unmockedCalls.listFindings(t.At("mocks", "mcp"), "a mock in mocks.mcp answers each call"),
		t.judgeRun(judging, run{Ended: endedRun(own, ended, values), code: string(ended.ErrorCode), calls: calls}))
	return out
}

// endedRun returns the outcome of a run. A run that timed out has failed, because nothing resumes it.
func endedRun(ctx context.Context, out engine.Outcome, values map[string]any) expr.Ended {
	ended := expr.Ended{Output: out.Output, Error: out.Error, Status: string(out.Status), Context: withSetValues(values, out.Context)}
	if out.Status != engine.Unfinished {
		return ended
	}
	ended.Status = string(engine.Failed)
	var late *lateError
	switch {
	case errors.As(context.Cause(ctx), &late):
		ended.Error = late.message
	case out.Cause != nil:
		ended.Error = out.Cause.Error()
	}
	return ended
}

// withSetValues adds what scripts set to the values that the context of a run began with, which scripts cannot change.
func withSetValues(values map[string]any, set json.RawMessage) map[string]any {
	var all map[string]any
	if len(set) == 0 || exactjson.Decode(set, &all) != nil { // the engine has encoded it
		return values
	}
	maps.Copy(all, values)
	return all
}

// memory is the journal of one run, with the cost of its model calls.
type memory struct {
	now     func() time.Time
	mu      sync.Mutex
	entries []dispatchapi.JournalEntry
	costs   dispatchapi.DayCosts
}

// Append implements engine.Journal.
func (m *memory) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addEntries(entries)
	return nil
}

// addEntries is Append for a caller that has exclusive access. A call counts for the day on which it is
// added, because the engine adds it before the next request.
func (m *memory) addEntries(entries []dispatchapi.JournalEntry) {
	const secondsOfDay = 24 * 60 * 60
	for _, e := range entries {
		if e.Usage == nil {
			continue
		}
		call := dispatchapi.DayCost{Day: m.now().Unix() / secondsOfDay, Calls: 1}
		if cost := e.Usage.Cost; cost != nil {
			call.Currency, call.Nanos = cost.Currency, cost.Nanos
		}
		m.costs = addCosts(m.costs, call)
	}
	m.entries = append(m.entries, slices.Clone(entries)...)
}

// Nowhere accepts payloads and delivers nothing. The journal has the call.
type Nowhere struct{}

// Send implements engine.Outbound. It responds as if the payload was queued.
func (Nowhere) Send(_ context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "test:%s/%d", req.Name, req.Position))
	return dispatchapi.SendResponse{DeliveryID: id, Status: dispatchapi.SendQueued}, nil
}
