// SPDX-License-Identifier: Apache-2.0

// Package httpserver contains the shared parts of all HTTP servers of the platform: start, drain,
// stop and error responses.
package httpserver

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// ProblemType is the media type of all error responses.
const ProblemType = "application/problem+json"

// Problem is the body of all error responses (RFC 9457).
type Problem struct {
	Title  string `json:"title" doc:"Meaning of the status." example:"Not Found"`
	Status int    `json:"status" doc:"The HTTP status." minimum:"400" maximum:"599" example:"404"`
	// Detail is never empty and never contains a secret.
	Detail string `json:"detail" doc:"The problem and the remedy, for people." example:"this project has no such connector"`
	Code   Code   `json:"code" doc:"The problem, for programs. Codes never change." example:"not_found"`
	Errors Fields `json:"errors" doc:"The invalid fields; empty unless the status is 422."`
	// RunID is the run that continues after the timeout of a sync webhook.
	RunID string `json:"run_id,omitempty" hidden:"true"`
	// RetryAfter is sent as a header, in whole seconds.
	RetryAfter time.Duration `json:"-"`
	// Allow is sent as a header.
	Allow string `json:"-"`
}

// Fields are the invalid fields. In JSON it is always a list.
type Fields []FieldError

// MarshalJSON encodes the list, [] if it is empty.
func (f Fields) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]FieldError(f))
}

// FieldError is an invalid field. It never repeats the value.
type FieldError struct {
	Location string `json:"location" doc:"Location of the field: in the body, the query, the path or a header." example:"body.name"`
	Message  string `json:"message" doc:"The problem of the field; never its value." example:"must have 1 to 63 characters"`
}

// Doc describes the type.
func (FieldError) Doc() string { return "A field that is wrong." }

// Doc describes the type.
func (Problem) Doc() string { return "The response of every failed call (RFC 9457)." }

// Error returns the detail.
func (p Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p Problem) GetStatus() int { return p.Status }

// ContentType returns the media type for all clients.
func (p Problem) ContentType(string) string { return ProblemType }

// GetHeaders returns the headers of the problem, for huma.
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

// WholeSeconds rounds up, so that a client that waits this long has waited long enough.
func WholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// NewProblem sets the title.
func NewProblem(status int, code Code, detail string) Problem {
	return Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// WriteProblem responds with a problem. If only this process has the problem, it closes the
// connection, on HTTP/2 after the other requests. The client's next connection may reach another
// replica.
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
	encodeBody(w, p)
}

// WriteJSON responds with a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encodeBody(w, body)
}

// encodeBody writes the body. It ignores the error of a disconnected client.
func encodeBody(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		slog.Debug("writing an answer", "error", err)
	}
}
