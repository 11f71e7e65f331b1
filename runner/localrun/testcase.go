// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// maxExpression limits the text in an expected result, in bytes. The whole expression has at most 1 KiB.
const maxExpression = 800

// ErrSecret means that a case was not written because it would contain a secret.
var ErrSecret = errors.New("the case would contain a secret")

// TestCase returns the run as a suite with one case, whose mocks answer as models and services did. notes say what the case
// cannot express. files are the paths of the attachments below tests/.
func (r *Result) TestCase(name string, files []string) (text []byte, notes []string, err error) {
	c := &caseWriter{Result: r, observer: r.observed}
	var payload any
	if err := exactjson.Decode(r.opts.Payload, &payload); err != nil {
		return nil, nil, fmt.Errorf("reading the input: %w", err)
	}
	own := object{{"name", name}}
	if len(files) == 0 || string(r.opts.Payload) != "{}" {
		own = append(own, field{"payload", payload})
	}
	if len(files) > 0 {
		own = append(own, field{"files", files})
	}
	if len(r.opts.Headers) > 0 {
		own = append(own, field{"context", object{{"headers", r.opts.Headers}}})
	}
	if mocks := c.collectMocks(); len(mocks) > 0 {
		own = append(own, field{"mocks", mocks})
	}
	own = append(own, field{"expected_result", c.expectedResult()})
	if calls := c.expectedCalls(); len(calls) > 0 {
		own = append(own, field{"expected_tool_calls", calls})
	}
	text, err = encodeYAML(object{{"agent", r.opts.Agent}, {"cases", []any{own}}}, r.observed.mask)
	if err == nil && r.observed.mask.hasSecret(string(text)) {
		err = ErrSecret
	}
	return text, c.notes, err
}

// caseWriter converts a run to a case.
type caseWriter struct {
	*Result
	observer *observer
	notes    []string
}

func (c *caseWriter) addNote(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(c.notes, note) {
		c.notes = append(c.notes, note)
	}
}

// collectMocks returns the mocks of models, tools, HTTP requests and MCP servers.
func (c *caseWriter) collectMocks() (out object) {
	tools, servers := c.toolMocks()
	if m := c.modelMocks(); len(m) > 0 {
		out = append(out, field{"models", m})
	}
	if len(tools) > 0 {
		out = append(out, field{"tools", tools})
	}
	if m := c.httpMocks(); len(m) > 0 {
		out = append(out, field{"http", m})
	}
	if len(servers) > 0 {
		out = append(out, field{"mcp", servers})
	}
	return out
}

// toolMocks returns the mocks of built-in tools, whose results depend on the time, and of tools of MCP servers.
func (c *caseWriter) toolMocks() (tools map[string]any, servers []any) {
	tools = map[string]any{}
	builtin := engine.Builtin(nil)
	for _, one := range c.observer.results {
		answer := field{"result", one.result.Value}
		if one.result.Error != "" {
			answer = field{"error", one.result.Error}
		} else if one.result.Value == nil {
			answer.value = map[string]any{}
		}
		isBuiltin := slices.ContainsFunc(builtin, func(t engine.Tool) bool { return t.Name == one.tool.Name })
		switch {
		case one.tool.Reference != "":
		case isBuiltin && tools[one.tool.Name] == nil:
			tools[one.tool.Name] = object{answer}
		case isBuiltin && !equalJSON(tools[one.tool.Name], object{answer}):
			c.addNote("the tool %s had several results; its mock has the first", one.tool.Name)
		case isBuiltin:
		default:
			if server, tool, found := c.findServer(one); found {
				servers = c.addServerMock(servers, server, tool, one.arguments, answer)
			}
		}
	}
	return tools, servers
}

// addServerMock adds a mock of a tool of a server, unless an equal call has one.
func (c *caseWriter) addServerMock(servers []any, server, tool string, arguments map[string]any, answer field) []any {
	call := object{{"server", server}, {"tool", tool}}
	if len(arguments) > 0 {
		call = append(call, field{"arguments", arguments})
	}
	for _, known := range servers {
		before := known.(object)
		switch {
		case !equalJSON(before[:len(before)-1], call):
		case equalJSON(before, append(slices.Clone(call), answer)):
			return servers
		default:
			c.addNote("equal calls of the tool %s of the MCP server %s had several results; the mock has the first", tool, server)
			return servers
		}
	}
	return append(servers, append(call, answer))
}

