// SPDX-License-Identifier: Apache-2.0

package restclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// ProblemError is a response that is no success.
type ProblemError struct {
	Problem
	// RetryAfter is when the server accepts the request again, as far as it says so.
	RetryAfter time.Duration
}

// roleDelay explains a permission error that a new role binding can cause.
const roleDelay = " (a new role binding takes effect within half a minute; try again then)"

// Error returns the status, the code and the detail.
func (e *ProblemError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, e.Code)) + ": " + e.Detail
	if e.Code == string(httpserver.CodeForbidden) && strings.Contains(e.Detail, "lacks the permission") {
		text += roleDelay
	}
	return text
}

// isRetriable reports whether the same request may succeed later.
func (e *ProblemError) isRetriable() bool {
	return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests && e.Code != string(httpserver.CodeStorageFull)
}

// IsTransient reports whether a request whose attempts all failed may succeed later: there was no response, or the server failed.
func IsTransient(err error) bool {
	var problem *ProblemError
	if !errors.As(err, &problem) {
		return true
	}
	return problem.isRetriable() || problem.Status >= http.StatusInternalServerError && problem.Status != http.StatusNotImplemented
}

// foreignResponse is the error for a response that is not one of the REST API.
func foreignResponse(status int) *ProblemError {
	return &ProblemError{Problem: Problem{Status: int64(status), Detail: "not a response of the REST API; check the URL of the server"}}
}

// readProblem reads the error of a response that is no success.
func readProblem(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("reading the response of the REST API: %w", err)
	}
	problem := &ProblemError{}
	if json.Unmarshal(text, &problem.Problem) != nil || problem.Detail == "" {
		problem = foreignResponse(response.StatusCode)
	}
	problem.Status = int64(response.StatusCode)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		problem.RetryAfter = time.Duration(seconds) * time.Second
	}
	return problem
}
