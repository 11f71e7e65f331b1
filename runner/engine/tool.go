// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	adkagent "google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// Tool is a function that models may call.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON Schema of the arguments.
	Parameters map[string]any
	// Idempotent says that calling it again has no other effect than calling it
	// once: an interrupted call is repeated. Without it the run fails.
	Idempotent bool
	// Run calls the tool. An error's text is shown to the model, which may go on.
	Run func(ctx context.Context, args map[string]any) (map[string]any, error)
	// send is called in place of Run by tools that send, with the position in the journal
	// that announces the call.
	send func(ctx context.Context, position int64, args map[string]any) (map[string]any, error)
}

// journaledTool calls a tool once per call id, over all attempts.
type journaledTool struct {
	*scope
	tool Tool
}

// Name, Description and IsLongRunning implement the framework's tool.Tool.
func (t *journaledTool) Name() string        { return t.tool.Name }
func (t *journaledTool) Description() string { return t.tool.Description }
func (t *journaledTool) IsLongRunning() bool { return false }

// Declaration is what the model is told.
func (t *journaledTool) Declaration() *genai.FunctionDeclaration {
	return &genai.FunctionDeclaration{Name: t.tool.Name, Description: t.tool.Description, ParametersJsonSchema: t.tool.Parameters}
}

// ProcessRequest offers the tool to the model.
func (t *journaledTool) ProcessRequest(_ adkagent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, t)
}

// Run is called by the framework, in a goroutine of its own for each call of
// one answer. It must not panic: nobody would recover.
func (t *journaledTool) Run(ctx adkagent.Context, arguments any) (result map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = t.stop(panicked(p))
		}
	}()
	args, _ := arguments.(map[string]any)
	got, err := t.call(ctx, ctx.FunctionCallID(), args)
	if err != nil {
		return nil, t.stop(err)
	}
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	if got.Result == nil {
		got.Result = map[string]any{}
	}
	return got.Result, nil
}

// run calls the tool, which stands at a position of the journal, and counts the call, also if the
// tool panics. Arguments and results are held to the JSON that the platform takes elsewhere.
func (t *journaledTool) run(ctx context.Context, position int64, args map[string]any) (result map[string]any, err error) {
	outcome := metrics.OutcomeError
	defer func() { t.engine.cfg.Metrics.Called(outcome) }()
	if err = checkJSON("arguments", args); err != nil {
		return nil, err
	}
	if t.tool.send != nil {
		result, err = t.tool.send(ctx, position, args)
	} else {
		result, err = t.tool.Run(ctx, args)
	}
	if err == nil {
		err = checkJSON("result", result)
	}
	switch {
	case err == nil:
		outcome = metrics.OutcomeOK
	case ctx.Err() != nil:
		outcome = metrics.OutcomeCancelled
	}
	return result, err
}

// checkJSON returns an error for the model if other programs cannot read a value: a model's number may
// have any size, because exactjson keeps its digits.
func checkJSON(what string, value map[string]any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("the %s of the tool cannot be written as JSON", what)
	}
	var wrong *jsonscan.SyntaxError
	if errors.As(jsonscan.Check(text), &wrong) {
		return fmt.Errorf("the %s of the tool cannot be used as JSON: %s; numbers have at most %d characters and are below 1.8e308",
			what, wrong.Problem, jsonscan.MaxNumber)
	}
	return nil
}

// call answers from the journal or calls the tool. Its error ends the attempt;
// the tool's own is part of the result.
func (t *journaledTool) call(ctx context.Context, id string, args map[string]any) (toolResult, error) {
	if known, ok := t.journal.result(id); ok {
		return known, nil
	}
	if err := t.mayGoOn(ctx); err != nil {
		return toolResult{}, err
	}
	if t.in.Gate != nil {
		if err := t.in.Gate(ctx); err != nil {
			return toolResult{}, fmt.Errorf("waiting for the claim to be confirmed: %w: %w", ErrStopped, err)
		}
	}
	limited, cancel := t.limit(ctx)
	defer cancel()
	if late := timedOut(limited); late != nil {
		return toolResult{}, late // Before it is begun: it had no effect.
	}
	unsafe := !t.tool.Idempotent
	position, err := t.journal.recordStart(toolStarted{Agent: t.path, CallID: id, Tool: t.tool.Name, Arguments: args, Sends: t.tool.send != nil}, unsafe)
	if err != nil {
		return toolResult{}, err
	}
	if err := t.journal.flush(ctx); err != nil {
		return toolResult{}, err
	}
	out := toolResult{CallID: id, Tool: t.tool.Name}
	result, err := t.run(limited, position, args)
	if late := timedOut(limited); err != nil && late != nil {
		return toolResult{}, late
	}
	if err != nil && ctx.Err() != nil {
		return toolResult{}, ctx.Err() // Cut off: nobody knows what it did.
	}
	if errors.Is(err, errUnsent) {
		return toolResult{}, fmt.Errorf("%w: %w", ErrStopped, err)
	}
	if out.Result = result; err != nil {
		out.Result, out.Error = nil, err.Error()
	}
	recorded, err := t.journal.recordResult(out, unsafe)
	if err != nil || !unsafe {
		return recorded, err
	}
	// From here on the effect is known, whatever happens to this runner.
	return recorded, t.journal.flush(context.WithoutCancel(ctx))
}