// findServer returns the MCP server of a tool and the tool's name there.
func (c *caseWriter) findServer(one toolResult) (server, tool string, found bool) {
	for i := range one.agent.MCPServers {
		spec := &one.agent.MCPServers[i]
		locked, _ := c.opts.Project.Lock.Server(spec.Name)
		for _, t := range spec.Select(locked.Tools) {
			if spec.ToolName(t.Name) == one.tool.Name {
				return spec.Name, t.Name, true
			}
		}
	}
	for i := range one.agent.MCPServers {
		spec := &one.agent.MCPServers[i]
		if !spec.IsPinned() && spec.MayHaveTool(one.tool.Name) {
			return spec.Name, strings.TrimPrefix(one.tool.Name, spec.Prefix), true
		}
	}
	return "", "", false
}

// expectedResult returns the condition that the run fulfilled.
func (c *caseWriter) expectedResult() string {
	mask := c.observer.mask
	if c.Status != engine.Completed {
		condition := fmt.Sprintf("status == %s", quoteText(string(engine.Failed)))
		if message := mask.redactText(c.Error); message != "" && len(message) <= maxExpression && !strings.HasPrefix(string(c.ErrorCode), runerror.ModelPrefix) {
			condition += " && error == " + quoteText(message)
		}
		return condition
	}
	output := mask.redactText(c.Output)
	if len(quoteText(output)) <= maxExpression {
		return "output == " + quoteText(output)
	}
	begin := output
	for len(quoteText(begin)) > maxExpression {
		_, size := utf8.DecodeLastRuneInString(begin)
		begin = begin[:max(0, len(begin)-max(size, (len(begin)-maxExpression)/2))]
	}
	return "output.startsWith(" + quoteText(strings.ToValidUTF8(begin, "")) + ")"
}

// quoteText returns a text as a literal of CEL.
func quoteText(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(text) != nil {
		return `""` // Impossible: the value is a text.
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// expectedCalls returns the calls of tools, each with the number of calls that it fits.
func (c *caseWriter) expectedCalls() (calls []any) {
	names := c.toolReferences()
	var seen []any
	for _, made := range c.Calls {
		key := []any{made.Tool, made.Arguments}
		if slices.ContainsFunc(seen, func(known any) bool { return equalJSON(known, key) }) {
			continue
		}
		seen = append(seen, key)
		times := 0
		for _, other := range c.Calls {
			if other.Tool == made.Tool && suite.Contains(other.Arguments, made.Arguments) {
				times++
			}
		}
		call := object{{"tool", made.Tool}}
		if reference := names[made.Tool]; reference != "" {
			call[0].value = reference
		}
		if len(made.Arguments) > 0 && !c.observer.mask.hasSecret(encoded(made.Arguments)) {
			call = append(call, field{"arguments", made.Arguments})
		}
		calls = append(calls, append(call, field{"times", times}))
	}
	return calls
}

// toolReferences returns the references of the tools of the agent and of the agents that it runs, by their names for models.
func (c *caseWriter) toolReferences() map[string]string {
	names := map[string]string{}
	p := c.opts.Project
	for _, a := range p.Steps(c.opts.Agent) {
		references := a.StepTools()
		for _, t := range slices.Concat(a.Tools, a.DiscoverableTools) {
			references = append(references, t.Reference)
		}
		if a.ToolName != "" {
			references = append(references, a.ToolName)
		}
		for _, reference := range references {
			for _, t := range p.HTTPTools(reference) {
				names[t.Name] = t.Reference
			}
			for _, t := range p.ScriptTools(reference) {
				names[bundle.ModelToolName(t.Reference)] = t.Reference
			}
		}
	}
	return names
}

func encoded(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// equalJSON reports whether two values are the same JSON.
func equalJSON(a, b any) bool { return encoded(a) == encoded(b) }
