// SPDX-License-Identifier: Apache-2.0

package restclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// maxResponse is the size limit of a response in bytes.
	maxResponse = 8 << 20
	// attemptTimeout bounds an attempt, uploadTimeout one whose body is not JSON.
	attemptTimeout, uploadTimeout = 45 * time.Second, 10 * time.Minute

	// MaxAttempts is how often a request is sent if the server is unavailable.
	MaxAttempts = 20
	// MinPause and MaxPause bound the pause between two attempts. A server sets it with Retry-After.
	MinPause, MaxPause = time.Second, time.Minute
)

// errBrokenOff is the error of a stream that breaks off again and again.
var errBrokenOff = errors.New("the stream broke off")

// sender sends the requests of the generated client.
type sender struct{ api *API }

// Do implements HttpRequestDoer. It authenticates a request and sends it until the server responds to it; an error is a
// ProblemError, or the last attempt got no response. A change has the same idempotency key in all attempts.
func (s sender) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+s.api.key)
	if request.Method != http.MethodGet && request.Header.Get("Idempotency-Key") == "" {
		request.Header.Set("Idempotency-Key", rand.Text())
	}
	ctx := request.Context()
	for attempt := 1; ; attempt++ {
		response, err := s.api.attempt(request)
		if err == nil {
			return response, nil
		}
		if request.Body != nil && request.GetBody == nil { // The body is used up.
			return nil, err
		}
		if err := s.api.waitToRetry(ctx, err, attempt); err != nil {
			return nil, err
		}
	}
}

// waitToRetry waits until a request may be sent again after an error, which is nil for a stream that broke off. It returns the
// error if no further attempt is due.
func (a *API) waitToRetry(ctx context.Context, err error, attempt int) error {
	var problem *ProblemError
	responded := errors.As(err, &problem)
	if responded && !problem.isRetriable() || attempt == MaxAttempts || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err(), errBrokenOff)
	}
	after := MinPause
	if responded {
		after = min(max(problem.RetryAfter, MinPause), MaxPause)
	}
	return a.Wait(ctx, after)
}

// attempt sends a request once and reads the whole response. A response that is no success is an error.
func (a *API) attempt(request *http.Request) (*http.Response, error) {
	timeout := attemptTimeout
	if media := request.Header.Get("Content-Type"); media != "" && media != "application/json" {
		timeout = uploadTimeout
	}
	ctx, cancel := context.WithTimeout(request.Context(), timeout)
	defer cancel()
	sent := request.Clone(ctx)
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, fmt.Errorf("making a request: %w", err)
		}
		sent.Body = body
	}
	response, err := a.HTTP.Do(sent)
	if err != nil {
		return nil, a.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return nil, readProblem(response)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("reading the response of the REST API: %w", err)
	}
	if !json.Valid(text) {
		return nil, foreignResponse(response.StatusCode)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, nil
}
