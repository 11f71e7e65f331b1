// SPDX-License-Identifier: Apache-2.0

// Package httpserver is what all HTTP servers of the platform have in common:
// how they start, drain and stop, and how they say that something is wrong.
package httpserver

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// Problem is the body of every error answer (RFC 9457).
type Problem struct {
	// Title is the text of the status.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Detail says to a person what is wrong and what to do; never empty, never a secret.
	Detail string `json:"detail"`
	// Code is for programs; it does not change once given.
	Code string `json:"code,omitempty"`
	// Errors are the fields that are wrong.
	Errors []FieldError `json:"errors,omitempty"`
	// RunID is the run that goes on behind a timed-out sync webhook.
	RunID string `json:"run_id,omitempty"`
	// RetryAfter is sent as the header of that name, in whole seconds.
	RetryAfter time.Duration `json:"-"`
}

// FieldError is one field that is wrong. Message does not repeat the value.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error makes a Problem an error.
func (p Problem) Error() string { return p.Detail }

// NewProblem fills in the title.
func NewProblem(status int, code, detail string) Problem {
	return Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// WriteProblem answers with a problem.
func WriteProblem(w http.ResponseWriter, p Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	encode(w, p)
}

// WriteJSON answers with a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encode(w, body)
}

// encode writes the body; that the client is gone is no error of ours.
func encode(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		slog.Debug("writing an answer", "error", err)
	}
}
