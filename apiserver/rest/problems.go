// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// All servers use the same Problem and FieldError.
type (
	Problem    = httpserver.Problem
	FieldError = httpserver.FieldError
)

const internalDetail = "the service failed; try again, and tell the platform operator if the error persists"

// retryAfter is the Retry-After of 503 responses.
const retryAfter = 2 * time.Second

// NewProblem returns a problem. A 503 has a Retry-After.
func NewProblem(status int, code httpserver.Code, detail string) Problem {
	p := httpserver.NewProblem(status, code, detail)
	if status == http.StatusServiceUnavailable {
		p.RetryAfter = retryAfter
	}
	return p
}

// NotFound is the response for an object that the project does not have.
func NotFound(kind string) Problem {
	return NewProblem(http.StatusNotFound, httpserver.CodeNotFound, "this project has no such "+kind)
}

// Limits of a problem's errors. maxLocation and maxMessage are bytes, because both can contain text of
// the caller.
const (
	maxFieldErrors = 20
	maxLocation    = 100
	maxMessage     = 300
)

// Invalid is the response for invalid fields, ordered by name.
func Invalid(fields ...FieldError) Problem {
	return invalidFields(len(fields), fields[:min(len(fields), maxFieldErrors)])
}

// invalidFields responds with the first fields of a number of invalid ones.
func invalidFields(total int, fields []FieldError) Problem {
	p := NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "the request is not valid")
	fields = slices.Clone(fields)
	for i, field := range fields {
		fields[i] = FieldError{Location: excerpt.Of(field.Location, maxLocation, excerpt.Ellipsis), Message: excerpt.Of(field.Message, maxMessage, excerpt.Ellipsis)}
	}
	slices.SortStableFunc(fields, func(a, b FieldError) int { return cmp.Compare(a.Location, b.Location) })
	if p.Errors = fields; len(fields) > 0 {
		p.Detail += ": " + fields[0].Location + ": " + fields[0].Message
	}
	if more := total - len(fields); more > 0 {
		p.Detail += fmt.Sprintf(" (errors has the first %d errors; there are %d more errors)", len(fields), more)
	}
	return p
}

// InvalidField is the response for one invalid field.
func InvalidField(location, message string) Problem {
	return Invalid(FieldError{Location: location, Message: message})
}

// byStatus maps the statuses of huma's own errors to codes.
var byStatus = map[int]httpserver.Code{
	http.StatusRequestTimeout:        httpserver.CodeTimeout,
	http.StatusRequestEntityTooLarge: httpserver.CodeRequestTooLarge,
	http.StatusUnsupportedMediaType:  httpserver.CodeUnsupportedMedia,
}

// modelOnce guards the global configuration of huma.
var modelOnce sync.Once

// ConfigureHuma configures huma: its errors become problems, lists are never null, and field names are
// case-sensitive.
func ConfigureHuma() {
	modelOnce.Do(func() {
		huma.DefaultArrayNullable, huma.ValidateStrictCasing = false, true
		setValidationMessages()
		huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
			var fields []FieldError
			for _, err := range errs[:min(len(errs), maxFieldErrors)] {
				var detailer huma.ErrorDetailer
				if errors.As(err, &detailer) {
					d := detailer.ErrorDetail()
					fields = append(fields, fieldError(d))
				}
			}
			switch status {
			case http.StatusUnprocessableEntity:
				return invalidFields(len(fields)+max(0, len(errs)-maxFieldErrors), fields)
			case http.StatusBadRequest: // the body is missing, or is not JSON
				if len(fields) == 0 {
					fields = append(fields, fieldError(&huma.ErrorDetail{Location: "body", Message: message}))
				}
				return Invalid(fields...)
			}
			code, ok := byStatus[status]
			if !ok {
				return NewProblem(http.StatusInternalServerError, httpserver.CodeInternal, internalDetail)
			}
			for _, field := range fields { // about the whole body
				message = field.Message
			}
			return NewProblem(status, code, message)
		}
	})
}

// requestFields map fields of an object's spec to fields of the request. The longest matching prefix of the rejected
// field counts.
var requestFields = map[string]map[string]string{
	store.KindConnector: { //nolint:gosec // names of fields, no credentials
		"spec":                       "body",
		"spec.environment":           "query.environment_id",
		"spec.displayName":           "body.name",
		"spec.mode":                  "body.mode",
		"spec.enabled":               "body.enabled",
		"spec.webhook.sealedSecret":  "body.config.secret",
		"spec.webhook.sealedHeaders": "body.config.headers",
		"spec.cron.timeZone":         "body.config.timezone",
	},
	store.KindEnvironment: {
		"spec":                           "body",
		"spec.displayName":               "body.name",
		"spec.kind":                      "body.kind",
		"spec.git.branch":                "body.git_branch",
		"spec.variables":                 "body",
		"spec.runner":                    "body.settings.runner",
		"spec.runner.minReplicas":        "body.settings.runner.min_replicas",
		"spec.runner.maxReplicas":        "body.settings.runner.max_replicas",
		"spec.runner.resources.requests": "body.settings.runner.requests",
		"spec.runner.resources.limits":   "body.settings.runner.limits",
	},
	store.KindDeployment: {
		"spec":                   "body",
		"spec.environment":       "query.environment_id",
		"spec.source.git.branch": "body.branch",
		"spec.source.git.commit": "body.commit",
		"spec.skipTests":         "query.skip_tests",
		"spec.activation":        "query.force",
	},
	store.KindConnectorLink: {
		"spec":           "body",
		"spec.connector": "path.connector_id",
		"spec.agent":     "body.agent_name",
	},
}

// causes returns the rules of the object's schema that the object violates, with the fields of the request.
func causes(err error) []FieldError {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []FieldError{{Location: "body", Message: "Kubernetes rejected the object that the request describes"}}
	}
	details := status.Status().Details
	var out []FieldError
	for _, c := range details.Causes {
		out = append(out, FieldError{Location: location(details.Kind, c.Field), Message: ruleOf(c)})
	}
	return out
}

func location(kind, field string) string {
	for path := field; path != ""; {
		if at, ok := requestFields[kind][path]; ok {
			return at
		}
		if at := settingLocation(path); kind == store.KindConnector && at != "" {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return "body"
}

// valued matches a message of Kubernetes that repeats the value before its rule.
var valued = regexp.MustCompile(`^(?:Invalid|Unsupported|Duplicate) value: (?:"(?:[^"\\]|\\.)*"|[^\s"{\[]+): (.+)$`)

// ruleOf returns the rule of a cause without the value.
func ruleOf(c metav1.StatusCause) string {
	if m := valued.FindStringSubmatch(c.Message); m != nil {
		// A schema rule begins with the field of the object; the location names the field of the request.
		return strings.TrimPrefix(m[1], c.Field+" in body ")
	}
	switch c.Type {
	case metav1.CauseTypeFieldValueRequired:
		return messageRequired
	case metav1.CauseTypeTooLong:
		return strings.ToLower(strings.TrimPrefix(c.Message, "Too long: "))
	default:
		return "is not valid"
	}
}
