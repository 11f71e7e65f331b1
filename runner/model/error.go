// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Codes lists the codes of an Error. The metrics count failed requests by them.
var Codes = []runerror.Code{
	runerror.ModelUnknownProvider, runerror.ModelUnavailable, runerror.ModelTimeout, runerror.ModelRateLimited,
	runerror.ModelRequestRejected, runerror.ModelUnauthorized, runerror.ModelAnswerInvalid, runerror.ModelAddressForbidden,
}

// Error is a failed model request. The project can read its message, which can contain text of the
// provider but no key.
type Error struct {
	Code    runerror.Code
	Message string
	// Retryable is true if the same request can succeed later.
	Retryable bool
	// RetryAfter is the pause that the provider requests, or 0.
	RetryAfter time.Duration
	// Usage is the usage of an unusable response, or nil.
	Usage *dispatchapi.TokenUsage
	// ResponseModel is the name of the model in an unusable response; "" without one.
	ResponseModel string
	err           error
}

// Error returns the message with the code.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.err }

// AsError returns the Error in a chain.
func AsError(err error) (*Error, bool) {
	var e *Error
	return e, errors.As(err, &e)
}

// statusError returns the error for an HTTP status. Its message is the provider's, without keys.
func statusError(status int, message string, retryAfter time.Duration) *Error {
	e := &Error{Code: runerror.ModelRequestRejected, Message: fmt.Sprintf("the model answered %d: %s", status, message), RetryAfter: retryAfter}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Code = runerror.ModelUnauthorized
	case status == http.StatusTooManyRequests:
		e.Code, e.Retryable = runerror.ModelRateLimited, true
	case status >= http.StatusInternalServerError || status == http.StatusRequestTimeout || status == http.StatusConflict:
		e.Code, e.Retryable = runerror.ModelUnavailable, true
	}
	return e
}

const (
	redacted = "********"
	// telling is the number of consecutive characters that reveal a part of a key.
	telling = 6
)

var word = regexp.MustCompile("[^\\s\"'`,;:(){}\\[\\]<>]+")

// redactMessage masks words of a provider's message that contain the key or a part of it, or that
// look like a key which the provider has shortened.
func redactMessage(message, key string) string {
	return word.ReplaceAllStringFunc(message, func(w string) string {
		if strings.Contains(w, "**") || strings.Contains(w, "..") && strings.HasPrefix(w, "sk-") || containsKey(w, key) {
			return redacted
		}
		return w
	})
}

// containsKey reports whether a word contains the key, or telling consecutive characters of it.
func containsKey(w, key string) bool {
	if len(key) < telling {
		return key != "" && strings.Contains(w, key)
	}
	for i := 0; i+telling <= len(key); i++ {
		if strings.Contains(w, key[i:i+telling]) {
			return true
		}
	}
	return false
}
