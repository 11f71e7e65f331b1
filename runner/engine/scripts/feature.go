// SPDX-License-Identifier: Apache-2.0

// Package scripts is the feature of scripts: tools, middleware, hooks and steps, which are functions of Starlark files in
// tools/, middleware/, hooks/ and steps/. Each call runs in a child process (runner/script). What a script does outside of its process is an
// effect of the engine, which journals it.
package scripts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
	"github.com/agentplatform/agentplatform/runner/script"
)

// Config configures the feature. The zero value is enough to check repositories.
type Config struct {
	// Pool executes scripts.
	Pool *script.Pool
	// HTTP sends requests of scripts.
	HTTP *httptool.Client
	// Variables returns the environment's current variables; nil means none.
	Variables func() (runnerconfig.Variables, error)
	// Mocked is true in tests of agents. A missing or sensitive variable then has a stand-in.
	Mocked bool
}

// Offers reports whether scripts of an owner may use a built-in.
func Offers(owner bundle.ScriptOwner, name string) bool {
	b := bundle.FindBuiltin(name)
	return b != nil && b.IsFor(owner)
}

// New returns the feature.
func New(cfg Config) engine.Feature {
	f := &feature{cfg: cfg}
	return engine.Feature{
		Name: "scripts", References: "folder.file.function of a file tools/folder/file.star",
		Check:     func(p *bundle.Project) bundle.Problems { return p.RejectBuiltins(Offers) },
		WrapAgent: f.wrapAgent, WrapCall: f.wrapCall, RunStep: f.runStep,
		NamedTools: func(p *bundle.Project, reference string) (named []engine.Tool) {
			for _, t := range p.ScriptTools(reference) {
				named = append(named, f.newTool(t))
			}
			return named
		},
	}
}

type feature struct{ cfg Config }

// sources is the key of a value that is derived from a project.
type sources struct{}

// scriptDigest identifies the scripts of a project.
func scriptDigest(p *bundle.Project) string {
	return p.Memo(sources{}, func() any {
		hash, files := sha256.New(), p.ScriptFiles()
		for _, file := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(hash, "%q %q\n", file, files[file])
		}
		return hex.EncodeToString(hash.Sum(nil))
	}).(string)
}

// newTool returns a function of a script as a tool. An interrupted call begins again: its effects are replayed, and only an
// effect that is itself interrupted fails the run.
func (f *feature) newTool(t *bundle.ScriptTool) engine.Tool {
	return engine.Tool{
		Name: t.Name(), Reference: t.Reference, Description: t.Description, Parameters: t.Parameters, Schema: t.Schema,
		Idempotent: true, Repeatable: t.Idempotent,
		Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
			return f.execute(ctx, t, call)
		},
	}
}

// execute executes one call.
func (f *feature) execute(ctx context.Context, t *bundle.ScriptTool, call *engine.Call) (map[string]any, error) {
	out, err := f.invoke(ctx, invocation{
		scope: call.Scope, owner: bundle.OwnerTool, file: t.File, function: t.Function, id: call.ID, args: call.Arguments,
		takesContext: t.TakesContext, began: call.Began, effects: call.Effects(), idempotent: t.Idempotent,
	})
	call.CountDroppedLines(out.moreLog)
	for _, line := range out.log {
		call.Log(line)
	}
	switch {
	case err != nil:
		return nil, err
	case out.failed != nil:
		return nil, &engine.ToolError{Code: string(out.failed.Code), Message: out.failed.Message}
	}
	call.ChangeContext(out.changes)
	if out.stop != nil {
		return nil, out.stop
	}
	return resultOf(out.value)
}

// resultOf returns the value of a script as a tool's result: an object, or an object with the value.
func resultOf(value json.RawMessage) (map[string]any, error) {
	var decoded any
	if err := exactjson.Decode(value, &decoded); err != nil {
		return nil, fmt.Errorf("reading the result of a script: %w", err)
	}
	if object, ok := decoded.(map[string]any); ok {
		return object, nil
	}
	return map[string]any{"result": decoded}, nil
}
