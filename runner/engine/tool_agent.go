// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/model"
)

// payloadParameter is the parameter that gets the whole input of a tool agent if the tool has no other parameter.
const payloadParameter = "payload"

// toolAgent calls one tool without a model.
type toolAgent struct {
	*Scope
	// tool is set when the agent runs.
	tool Tool
	call CallFunc
	talk *conversation
}

// buildToolAgent returns the function that runs an agent of type tool.
func (s *Scope) buildToolAgent(talk *conversation) (AgentFunc, error) {
	if named := s.engine.namedTools(s.in.Project, s.agent.ToolName); len(named) != 1 && len(s.agent.MCPServers) == 0 {
		return nil, s.missingToolError()
	}
	return (&toolAgent{Scope: s, call: s.engine.callFunc(), talk: talk}).run, nil
}

// setTool finds the tool of the agent, with a mock in its place in tests of agents.
func (t *toolAgent) setTool(ctx context.Context) (err error) {
	if t.tool, err = t.ownTool(ctx); err != nil {
		return err
	}
	if replace := t.engine.cfg.ReplaceTool; replace != nil {
		t.tool = replace(t.tool)
	}
	return nil
}

// ownTool returns the tool that the agent names: one of the repository, or else one that a feature offers to the agent when it
// begins, such as a tool of an MCP server.
func (s *Scope) ownTool(ctx context.Context) (Tool, error) {
	if named := s.engine.namedTools(s.in.Project, s.agent.ToolName); len(named) == 1 {
		return named[0], nil
	}
	for _, f := range s.engine.features {
		if f.OfferedTools == nil {
			continue
		}
		offered, err := f.OfferedTools(ctx, s)
		if err != nil {
			return Tool{}, err
		}
		at := slices.IndexFunc(offered, func(t Tool) bool { return t.Name == s.agent.ToolName && !t.sends })
		if at >= 0 {
			return offered[at], nil
		}
	}
	return Tool{}, s.missingToolError()
}

func (s *Scope) missingToolError() error {
	return &failure{code: runerror.ToolFailed, message: fmt.Sprintf("tool %q of agent %q is not available; correct tool_name, or check its MCP server",
		s.agent.ToolName, s.agent.Name)}
}

// run implements AgentFunc. It repeats a call that failed as far as retry_options and the tool allow.
func (t *toolAgent) run(ctx context.Context, in Message) (Message, error) {
	if err := t.setTool(ctx); err != nil {
		return Message{}, err
	}
	t.talk.addMessage("", in.Author, in.Content)
	args, err := t.arguments(in.Content.Text())
	if err != nil {
		return Message{}, err
	}
	for number := 1; ; number++ {
		if err := t.stage.countCalls(1); err != nil {
			return Message{}, err
		}
		got, err := t.call(ctx, &Call{Scope: t.Scope, ID: t.callID(number), RepetitionOf: t.callID(1), Tool: &t.tool, Arguments: args})
		switch {
		case err != nil:
			return Message{}, err
		case got.Error == "":
			return t.jsonAnswer(got)
		case number >= t.agent.Retry.Attempts || !t.tool.Repeatable || !mayBeTemporary(got.Code):
			return Message{}, &failure{code: runerror.ToolFailed, message: fmt.Sprintf("agent %q: tool %q failed: %s", t.agent.Name, t.tool.Name, got.Error)}
		}
		if err := t.pauseBefore(ctx, number+1); err != nil {
			return Message{}, err
		}
	}
}

// callID returns the ID of a call, counted from 1.
func (t *toolAgent) callID(number int) string {
	if number == 1 {
		return stepCalls + t.path
	}
	return stepCalls + t.path + ":" + strconv.Itoa(number)
}

// mayBeTemporary reports whether the same call may succeed after an error with a code.
func mayBeTemporary(code string) bool {
	return code == CodeToolUnavailable || code == string(runerror.ScriptError)
}

// pauseBefore waits before a call is repeated, unless an earlier attempt of the run has waited. A stop of the attempt ends the
// pause.
func (t *toolAgent) pauseBefore(ctx context.Context, number int) error {
	if t.journal.hasBegun(t.callID(number)) {
		return nil
	}
	limited, cancel := t.limitTime(ctx)
	defer cancel()
	waiting, end := context.WithCancel(limited)
	defer end()
	go func() {
		select {
		case <-t.in.Stop:
			end()
		case <-waiting.Done():
		}
	}()
	sleep := t.engine.cfg.Sleep
	if sleep == nil {
		sleep = pause.For
	}
	policy := model.Policy{InitialDelay: t.agent.Retry.InitialDelay.Std(), MaxDelay: t.agent.Retry.MaxDelay.Std()}
	err := sleep(waiting, policy.Delay(number-1, 0))
	if late := timedOut(limited); late != nil {
		return late
	}
	return cmp.Or(t.mayGoOn(ctx), err)
}

// arguments returns the arguments in the input. A tool whose only parameter is payload gets the whole input, unless the input
// has this form already.
func (t *toolAgent) arguments(text string) (map[string]any, error) {
	var value any = text
	if strings.TrimSpace(text) == "" {
		value = map[string]any{}
	} else if exactjson.Decode([]byte(text), &value) != nil {
		value = text
	}
	args, isObject := value.(map[string]any)
	properties, _ := t.tool.Parameters["properties"].(map[string]any)
	_, takesPayload := properties[payloadParameter]
	_, hasPayload := args[payloadParameter]
	switch {
	case takesPayload && len(properties) == 1 && !(hasPayload && len(args) == 1):
		args = map[string]any{payloadParameter: value}
	case !isObject:
		return nil, t.misfit("the input must be a JSON object with the arguments")
	case len(t.in.Files) > 0 || t.in.Omitted > 0:
		for _, key := range []string{"files", "file_issues"} { // the platform added them to the input
			if properties[key] == nil {
				delete(args, key)
			}
		}
	}
	if t.tool.Schema == nil {
		return args, nil
	}
	if err := CheckArguments(t.tool.Schema, args); err != nil {
		return nil, t.misfit(err.Error())
	}
	return args, nil
}

func (t *toolAgent) misfit(problem string) error {
	return &failure{code: runerror.ToolArgumentsInvalid, message: fmt.Sprintf("agent %q with tool %q: %s", t.agent.Name, t.tool.Name, problem)}
}

// checkToolName returns the problems of the tool that an agent of type tool names: a tool that neither the repository nor an
// MCP server of the agent may have, and servers that the agent never calls.
func (e *Engine) checkToolName(p *bundle.Project, a *bundle.Agent) (problems bundle.Problems) {
	isOfServer := func(s bundle.MCPServer) bool { return s.MayHaveTool(a.ToolName) }
	isNamed := len(e.namedTools(p, a.ToolName)) > 0
	if !isNamed && !slices.ContainsFunc(a.MCPServers, isOfServer) {
		return e.checkReference(p, a.At("tool_name"), a.ToolName)
	}
	for i, s := range a.MCPServers {
		at := a.AtServer(i)
		if at.File != a.At("name").File || !isNamed && isOfServer(s) { // defaults, which have no name, are for other agents, too
			continue
		}
		problems = append(problems, bundle.Problem{Position: at, Message: fmt.Sprintf(
			"the server %q has no effect, because tool_name %q is not one of its tools; remove the server, or correct tool_name", s.Name, a.ToolName)})
	}
	return problems
}
