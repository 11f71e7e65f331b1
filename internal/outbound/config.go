// SPDX-License-Identifier: Apache-2.0

// Package outbound contains the rules for the configuration of outbound webhooks, for Kubernetes
// objects, the REST API and the files of a repository, and the default values.
package outbound

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// DefaultTimeout is the default limit of an attempt, MaxTimeout the highest limit.
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 60 * time.Second
	// MaxAttempts limits the attempts of a delivery, MaxWait the wait before each of them.
	MaxAttempts = 20
	MaxWait     = 24 * time.Hour
	// MaxURL limits a URL, in bytes.
	MaxURL = 2048
	// MaxHeaders limits the headers of a connector, MaxHeader the bytes of a name and its value,
	// MaxHeaderName the bytes of a name.
	MaxHeaders    = 32
	MaxHeader     = 8 << 10
	MaxHeaderName = 128
)

// DefaultSchedule is the wait before each attempt.
var DefaultSchedule = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour,
}

// Config is the configuration of an outbound webhook in the form of the REST API, without its
// headers, whose values are credentials.
type Config struct {
	URL            string `json:"url"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty"`
	Retry          Retry  `json:"retry,omitzero"`
}

// Retry is the schedule of delivery attempts.
type Retry struct {
	MaxAttempts     int   `json:"max_attempts,omitempty"`
	ScheduleSeconds []int `json:"schedule_seconds,omitempty"`
}

// Field is a field of the configuration, named as in the REST API.
type Field string

// Fields of the configuration.
const (
	FieldURL     Field = "url"
	FieldHeaders Field = "headers"
	FieldTimeout Field = "timeout_seconds"
	FieldRetry   Field = "retry"
)

// Wrong is a field and its problem, which continues the field's name and contains no values.
type Wrong struct {
	Field   Field
	Problem string
}

// Check returns the problems of a configuration.
func (c Config) Check() (wrong []Wrong) {
	if problem := checkURL(c.URL); problem != "" {
		wrong = append(wrong, Wrong{FieldURL, problem})
	}
	if limit := int(MaxTimeout.Seconds()); c.TimeoutSeconds < 0 || c.TimeoutSeconds > limit {
		wrong = append(wrong, Wrong{FieldTimeout, fmt.Sprintf("must be 1 to %d", limit)})
	}
	limit := int(MaxWait.Seconds())
	switch {
	case c.Retry.MaxAttempts < 0, c.Retry.MaxAttempts > MaxAttempts, len(c.Retry.ScheduleSeconds) > MaxAttempts:
		wrong = append(wrong, Wrong{FieldRetry, fmt.Sprintf("must be 1 to %d attempts", MaxAttempts)})
	case slices.ContainsFunc(c.Retry.ScheduleSeconds, func(s int) bool { return s < 0 || s > limit }):
		wrong = append(wrong, Wrong{FieldRetry, fmt.Sprintf("must have waits of at most %d seconds", limit)})
	case len(c.Retry.ScheduleSeconds) > 0 && c.Retry.ScheduleSeconds[0] != 0:
		wrong = append(wrong, Wrong{FieldRetry, "must begin with 0, because the first attempt is immediate"})
	}
	return wrong
}

func checkURL(address string) string {
	if address == "" {
		return "is required for an outbound webhook"
	}
	u, err := url.Parse(address)
	switch {
	case len(address) > MaxURL:
		return fmt.Sprintf("has at most %d characters", MaxURL)
	case err != nil, u.Host == "", u.Hostname() == "", u.Scheme != "https" && u.Scheme != "http":
		return "must be an http or https URL, such as https://example.com/results"
	case u.User != nil:
		return "must not contain a user or a password; send credentials as headers"
	case u.Fragment != "":
		return "must not have a fragment (#…): it would not be sent"
	}
	return ""
}

// reserved are names of headers that a delivery sets itself or that belong to the connection, in
// lower case. A name that ends with a hyphen is a prefix.
var reserved = []string{
	"x-service-", "webhook-", "content-", "proxy-", "host", "connection", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
}

// CheckHeaderName returns the problem of a header name, or "".
func CheckHeaderName(name string) string {
	lower := strings.ToLower(name)
	for _, r := range reserved {
		if lower == r || strings.HasSuffix(r, "-") && strings.HasPrefix(lower, r) {
			return fmt.Sprintf("has the header %q, which the platform sets itself: remove it", name)
		}
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Sprintf("has %q, which is not the name of a header: one has letters, digits and hyphens", name)
	}
	return ""
}

// CheckHeaders returns the problems of headers. It never returns a value.
func CheckHeaders(headers map[string]string) (wrong []Wrong) {
	if len(headers) > MaxHeaders {
		wrong = append(wrong, Wrong{FieldHeaders, fmt.Sprintf("has at most %d headers", MaxHeaders)})
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		problem := CheckHeaderName(name)
		switch canonical := http.CanonicalHeaderKey(name); {
		case problem != "":
		case seen[canonical]:
			problem = fmt.Sprintf("has the header %q twice: header names ignore case", canonical)
		case !httpguts.ValidHeaderFieldValue(headers[name]):
			problem = fmt.Sprintf("has a control character, such as a line break, in the value of %q: remove it", name)
		case len(name) > MaxHeaderName:
			problem = fmt.Sprintf("has %.20q…, which is longer than the %d bytes of a header's name", name, MaxHeaderName)
		case len(name)+len(headers[name]) > MaxHeader:
			problem = fmt.Sprintf("has at most %d bytes in a header: %q is longer", MaxHeader, name)
		default:
			seen[canonical] = true
		}
		if problem != "" {
			wrong = append(wrong, Wrong{FieldHeaders, problem})
		}
	}
	return wrong
}

// Timeout returns the limit of an attempt.
func (c Config) Timeout() time.Duration {
	if c.TimeoutSeconds <= 0 {
		return DefaultTimeout
	}
	return min(time.Duration(c.TimeoutSeconds)*time.Second, MaxTimeout)
}

// Schedule returns the wait before each attempt. The last wait of the connector's schedule repeats.
func (c Config) Schedule() []time.Duration {
	schedule := DefaultSchedule
	if len(c.Retry.ScheduleSeconds) > 0 {
		schedule = nil
		for _, seconds := range c.Retry.ScheduleSeconds {
			schedule = append(schedule, time.Duration(min(max(seconds, 0), int(MaxWait.Seconds())))*time.Second)
		}
	}
	attempts := len(schedule)
	if c.Retry.MaxAttempts > 0 {
		attempts = c.Retry.MaxAttempts
	}
	attempts = min(attempts, MaxAttempts)
	for len(schedule) < attempts {
		schedule = append(schedule[:len(schedule):len(schedule)], schedule[len(schedule)-1])
	}
	return schedule[:attempts]
}
