// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/filetype"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/input"
)

// trial is a case that is ready to be run, with what became of its runs.
type trial struct {
	*bundle.Case
	agent   string
	opts    Options
	engine  *engine.Engine
	verdict *expr.Verdict // nil expects that the run completes
	message string
	files   []engine.File
	actions []dispatchapi.Action
	// values makes the run's context anew.
	values func() map[string]any

	outcomes []outcome
	done     int // of the runs, guarded by the board
}

// outcome is what became of one run.
type outcome struct {
	took     time.Duration
	usage    dispatchapi.TokenUsage
	findings []Finding
	// costs are those of its calls of models, by their days.
	costs dispatchapi.DayCosts
}

// lateError is the cause of what took too long.
type lateError struct{ message string }

func (e *lateError) Error() string { return e.message }

// prepareAll makes the cases of all suites ready.
func prepareAll(opts Options) (trials []*trial, err error) {
	for _, s := range opts.Project.Suites {
		for _, c := range s.Cases {
			if opts.Only != nil && !opts.Only(s.Agent, c) {
				continue
			}
			t, err := prepare(opts, s, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.At(), err)
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

func prepare(opts Options, s *bundle.Suite, c *bundle.Case) (*trial, error) {
	t := &trial{Case: c, agent: s.Agent, opts: opts, engine: engineOf(opts, s, c), outcomes: make([]outcome, c.Runs)}
	if c.ExpectedResult != "" {
		verdict, err := expr.NewVerdict(c.ExpectedResult)
		if err != nil {
			return nil, fmt.Errorf("reading expected_result: %w", err)
		}
		t.verdict = verdict
	}
	for _, a := range opts.Project.Actions(opts.Project.RunsOf(s.Agent)) {
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
			return nil // Cannot be: it was read before.
		}
		return values
	}
	return t, nil
}

// try runs the case once and judges it.
func (t *trial) try(ctx context.Context, number int) (out outcome) {
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
	of := t.opts.Project.RunsOf(t.agent)
	input.About(values, id, of, headers)
	journal := &memory{now: t.opts.Now}
	begin := t.opts.Now()
	ended := t.engine.Execute(own, engine.Input{
		RunID: id, AgentName: of, TestName: t.opts.Project.Agent(t.agent).TestName, Project: t.opts.Project, Message: t.message, Files: t.files, Context: values,
		Actions: t.actions, Outbound: nowhere{}, Journal: journal,
	})
	out.took, out.usage = t.opts.Now().Sub(begin), ended.Usage
	journal.add(ended.Trailing)
	out.costs = journal.costs
	calls, err := engine.Calls(journal.entries)
	if err != nil {
		out.findings = []Finding{{At: t.At(), Expected: "the run can be judged", Got: err.Error()}}
		return out
	}
	judging, done := context.WithTimeoutCause(ctx, limit, &lateError{fmt.Sprintf("the verdict took longer than %s", limit)})
	defer done()
	out.findings = t.judge(judging, run{Ended: endOf(own, ended, values), code: ended.ErrorCode, calls: calls})
	return out
}

// endOf is how a run ended. One that was cut off by a timeout failed: nobody resumes it.
func endOf(ctx context.Context, out engine.Outcome, values map[string]any) expr.Ended {
	ended := expr.Ended{Output: out.Output, Error: out.Error, Status: string(out.Status), Context: values}
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

// memory is the journal of one run, with what its calls of models have cost.
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
	m.add(entries)
	return nil
}

// add is Append for who has the journal alone. A call is of the day on which it is added: the engine
// does so before it asks again.
func (m *memory) add(entries []dispatchapi.JournalEntry) {
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

// nowhere takes what a run sends and delivers nothing: the call stands in the journal.
type nowhere struct{}

// Send implements engine.Outbound; it answers as if the payload waited for its delivery.
func (nowhere) Send(_ context.Context, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error) {
	id := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "test:%s/%d", req.Name, req.Position))
	return dispatchapi.SendResponse{DeliveryID: id, Status: dispatchapi.SendQueued}, nil
}
