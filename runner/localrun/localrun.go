// SPDX-License-Identifier: Apache-2.0

// Package localrun runs an agent of a folder on the machine of its author, with the engine and the features of a runner, and
// records the run as a test case.
package localrun

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/input"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/script"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// Options configure a run. All fields are required, except where stated.
type Options struct {
	// Project is a repository without problems. Its lock has the tools of pinned MCP servers.
	Project *bundle.Project
	// Agent is the name of an agent or of an A/B variant.
	Agent string
	// Payload is the JSON input, like the body of a webhook.
	Payload []byte
	// Headers are the headers of the event; optional.
	Headers map[string]string
	// Files are attachments; optional.
	Files []engine.File
	// Models answer the requests of agents.
	Models engine.Models
	// Prices are the prices of models; the zero value has none.
	Prices runnerconfig.Prices
	// Variables are the variables of the environment.
	Variables runnerconfig.Variables
	// HTTP sends the requests of tools and scripts, through the egress guard.
	HTTP *http.Client
	// OAuthApps has the access tokens of OAuth apps.
	OAuthApps *oauth.Apps
	// MCP calls the tools of MCP servers.
	MCP *mcp.Client
	// Scripts executes the scripts of tools.
	Scripts *script.Pool
	// Secrets are values that no step and no recorded case contains; optional.
	Secrets []string
	// Show is called for each step as it happens, one at a time; optional.
	Show func(Step)
	// Now is the clock for the times of steps; nil means time.Now.
	Now func() time.Time
}

// Result is a run that ended.
type Result struct {
	engine.Outcome
	RunID string
	// Steps are all steps in order.
	Steps    []Step
	Duration time.Duration
	// Costs are the costs of the model calls by currency.
	Costs []dispatchapi.Cost
	// Calls are the tool calls of models and steps.
	Calls []engine.CallRecord

	opts     Options
	observed *observer
}

// Run runs an agent. A failed run is no error.
func Run(ctx context.Context, opts Options) (*Result, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	o := newObserver(opts)
	message, values, about, err := readInput(opts)
	if err != nil {
		return nil, err
	}
	variables := func() (runnerconfig.Variables, error) { return opts.Variables, nil }
	base, id := opts.Project.BaseName(opts.Agent), uuid.NewString()
	input.Facts{RunID: id, AgentName: base, Headers: about}.AddTo(values)
	journal := &journal{}
	out := engine.New(engine.Config{
		Models: &models{next: opts.Models, observer: o}, Variables: variables,
		Prices: func() (runnerconfig.Prices, error) { return opts.Prices, nil },
		Features: slices.Concat([]engine.Feature{o.feature()}, features.New(features.Config{
			ToolHTTP: &http.Client{Transport: &transport{next: opts.HTTP.Transport, observer: o}},
			MCP:      opts.MCP, OAuthApps: opts.OAuthApps, Variables: variables, Scripts: opts.Scripts,
		}), []engine.Feature{o.recorder()}),
	}).Execute(ctx, engine.Input{
		RunID: id, AgentName: base, TestName: opts.Project.Agent(opts.Agent).TestName, Project: opts.Project, Message: message, Files: opts.Files,
		Context: values, Attempt: 1, Actions: actions(opts.Project, base), Outbound: suite.Nowhere{}, Journal: journal, SavedFiles: &engine.MemoryFiles{Journal: journal},
	})
	journal.entries = append(journal.entries, out.Trailing...)
	calls, err := engine.Calls(journal.entries)
	if err != nil {
		return nil, fmt.Errorf("reading the journal of the run: %w", err)
	}
	r := &Result{Outcome: out, RunID: id, Steps: o.steps, Duration: opts.Now().Sub(o.began), Costs: o.costs, Calls: calls, opts: opts, observed: o}
	r.Error = o.mask.redactText(r.Error)
	return r, nil
}

// readInput returns the message for the agent, the values of the context, and the headers of the event by their names in lower
// case.
func readInput(opts Options) (message string, values map[string]any, headers map[string]string, err error) {
	var about dispatchapi.Files
	for _, f := range opts.Files {
		about.Files = append(about.Files, dispatchapi.File{Name: f.Name, FieldName: "files", MIMEType: f.MIMEType, Size: int64(len(f.Data))})
	}
	headers = map[string]string{}
	for name, value := range opts.Headers {
		headers[strings.ToLower(name)] = value
	}
	message, values, err = input.Read("application/json", opts.Payload, len(opts.Files) > 0, about)
	return message, values, headers, err
}

// actions returns the tools of an agent that send to connectors.
func actions(project *bundle.Project, agent string) (out []dispatchapi.Action) {
	for _, a := range project.Actions(agent) {
		out = append(out, dispatchapi.Action{Name: a.Name, Connector: a.Connector})
	}
	return out
}

// journal keeps the entries of a run in memory.
type journal struct {
	mu      sync.Mutex
	entries []dispatchapi.JournalEntry
}

// Append implements engine.Journal.
func (j *journal) Append(_ context.Context, entries []dispatchapi.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entries...)
	return nil
}
