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

// ProblemType is the media type of every error answer.
const ProblemType = "application/problem+json"

// Problem is the body of every error answer (RFC 9457).
type Problem struct {
	Title  string `json:"title" doc:"What the status means." example:"Not Found"`
	Status int    `json:"status" doc:"The HTTP status." minimum:"400" maximum:"599" example:"404"`
	// Detail is never empty and never holds a secret.
	Detail string `json:"detail" doc:"What is wrong and what to do, for a person." example:"this project has no such connector"`
	Code   Code   `json:"code" doc:"What is wrong, for a program. It does not change once given." example:"not_found"`
	Errors Fields `json:"errors" doc:"The fields that are wrong; empty unless the status is 422."`
	// RunID is the run that goes on behind a timed-out sync webhook.
	RunID string `json:"run_id,omitempty" hidden:"true"`
	// RetryAfter is sent as the header of that name, in whole seconds.
	RetryAfter time.Duration `json:"-"`
	// Allow is sent as the header of that name.
	Allow string `json:"-"`
}

// Fields are the fields that are wrong; as JSON always a list.
type Fields []FieldError

// MarshalJSON is the list, [] where there is none.
func (f Fields) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]FieldError(f))
}

// FieldError is one field that is wrong. It never repeats the value.
type FieldError struct {
	Location string `json:"location" doc:"Where it is: in the body, the query, the path or a header." example:"body.name"`
	Message  string `json:"message" doc:"What is wrong with it; never the value." example:"must have 1 to 63 characters"`
}

// Error makes a Problem an error.
func (p Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p Problem) GetStatus() int { return p.Status }

// ContentType is the media type, whatever the client prefers.
func (p Problem) ContentType(string) string { return ProblemType }

// GetHeaders are the headers that go with the problem; huma asks for them.
func (p Problem) GetHeaders() http.Header {
	header := http.Header{}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if p.Allow != "" {
		header.Set("Allow", p.Allow)
	}
	if p.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(WholeSeconds(p.RetryAfter)))
	}
	return header
}

// WholeSeconds rounds up, so that whoever waits that long has waited long enough.
func WholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// NewProblem fills in the title.
func NewProblem(status int, code Code, detail string) Problem {
	return Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// WriteProblem answers with a problem. With one of this process alone the connection
// ends, after the other requests on it where it is HTTP/2: whoever comes again by
// another may reach a replica that is better off.
func WriteProblem(w http.ResponseWriter, p Problem) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Set("Cache-Control", "no-store")
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

// encode writes the body; a client that is gone is not an error of ours.
func encode(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		slog.Debug("writing an answer", "error", err)
	}
}
