// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxRejections is the number of invalid calls of one tool in a row that fail a run.
const maxRejections = 3

// checkCalls returns the problem of each call, "" for a valid call. It depends on the calls and on
// the hidden tools, so it is the same in each attempt. The error ends a run whose model does not learn from the problems.
func (l *llmAgent) checkCalls(calls []*model.Call) (problems []string, err error) {
	problems = make([]string, len(calls))
	for i, c := range calls {
		tool := l.findTool(c.Name)
		switch {
		case tool == nil:
			name := truncateText(c.Name, maxToolName)
			problems[i] = fmt.Sprintf("there is no tool %q; call one of the tools of the request%s", name, l.listSimilar(name))
			if l.findTool(bundle.SearchTools) != nil {
				problems[i] += ", or find one with " + bundle.SearchTools
			}
		case l.hidden[tool.Name]:
			problems[i] = fmt.Sprintf("the tool %q is not available now; call one of the tools of the request", tool.Name)
			tool = nil
		case c.Problem != "":
			problems[i] = c.Problem
		case tool.Schema != nil:
			if err := CheckArguments(tool.Schema, c.Args); err != nil {
				problems[i] = err.Error()
			}
		}
		if tool == nil {
			continue
		}
		if problems[i] == "" {
			delete(l.rejections, tool.Name)
			continue
		}
		l.rejections[tool.Name]++
		if l.rejections[tool.Name] >= maxRejections && err == nil {
			err = &failure{code: runerror.ToolArgumentsInvalid, message: fmt.Sprintf(
				"the model of agent %q called tool %q %d times in a row with invalid arguments, at last: %s", l.agent.Name, tool.Name, maxRejections, problems[i])}
		}
	}
	return problems, err
}

// maxSimilar is the number of tools in a message about an unknown tool.
const maxSimilar = 5

// listSimilar names the tools of the requests whose names are most like a name that no tool has.
func (l *llmAgent) listSimilar(name string) string {
	var names []string
	for _, t := range l.tools {
		if !l.hidden[t.Name] && !t.Discoverable && t.isNeeded == nil && t.Name != bundle.SearchTools && t.Name != bundle.UseTool {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(bundle.EditDistance(name, a), bundle.EditDistance(name, b)) })
	return ", such as " + strings.Join(names[:min(len(names), maxSimilar)], ", ")
}

// showRejected shows the calls with a problem to the features.
func (l *llmAgent) showRejected(ctx context.Context, calls []*model.Call, problems []string) {
	for _, f := range l.engine.features {
		for i, problem := range problems {
			if problem != "" && f.WatchRejected != nil {
				f.WatchRejected(ctx, l.Scope, calls[i], problem)
			}
		}
	}
}

// CompileArguments compiles the JSON Schema of a tool's arguments. A tool without parameters takes no
// arguments.
func CompileArguments(tool string, parameters map[string]any) (*jsonschema.Schema, error) {
	if parameters == nil {
		parameters = map[string]any{"type": "object", "additionalProperties": false}
	}
	schema, err := jsonschema.Compile(parameters)
	if err != nil {
		return nil, fmt.Errorf("the parameters of tool %q: %w", tool, err)
	}
	return schema, nil
}

// CheckArguments returns the error for the model if the arguments of a call do not fit the schema:
// some problems as "field: problem" in one line. Arguments are decoded by exactjson.
func CheckArguments(schema *jsonschema.Schema, args map[string]any) error {
	if args == nil {
		args = map[string]any{}
	}
	if err := checkJSON("arguments", args); err != nil {
		return err
	}
	problems := schema.Check(args)
	if len(problems) == 0 {
		return nil
	}
	return errors.New("the arguments do not fit: " + strings.Join(problems, "; "))
}
