// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/script"
)

// invocation is a call of a function of a script.
type invocation struct {
	scope          *engine.Scope
	owner          bundle.ScriptOwner
	file, function string
	// id identifies the invocation in the run.
	id   string
	args map[string]any
	// facts are read-only values of the context in addition to the values of the run.
	facts        map[string]any
	takesContext bool
	began        time.Time
	effects      *engine.Effects
	// idempotent is true if the script vouches for its writes.
	idempotent bool
}

// outcome is what a script did.
type outcome struct {
	// value is the result as JSON, nil if the script stopped, aborted or failed.
	value json.RawMessage
	// changes are the changes of the run's context.
	changes map[string]any
	log     []engine.LogLine
	moreLog int
	stop    *engine.Stop
	abort   json.RawMessage
	failed  *script.Error
}

// invoke executes a function in a child process. The error of the script is part of the outcome. Any other error ends the
// attempt.
func (f *feature) invoke(ctx context.Context, i invocation) (out outcome, err error) {
	if f.cfg.Pool == nil {
		return outcome{failed: &script.Error{Code: runerror.ScriptError, Message: "scripts are not available here"}}, nil
	}
	changeable, readOnly := i.scope.ContextParts()
	maps.Copy(readOnly, i.facts)
	args, context, fixed, err := encodeAll(orEmpty(i.args), changeable, readOnly)
	if err != nil {
		return outcome{}, err
	}
	lines, bytes := i.scope.LogBudget()
	p := i.scope.Project()
	call := script.Call{
		Run:    i.scope.RunID(),
		Digest: scriptDigest(p), Sources: p.ScriptFiles, File: i.file, Function: i.function, Args: args,
		Context: context, ReadOnly: fixed, TakesContext: i.takesContext, Owner: i.owner,
		Logs: script.LogBudget{Lines: lines, Bytes: bytes}, Offers: func(name string) bool { return Offers(i.owner, name) }, Now: i.began,
		Seed: sha256.Sum256([]byte(i.scope.RunID() + "/" + i.id)),
	}
	if i.owner != bundle.OwnerTool {
		call.Payload, call.Files = true, len(i.scope.Files())
	}
	result, err := f.cfg.Pool.Run(ctx, call, &host{feature: f, scope: i.scope, effects: i.effects, idempotent: i.idempotent})
	out.moreLog = result.DroppedLogs
	for _, line := range result.Logs {
		out.log = append(out.log, engine.LogLine{Level: line.Level, Text: line.Text, Fields: line.Fields, Position: line.Position.String()})
	}
	switch {
	case errors.As(err, &out.failed):
		out.log = append(out.log, engine.LogLine{Level: "error", Text: out.failed.Detail(), Position: out.failed.Position().String()})
		return out, nil
	case err != nil:
		return out, err
	}
	if out.changes, err = changesOf(changeable, result.Context); err != nil {
		return out, err
	}
	if result.Stop != nil {
		out.stop = &engine.Stop{Output: result.Stop.Message, Unpublished: !result.Stop.PublishOutbound}
	}
	out.value, out.abort = result.Value, result.Abort
	return out, nil
}

func orEmpty(args map[string]any) map[string]any {
	if args == nil {
		return map[string]any{}
	}
	return args
}

func encodeAll(args, changeable, readOnly map[string]any) (a, c, r json.RawMessage, err error) {
	if a, err = json.Marshal(args); err != nil {
		return nil, nil, nil, fmt.Errorf("encoding arguments: %w", err)
	}
	if c, err = json.Marshal(changeable); err != nil {
		return nil, nil, nil, fmt.Errorf("encoding the context: %w", err)
	}
	if r, err = json.Marshal(readOnly); err != nil {
		return nil, nil, nil, fmt.Errorf("encoding the context: %w", err)
	}
	return a, c, r, nil
}

// changesOf returns what a script changed in the part of the run's context that it got; nil for a deleted value.
func changesOf(before map[string]any, after json.RawMessage) (map[string]any, error) {
	if after == nil {
		return nil, nil
	}
	var values map[string]any
	if err := exactjson.Decode(after, &values); err != nil {
		return nil, fmt.Errorf("reading the context of a script: %w", err)
	}
	changes := map[string]any{}
	for key, value := range values {
		if old, known := before[key]; !known || !reflect.DeepEqual(old, value) {
			changes[key] = value
		}
	}
	for key := range before {
		if _, kept := values[key]; !kept {
			changes[key] = nil
		}
	}
	return changes, nil
}
