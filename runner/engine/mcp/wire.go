// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// maxErrorBody limits the body of an HTTP error that is read, in bytes.
const maxErrorBody = 64 << 10

// Methods of the protocol that the wire treats specially.
const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// exchange records a request and its answer. It is part of the request's context.
type exchange struct {
	// method is the method of the request; "" records all requests of the context.
	method string
	// repeatable is true if the request may be sent again although it may have reached the server.
	repeatable bool
	// sent is true once a byte of the request may have left. http2 is true if it is sent over HTTP/2.
	sent, http2 atomic.Bool
	// answered is true if the server answered the request, with a result or an error. tooLarge is true if the answer exceeds
	// a limit.
	answered, tooLarge atomic.Bool
	// needsToken is true while the request waits for a token, and after it got none.
	needsToken atomic.Bool
	// progress collects the progress of a call; nil for other requests.
	progress *progress
	// result is the exact text of the result. It is valid after the SDK has returned without an error.
	result json.RawMessage
}

type exchangeKey struct{}

// withExchange returns a context whose request of this method is recorded.
func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// statusError is an HTTP response that is no success.
type statusError struct {
	code int
	// rpc is the server's own error in the body, or nil.
	rpc *jsonrpc.Error
	// ofCall is true if rpc has the ID of a request. Otherwise the server rejected the request before it read it.
	ofCall bool
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the server answered with HTTP status %d", e.code)
}

// Unwrap returns the server's own error for the SDK.
func (e *statusError) Unwrap() error {
	if e.rpc == nil {
		return nil
	}
	return e.rpc
}

var (
	errNoAnswer     = errors.New("the answer is neither JSON nor an event stream")
	errOtherAnswer  = errors.New("the answer is not the answer of this request")
	errEventTooLong = errors.New("an event is larger than the limit, or there are too many")
	errRepeat       = errors.New("the request may have reached the server and is not sent again")
)

// wire is the HTTP transport of a session. It adds headers and tokens, records exchanges, and reads answers.
type wire struct {
	next   http.RoundTripper
	server Server
	tokens *oauth.Source // nil without credentials
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	head, err := readHead(req)
	if err != nil {
		return nil, err
	}
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil || x.method != "" && x.method != head.Method {
		x = &exchange{method: head.Method, repeatable: true}
	}
	resp, err := w.sendAuthorized(req, x)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, readStatus(resp)
	}
	if len(head.ID) == 0 || head.Method == "" {
		return resp, nil // A notification, or an answer to the server.
	}
	return readAnswer(resp, head, x)
}

// head is the part of a message that tells messages apart.
type head struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// readHead reads a request's method and ID from its body.
func readHead(req *http.Request) (h head, err error) {
	if req.GetBody == nil || req.Body == nil || req.Body == http.NoBody {
		return h, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return h, fmt.Errorf("reading the request: %w", err)
	}
	text, err := io.ReadAll(body) // the client made it
	if err == nil {
		err = exactjson.Decode(text, &h)
	}
	if err != nil {
		return h, fmt.Errorf("reading the request: %w", err)
	}
	return h, nil
}

// sendAuthorized sends a request with the server's headers. If the server rejects the token, it sends the request once more with
// a new one: a server that rejects a token has not executed the request.
func (w *wire) sendAuthorized(req *http.Request, x *exchange) (*http.Response, error) {
	if w.tokens == nil {
		return w.sendOnce(req, x, "")
	}
	x.needsToken.Store(true)
	token, err := w.tokens.Token(req.Context())
	if err != nil {
		return nil, err
	}
	x.needsToken.Store(false)
	resp, err := w.sendOnce(req, x, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	challenge := resp.Header.Values("WWW-Authenticate")
	_ = resp.Body.Close()
	x.sent.Store(false)
	x.needsToken.Store(true)
	if token, err = w.tokens.Replace(req.Context(), token, challenge); err != nil {
		return nil, err
	}
	x.needsToken.Store(false)
	return w.sendOnce(req, x, token)
}

// sendOnce sends a request once.
func (w *wire) sendOnce(req *http.Request, x *exchange, token string) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if conn, ok := info.Conn.(*tls.Conn); ok && conn.ConnectionState().NegotiatedProtocol == "h2" {
			x.http2.Store(true)
		}
		x.sent.Store(true)
	}}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	maps.Copy(out.Header, w.server.headers)
	// Other requests of a session serve several runs.
	if text := tracecontext.CurrentTraceparent(req.Context()); text != "" && x.method == methodCall {
		out.Header.Set(tracecontext.Header, text)
	}
	if token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
		tokensOf(req.Context()).add(token)
	}
	if body := req.GetBody; body != nil {
		var err error
		if out.Body, err = body(); err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		// The transport asks for the body again to repeat a request. Over HTTP/1 it does so only if it wrote nothing.
		out.GetBody = func() (io.ReadCloser, error) {
			if x.http2.Load() && !x.repeatable {
				return nil, errRepeat
			}
			return body()
		}
	}
	return w.next.RoundTrip(out)
}

// readStatus returns the error of a response that is no success.
func readStatus(resp *http.Response) error {
	failed := &statusError{code: resp.StatusCode}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return failed
	}
	var message struct {
		ID    json.RawMessage `json:"id"`
		Error *jsonrpc.Error  `json:"error"`
	}
	if exactjson.Decode(body, &message) == nil {
		failed.rpc = message.Error
		failed.ofCall = len(message.ID) > 0 && string(message.ID) != "null"
	}
	return failed
}

// readAnswer checks the answer of a request and records its result.
func readAnswer(resp *http.Response, asked head, x *exchange) (*http.Response, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	switch kind {
	case "text/event-stream":
		resp.Body = &events{body: resp.Body, asked: asked, exchange: x}
		resp.ContentLength = -1
		return resp, nil
	case "application/json":
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			x.tooLarge.Store(errors.Is(err, egress.ErrTooLarge))
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		message, isAnswer, err := takeMessage(text, asked, x)
		switch {
		case err != nil:
			return nil, err
		case !isAnswer:
			return nil, errOtherAnswer
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(message)), int64(len(message))
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, errNoAnswer
}

// emptyResult replaces the result of a call for the SDK, which would change its numbers.
const emptyResult = `{"content":[]}`

// takeMessage checks a message of a server and returns the message for the SDK: the answer of the request, or a request of
// the server. It returns nil for other messages. It records the result of the answer.
func takeMessage(text []byte, asked head, x *exchange) (message []byte, isAnswer bool, err error) {
	var m struct {
		head
		Result json.RawMessage `json:"result"`
	}
	if err := exactjson.Decode(text, &m); err != nil {
		return nil, false, fmt.Errorf("reading the answer: %w", err)
	}
	hasID := len(m.ID) > 0 && string(m.ID) != "null"
	if m.Method == "" && !bytes.Equal(m.ID, asked.ID) || m.Method != "" && !hasID {
		return nil, false, nil
	}
	decoded, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		return nil, false, fmt.Errorf("reading the answer: %w", err)
	}
	if answer, ok := decoded.(*jsonrpc.Response); ok {
		isAnswer = true
		if answer.Error == nil {
			x.result = m.Result
		}
		x.answered.Store(true)
		if answer.Error == nil && x.method == methodCall {
			return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, emptyResult), true, nil
		}
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, false, fmt.Errorf("reading the answer: %w", err)
	}
	return line.Bytes(), isAnswer, nil
}
