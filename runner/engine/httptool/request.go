// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// Request is a request of a script.
type Request struct {
	Method, URL string
	Header      http.Header
	// Secrets are texts of headers that no response and no error may contain.
	Secrets []string
	Body    []byte
	// Key is the idempotency key of a write. HasOwnKey is true if the script chose it, which vouches for repetitions.
	Key       string
	HasOwnKey bool
	// Retries is how often a read, or a write that the service refused or that has its own key, is sent again.
	Retries int
	Timeout time.Duration
	// saves is true if the whole body of the response is read.
	saves bool
}

// Response is a response for a script.
type Response struct {
	Status  int
	Headers map[string]string
	// Body is the text of the body, JSON its value if it is JSON, else nil.
	Body string
	JSON any
	// Truncated is true if the body was longer than the text.
	Truncated bool
}

// Failure describes a response that is an error.
func (r Response) Failure() string {
	text := fmt.Sprintf("the service responded with the status %d", r.Status)
	if body := oneLine(r.Body, maxExcerpt); body != "" {
		text += ": " + body
	}
	return text
}

// Bounds of the pause before a repetition. The pause doubles, unless the service asks for another one.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// Send sends a request. Its error is one line for a script, without addresses and secrets.
func (c *Client) Send(ctx context.Context, r Request) (Response, error) {
	if c.transport == nil {
		return Response{}, errors.New("HTTP requests are not available here")
	}
	hidden := &redact.Secrets{}
	hidden.Add(r.Secrets...)
	got, err := c.sendScript(ctx, r, hidden)
	if err != nil {
		return Response{}, errors.New(oneLine(hidden.RedactText(err.Error()), maxError))
	}
	return got.forScript(hidden), nil
}

// forScript returns the response without secrets.
func (got *response) forScript(hidden *redact.Secrets) Response {
	got.redactSecrets(hidden)
	out := Response{Status: got.status, Headers: got.headers, Body: hidden.RedactText(got.text), Truncated: got.isCut}
	if _, isText := got.value.(string); !isText {
		out.JSON = got.value
	}
	out.Body = excerpt.Of(out.Body, MaxBody, "")
	return out
}

// sendScript sends a request and repeats it as the script allows.
func (c *Client) sendScript(ctx context.Context, r Request, hidden *redact.Secrets) (*response, error) {
	to, err := url.Parse(r.URL)
	if err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
		return nil, errors.New("the URL must be an http or https URL with a host")
	}
	if to.User != nil {
		return nil, errors.New("the URL must not contain a user; use the header Authorization")
	}
	engine.RecordServer(ctx, to, hidden)
	limited, cancel := context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		req := &request{method: r.Method, url: to, header: r.Header.Clone(), body: r.Body, isRead: isReadMethod(r.Method), saves: r.saves}
		if !req.isRead {
			req.key = r.Key
		}
		got, err := c.sendRequest(limited, req)
		if err != nil && errors.Is(context.Cause(limited), errTimeout) {
			return nil, req.timedOut(r.Timeout)
		}
		if r.Retries == 0 || !mayRepeat(r, req, got, err) {
			return got, err
		}
		r.Retries--
		if err := pause.For(limited, pauseOf(got, wait)); err != nil {
			return nil, errNotCompleted
		}
	}
}

// mayRepeat reports whether a request that failed may be sent again.
func mayRepeat(r Request, req *request, got *response, err error) bool {
	if err != nil {
		return req.isRead || r.HasOwnKey || !req.isSent
	}
	refused := got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable
	return refused || got.status >= http.StatusInternalServerError && (req.isRead || r.HasOwnKey)
}

// pauseOf returns the pause before a repetition: the one that the service asks for in seconds, or wait.
func pauseOf(got *response, wait time.Duration) time.Duration {
	if got == nil {
		return wait
	}
	seconds, err := strconv.Atoi(got.headers["retry-after"])
	if err != nil || seconds < 0 {
		return wait
	}
	return min(time.Duration(seconds)*time.Second, maxPause)
}

func isReadMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}
