// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// LostError means that a call was sent and its answer is lost. The call may have had its effect.
type LostError struct {
	server string
	cause  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the call was sent to the MCP server %q and its answer is lost: %s", e.server, failureReason(e.cause))
}

// Unwrap returns the cause, which can contain addresses.
func (e *LostError) Unwrap() error { return e.cause }

// toolError is an error of the server or of the tool, which the model sees.
type toolError struct{ message string }

func (e *toolError) Error() string { return e.message }

// sendCall calls a tool and returns the exact text of its result. It sends the call again only if no byte of it left, or if it
// is repeatable. Errors: *LostError, *toolError, or the reason why the call was not executed.
func (c *Client) sendCall(ctx context.Context, server Server, tool string, args map[string]any, repeatable bool) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, server.Spec.CallTimeout())
	defer cancel()
	renewed, listed, delay := false, false, repeatDelay
	for repeats := 0; ; repeats++ {
		x := &exchange{method: methodCall, repeatable: repeatable, progress: newProgress(c.cfg.Now)}
		s, err := c.readySession(ctx, server, repeatable)
		if err == nil {
			_, err = s.sdk.CallTool(withExchange(ctx, x), callParams(ctx, tool, args, x.progress.token))
			call := runtrace.NewMCPCall(tool, s.sdk.InitializeResult().ProtocolVersion, s.sdk.ID())
			x.progress.copyReports(&call, server.hidden(ctx, s.peer.tokens))
			engine.RecordMCPCall(ctx, call)
			err = s.describeWait(err, x)
			c.settleCall(s, x, err)
		}
		switch {
		case err == nil && x.result != nil:
			return x.result, nil
		case err == nil:
			err = errOtherAnswer
		}
		switch verdict := judgeError(err, x); {
		case verdict == forgotten && !renewed, verdict == notFound && repeatable && !renewed:
			renewed = true
			repeats--
			continue
		case verdict == answered && isHeaderMismatch(err) && !listed:
			// The server wants arguments as headers. The SDK knows which ones once it has listed the tools.
			listed = true
			repeats--
			_, _ = c.listTools(ctx, server)
			continue
		case verdict == answered, verdict == rejected, verdict == forgotten:
			return nil, err
		case x.tooLarge.Load():
			return nil, &LostError{server: server.Spec.Name, cause: egress.ErrTooLarge}
		case x.sent.Load() && (!repeatable || repeats >= maxRepeats || ctx.Err() != nil):
			return nil, &LostError{server: server.Spec.Name, cause: err}
		case repeats >= maxRepeats || ctx.Err() != nil:
			return nil, err
		}
		if err := c.cfg.Sleep(ctx, delay); err != nil {
			return nil, err
		}
		delay *= 2
	}
}

// callParams returns the parameters of a call. They ask for reports of progress, and name the current action of the run as the
// cause of the call.
func callParams(ctx context.Context, tool string, args map[string]any, progressToken string) *mcp.CallToolParams {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	params.SetProgressToken(progressToken)
	if text := tracecontext.CurrentTraceparent(ctx); text != "" {
		params.Meta[tracecontext.Field] = text
	}
	return params
}

// readySession returns a session for a call. A session that may be forgotten is checked before a call that cannot be repeated.
func (c *Client) readySession(ctx context.Context, server Server, repeatable bool) (*session, error) {
	s, err := c.acquireSession(ctx, server)
	if err != nil || repeatable || !c.needsPing(s) {
		return s, err
	}
	checking, cancel := context.WithTimeout(ctx, server.Spec.ConnectLimit())
	defer cancel()
	var failed *statusError
	if err := s.sdk.Ping(checking, nil); err == nil || !errors.As(err, &failed) && ownError(err) != nil {
		return s, nil
	}
	c.dropSession(s)
	c.releaseSession(s)
	return c.acquireSession(ctx, server)
}

// ownError returns the error that a server answered, nil for errors of the transport and of the SDK.
func ownError(err error) *jsonrpc.Error {
	var failed *statusError
	var own *jsonrpc.Error
	switch {
	case errors.As(err, &failed):
		return failed.rpc
	case errors.As(err, &own) && own.Code != codeClosing && own.Code != codeRejected:
		return own
	}
	return nil
}

// isHeaderMismatch reports whether a server rejected a request because of its headers, before it executed anything.
func isHeaderMismatch(err error) bool {
	own := ownError(err)
	return own != nil && own.Code == mcp.CodeHeaderMismatch
}

// Codes of errors that the SDK makes itself.
const (
	codeClosing  = -32004
	codeRejected = -32005
)

// settleCall ends the use of a session by a call, and drops the session if the server does not know it or it is broken.
func (c *Client) settleCall(s *session, x *exchange, err error) {
	switch verdict := judgeError(err, x); {
	case verdict == forgotten, verdict == notFound, errors.Is(err, mcp.ErrConnectionClosed):
		c.dropSession(s)
	case verdict == unclear && err != nil:
		c.doubtSession(s)
	}
	c.releaseSession(s)
}

// verdict is the meaning of the error of a call.
type verdict int

const (
	// unclear: the request was not sent, or its answer is lost. exchange.sent tells them apart.
	unclear verdict = iota
	// answered: the server's own answer to the call is an error.
	answered
	// rejected: the request was answered before the server executed anything.
	rejected
	// forgotten: the server itself says that it does not know the session.
	forgotten
	// notFound: an HTTP status 404 without the server's own error. Proxies send it also after the server has begun.
	notFound
)

// judgeError returns the meaning of the error of a call.
func judgeError(err error, x *exchange) verdict {
	var failed *statusError
	switch {
	case x.answered.Load():
		return answered
	case errors.As(err, new(*oauth.Error)):
		return rejected // Nothing was sent, or the server rejected the old token.
	case !errors.As(err, &failed), failed.code == http.StatusRequestTimeout:
		return unclear
	case failed.rpc != nil && failed.code == http.StatusNotFound, failed.rpc != nil && !failed.ofCall && failed.code == http.StatusBadRequest:
		return forgotten
	case failed.rpc != nil:
		return answered
	case failed.code == http.StatusNotFound:
		return notFound
	case failed.code >= 300 && failed.code < 500:
		return rejected
	}
	return unclear
}
