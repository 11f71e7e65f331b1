// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Tools returns the tools of a server for an agent, with the descriptions and schemas of listed: the pinned tools, or the
// tools of Live.
func (c *Client) Tools(server Server, listed []bundle.LockedTool) ([]engine.Tool, error) {
	return c.toolsOf(server.Spec, Subject{Server: server.Spec.Name}, listed, func(*engine.Call) (Server, error) { return server, nil })
}

// toolsOf is Tools for a server whose values are resolved for each call.
func (c *Client) toolsOf(
	spec *bundle.MCPServer, subject Subject, listed []bundle.LockedTool, resolve func(*engine.Call) (Server, error),
) ([]engine.Tool, error) {
	selected := spec.Select(listed)
	out := make([]engine.Tool, 0, len(selected))
	for _, t := range selected {
		known, err := c.compileSchema(t)
		if err != nil {
			return nil, err
		}
		repeatable := t.IsReadOnly() || spec.VouchesFor(t.Name)
		out = append(out, engine.Tool{
			Type: runtrace.TypeMCP,
			Name: spec.ToolName(t.Name), Description: t.Description, Parameters: known.parameters, Schema: known.schema,
			Idempotent: repeatable, Repeatable: repeatable, MaxResult: spec.ResultLimit(), Discoverable: spec.Discoverable,
			Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
				server, err := resolve(call)
				if err != nil {
					return nil, err
				}
				if spec.IsPinned() {
					if names := c.watchDrift(server, subject, selected); names != nil && !names[t.Name] {
						return nil, &toolError{"this tool is no longer there"}
					}
				}
				result, err := c.Call(ctx, server, t.Name, call.Arguments, repeatable)
				if lost := (*LostError)(nil); errors.As(err, &lost) && ctx.Err() == nil {
					return nil, engine.NewFailure(runerror.MCPUnavailable, lost.Error(), lost.cause)
				}
				return result, err
			},
		})
	}
	return out, nil
}

// compiled is the schema of a tool.
type compiled struct {
	parameters map[string]any
	schema     *jsonschema.Schema
}

// compileSchema returns the schema of a tool, once for equal tools. The server checks arguments itself if the schema is of a kind
// that the platform cannot check.
func (c *Client) compileSchema(t bundle.LockedTool) (compiled, error) {
	if known, ok := c.schemas.Get(t.Digest); ok {
		return known, nil
	}
	var out compiled
	if err := exactjson.Decode(t.Schema, &out.parameters); err != nil {
		return out, fmt.Errorf("reading the schema of tool %q: %w", t.Name, err)
	}
	if schema, err := engine.CompileArguments(t.Name, out.parameters); err == nil {
		out.schema = schema
	}
	c.schemas.Put(t.Digest, out)
	return out, nil
}

// lostResult tells the model that the outcome of a call is unknown.
func lostResult(lost *LostError) map[string]any {
	return map[string]any{
		"error": "outcome_unknown",
		"message": "The call was sent, but its answer was lost: " + failureReason(lost.cause) +
			". It may have taken effect. Look whether it did before you call the tool again.",
	}
}

// Call calls a tool. A call that may have had its effect is sent again only if it is repeatable. The error is the tool's own
// or says why the call was not executed, in one line without addresses and secrets. If the answer is lost, the result says so,
// or the error is a *LostError: as the repository says, and if the caller has cancelled a repeatable call.
func (c *Client) Call(ctx context.Context, server Server, tool string, args map[string]any, repeatable bool) (map[string]any, error) {
	p := c.acquirePeer(server)
	defer c.releasePeer(p)
	ctx = recordTokens(ctx, p.tokens)
	if to, err := url.Parse(server.URL); err == nil {
		engine.RecordServer(ctx, to, server.hidden(ctx, p.tokens))
	}
	engine.RecordMCPCall(ctx, runtrace.NewMCPCall(tool, "", ""))
	raw, err := c.sendCall(ctx, server, tool, args, repeatable)
	hidden := server.hidden(ctx, p.tokens)
	var lost *LostError
	switch {
	case err == nil:
		return readResult(raw, hidden)
	case errors.As(err, &lost) && (server.Spec.OnLostAnswer == bundle.MCPFail || repeatable && ctx.Err() != nil):
		return nil, lost
	case errors.As(err, &lost):
		return lostResult(lost), nil
	}
	return nil, describeError(server, hidden, err)
}
