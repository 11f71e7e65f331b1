// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Codes of errors, for people and for statistics.
const (
	CodeUnknownProvider = "model_provider_unknown"
	CodeUnavailable     = "model_unavailable"
	CodeRateLimited     = "model_rate_limited"
	CodeRejected        = "model_request_rejected"
	CodeUnauthorized    = "model_unauthorized"
	CodeInvalidAnswer   = "model_answer_invalid"
	CodeForbidden       = "model_address_forbidden"
)

// Error is a failed model request. Its message is safe to show.
type Error struct {
	Code    string
	Message string
	// Retryable says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long the provider asks to wait; 0 when it does not say.
	RetryAfter time.Duration
	err        error
}

// Error is the message with the code.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.err }

// AsError finds an Error in a chain.
func AsError(err error) (*Error, bool) {
	var e *Error
	return e, errors.As(err, &e)
}

// statusError is the error of an HTTP status.
func statusError(status int, message string, retryAfter time.Duration) *Error {
	e := &Error{Code: CodeRejected, Message: fmt.Sprintf("the model answered %d: %s", status, message), RetryAfter: retryAfter}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Code = CodeUnauthorized
	case status == http.StatusTooManyRequests:
		e.Code, e.Retryable = CodeRateLimited, true
	case status >= http.StatusInternalServerError || status == http.StatusRequestTimeout || status == http.StatusConflict:
		e.Code, e.Retryable = CodeUnavailable, true
	}
	return e
}
