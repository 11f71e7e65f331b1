// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// scriptAction runs a script without a model.
type scriptAction struct {
	scope     *Scope
	owner     string
	reference string
	run       func(ctx context.Context, at *Scope, step StepScript) (json.RawMessage, error)
}

// buildScript returns the action that runs a script, with the timeouts of the sequence.
func (q *sequence) buildScript(reference, path string, values *runContext) (*scriptAction, error) {
	at := slices.IndexFunc(q.engine.features, func(f Feature) bool { return f.RunStep != nil })
	if at < 0 {
		return nil, &failure{code: runerror.NotSupported, message: fmt.Sprintf("agent %q has a step with script %q, which this release does not support", q.agent.Name, reference)}
	}
	scope := &Scope{attempt: q.attempt, agent: q.agent, path: q.path, stage: q.stage, values: values}
	return &scriptAction{scope: scope, owner: ScriptOwner + path, reference: reference, run: q.engine.features[at].RunStep}, nil
}

// prepareScript returns the input of a script and the results so far, so that they do not depend on actions that run at the
// same time.
func (q *sequence) prepareScript(ctx context.Context, a *stepAction) (StepScript, error) {
	step := StepScript{Owner: a.script.owner, Reference: a.script.reference, Results: map[string]json.RawMessage{}}
	value, written, err := q.computeInput(ctx, a)
	switch {
	case err != nil:
		return step, err
	case written:
		step.Input, err = json.Marshal(value)
	default:
		step.Input, err = encodeText(q.input.Content.Text(), true)
	}
	if err != nil {
		return step, err
	}
	for name, r := range q.results {
		if step.Results[name], err = r.encode(); err != nil {
			return step, err
		}
	}
	return step, nil
}

// encode returns a result as JSON, with the value that expressions see.
func (r result) encode() (json.RawMessage, error) {
	switch {
	case r.skipped:
		return json.RawMessage("null"), nil
	case r.raw != nil:
		return r.raw, nil
	}
	return encodeText(r.text, false)
}

// encodeText returns the value of a text as JSON, as decodeText decodes it.
func encodeText(text string, anyJSON bool) (json.RawMessage, error) {
	value, err := decodeText(text, anyJSON)
	if err != nil {
		return nil, err
	}
	if same, isText := value.(string); isText && same == text {
		return json.Marshal(text)
	}
	return json.RawMessage(strings.TrimSpace(text)), nil
}

// runScript runs the script of an action once over all attempts. A script that fails fails the run.
func (q *sequence) runScript(ctx context.Context, p *prepared) (Message, result, error) {
	raw, err := p.script.run(ctx, p.script.scope, p.step)
	if err != nil {
		return Message{}, result{}, err
	}
	r := result{raw: raw, text: string(raw), isDecoded: true}
	if len(raw) > 0 && raw[0] == '"' {
		if err := exactjson.Decode(raw, &r.text); err != nil {
			return Message{}, result{}, fmt.Errorf("reading the result of a script: %w", err)
		}
	}
	if r.value, err = expr.Input(raw); err != nil {
		return Message{}, result{}, fmt.Errorf("reading the result of a script: %w", err)
	}
	return textMessage(q.agent.Name, r.text), r, nil
}
