// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/store"
)

const internalDetail = "something went wrong inside the service; try again, and tell its operator if it stays"

// retryAfter is when to come back after 503, in seconds.
const retryAfter = "2"

// Problem is what every error answers, after RFC 9457.
type Problem struct {
	Title  string `json:"title" doc:"What the status means."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What is wrong, for a person."`
	Code   string `json:"code" doc:"What is wrong, for a program."`
	// Errors are the fields that are wrong; [] unless the status is 422.
	Errors []FieldError `json:"errors" nullable:"false" doc:"The fields that are wrong."`
}

// FieldError is one wrong field. It never repeats the value.
type FieldError struct {
	Location string `json:"location" doc:"Where: body.name, query.limit, path.run_id."`
	Message  string `json:"message" doc:"What is wrong with it."`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes JSON the media type of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// problem makes a problem whose code is made of the status: not_found.
func problem(status int, detail string) *Problem {
	title := http.StatusText(status)
	if detail == "" {
		detail = title
	}
	code := strings.ReplaceAll(strings.ToLower(title), " ", "_")
	return &Problem{Title: title, Status: status, Detail: detail, Code: code, Errors: []FieldError{}}
}

// notFound is the answer for what is not in this project.
func notFound(kind string) *Problem {
	return problem(http.StatusNotFound, "this project has no such "+kind)
}

// invalid is the answer for fields that are wrong.
func invalid(fields ...FieldError) *Problem {
	p := problem(http.StatusUnprocessableEntity, "the request is not valid")
	if len(fields) > 0 {
		p.Errors = fields
		p.Detail = "the request is not valid: " + fields[0].Location + ": " + fields[0].Message
	}
	return p
}

// modelOnce guards huma's one error constructor.
var modelOnce sync.Once

// replaceErrorModel makes huma's own errors problems of ours.
func replaceErrorModel() {
	modelOnce.Do(func() {
		huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
			if status != http.StatusUnprocessableEntity {
				return problem(status, message)
			}
			fields := make([]FieldError, 0, len(errs))
			for _, err := range errs {
				var detailer huma.ErrorDetailer
				if errors.As(err, &detailer) {
					d := detailer.ErrorDetail()
					fields = append(fields, FieldError{Location: d.Location, Message: d.Message})
				}
			}
			return invalid(fields...)
		}
	})
}

// asProblem is what a caller sees of an error; what it must not see is logged.
func (s *Server) asProblem(ctx context.Context, err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, store.ErrNotFound):
		return notFound("object")
	case apierrors.IsInvalid(err):
		return invalid(causes(err)...)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return problem(http.StatusConflict, "somebody else changed this at the same time; try again")
	case ctx.Err() != nil:
		return problem(http.StatusServiceUnavailable, "the request was given up")
	case lacksKey(err):
		s.logger.ErrorContext(ctx, "a key of the platform is not there yet", "error", err)
		return problem(http.StatusServiceUnavailable, "a key of the platform is being brought into use; try again in a minute")
	}
	s.logger.ErrorContext(ctx, "a request failed", "error", err)
	return problem(http.StatusInternalServerError, internalDetail)
}

// lacksKey says that a key is known to the store and not yet to this process, or
// that none is in use yet.
func lacksKey(err error) bool {
	var missing *keyring.MissingError
	return errors.As(err, &missing) || errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoCurrentKey)
}

// causes are the rules of the object's definition that were broken. The
// messages of Kubernetes repeat the value before the rule; that part goes.
func causes(err error) []FieldError {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return []FieldError{{Location: "body", Message: "was refused"}}
	}
	var out []FieldError
	for _, c := range status.Status().Details.Causes {
		message := c.Message
		if i := strings.LastIndex(message, `": `); i >= 0 {
			message = message[i+len(`": `):]
		}
		out = append(out, FieldError{Location: "body", Message: message})
	}
	return out
}

// writeProblem answers outside of huma.
func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryAfter)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
