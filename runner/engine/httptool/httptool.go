// SPDX-License-Identifier: Apache-2.0

// Package httptool executes the HTTP tools of a repository: files in tools/ and operations of OpenAPI
// documents. No value of a sensitive variable reaches a result, an error or a log.
package httptool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// Config configures a Client.
type Config struct {
	// Client sends the requests: a client of the egress guard for the purpose tool. nil is enough to
	// describe tools.
	Client *http.Client
	// Variables returns the environment's current variables; nil means none.
	Variables func() (runnerconfig.Variables, error)
	// Apps has the access tokens of OAuth apps; nil if mocks answer, or to describe tools.
	Apps *oauth.Apps
	// Mocked is true if mocks answer all requests. A missing or sensitive variable then has a stand-in.
	Mocked bool
}

// Client executes HTTP tools. It is safe for concurrent use.
type Client struct {
	cfg Config
	// transport sends requests. It knows no cookies, and send follows redirects. It is nil if the
	// client only describes tools.
	transport http.RoundTripper
}

// New returns a client.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg}
	if cfg.Client != nil {
		c.transport = cfg.Client.Transport
	}
	return c
}

// Feature returns the feature of HTTP tools.
func (c *Client) Feature() engine.Feature {
	return engine.Feature{
		Name: "HTTP tools", References: "folder.file.name of a file tools/folder/file.yaml, api:name.operationId of a file apis/name.yaml",
		NamedTools: func(p *bundle.Project, reference string) (tools []engine.Tool) {
			for _, t := range p.HTTPTools(reference) {
				tool := c.Tool(t)
				tool.Schema = compiledSchema(p, t)
				tools = append(tools, tool)
			}
			return tools
		},
	}
}

// schemaKey is the key of a compiled schema that is derived from a project.
type schemaKey string

// compiledSchema returns the schema of a tool's arguments.
func compiledSchema(p *bundle.Project, t *bundle.HTTPTool) *jsonschema.Schema {
	return p.Memo(schemaKey(t.Reference), func() any {
		schema, err := engine.CompileArguments(t.Name, t.Parameters)
		if err != nil {
			return (*jsonschema.Schema)(nil) // The build rejects such a tool.
		}
		return schema
	}).(*jsonschema.Schema)
}

// Tool returns a tool for models.
func (c *Client) Tool(t *bundle.HTTPTool) engine.Tool {
	return engine.Tool{
		Type: runtrace.TypeHTTP,
		Name: t.Name, Reference: t.Reference, Description: t.Description, Parameters: t.Parameters,
		Idempotent: t.Idempotent, Repeatable: t.Idempotent,
		Run: func(ctx context.Context, call *engine.Call) (map[string]any, error) {
			return c.runTool(ctx, t.ForAgent(call.Scope.Agent()), call.Arguments, call.IdempotencyKey())
		},
	}
}

// errTimeout is the cause of a request that took longer than the timeout of its tool.
var errTimeout = errors.New("the request timed out")

// runTool sends the request of a tool. key identifies the call in all attempts.
func (c *Client) runTool(ctx context.Context, t *bundle.HTTPTool, args map[string]any, key string) (map[string]any, error) {
	if c.transport == nil {
		return nil, errors.New("HTTP tools are not available here")
	}
	hidden := &redact.Secrets{}
	result, err := c.executeCall(ctx, t, args, key, hidden)
	if err != nil {
		text := oneLine(hidden.RedactText(err.Error()), maxError)
		if isTemporary(err) {
			return nil, &engine.ToolError{Code: engine.CodeToolUnavailable, Message: text}
		}
		return nil, errors.New(text)
	}
	return result, nil
}

func (c *Client) executeCall(ctx context.Context, t *bundle.HTTPTool, args map[string]any, key string, hidden *redact.Secrets) (map[string]any, error) {
	var variables runnerconfig.Variables
	if c.cfg.Variables != nil {
		var err error
		if variables, err = c.cfg.Variables(); err != nil {
			return nil, errors.New("the variables of the environment could not be read")
		}
	}
	r := &renderer{tool: t, args: withDefaults(args, t.Defaults), variables: variables, hidden: hidden, mocked: c.cfg.Mocked}
	req, err := r.buildRequest()
	if err != nil {
		return nil, err
	}
	if !t.IsRead() && req.header.Get("Idempotency-Key") == "" {
		req.key = key
	}
	limited, cancel := context.WithTimeoutCause(ctx, t.Timeout, errTimeout)
	defer cancel()
	tokens, err := c.tokensOf(t, variables)
	if err != nil {
		return nil, err
	}
	engine.RecordServer(ctx, req.url, hidden)
	response, err := c.sendAuthorized(limited, req, tokens, hidden)
	if err != nil {
		if errors.Is(context.Cause(limited), errTimeout) && !errors.As(err, new(*oauth.Error)) {
			err = req.timedOut(t.Timeout)
		}
		return nil, err
	}
	response.redactSecrets(hidden)
	return response.buildResult(limited, t)
}

// withDefaults returns the arguments with the defaults of missing ones.
func withDefaults(args, defaults map[string]any) map[string]any {
	out := make(map[string]any, len(args)+len(defaults))
	maps.Copy(out, defaults)
	for name, value := range args {
		if value != nil || defaults[name] == nil {
			out[name] = value
		}
	}
	return out
}

// timedOut is the error of a request without a response in time.
func (r *request) timedOut(limit time.Duration) error {
	return fmt.Errorf("%w within %s%s", errNoResponse, limit, r.unknownEffect())
}

// oneLine returns a text in one line of limited length.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	return excerpt.Of(text, most, excerpt.Ellipsis)
}
