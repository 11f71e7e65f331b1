// SPDX-License-Identifier: Apache-2.0

package connector

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
	// MaxTimeout is the highest limit of an attempt.
	MaxTimeout = 60 * time.Second
	// MaxAttempts limits the attempts of a delivery, MaxWait the wait before each of them.
	MaxAttempts = 20
	MaxWait     = 24 * time.Hour
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

// checkDelivery checks the settings of an outbound webhook.
func (c Config) checkDelivery() (problems []FieldError) {
	if problem := checkURL(c.URL); problem != "" {
		problems = append(problems, FieldError{"url", problem})
	}
	if t, limit := c.TimeoutSeconds, int(MaxTimeout.Seconds()); t != nil && (*t < 1 || *t > limit) {
		problems = append(problems, FieldError{"timeout_seconds", fmt.Sprintf("must be 1 to %d", limit)})
	}
	if c.Retry != nil {
		if problem := c.Retry.findProblem(); problem != "" {
			problems = append(problems, FieldError{"retry", problem})
		}
	}
	return append(problems, CheckHeaders(c.Headers)...)
}

// findProblem returns the problem of the retries, or "".
func (r Retry) findProblem() string {
	limit := int(MaxWait.Seconds())
	switch {
	case slices.ContainsFunc(r.ScheduleSeconds, func(s int) bool { return s < 0 || s > limit }):
		return fmt.Sprintf("must have waits of at most %d seconds", limit)
	case len(r.ScheduleSeconds) > 0 && r.ScheduleSeconds[0] != 0:
		return "must begin with 0, because the first attempt is immediate"
	}
	return ""
}

func checkURL(address string) string {
	if address == "" {
		return "is required for an outbound webhook"
	}
	u, err := url.Parse(address)
	switch {
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
			return fmt.Sprintf("has the header %.40q, which the platform sets itself: remove it", name)
		}
	}
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Sprintf("has %.40q, which is not the name of a header: one has letters, digits and hyphens", name)
	}
	return ""
}

// CheckHeaders returns the problems of headers. It never returns a value.
func CheckHeaders(headers map[string]string) (problems []FieldError) {
	if len(headers) > MaxHeaders {
		problems = append(problems, FieldError{"headers", fmt.Sprintf("has at most %d headers", MaxHeaders)})
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
			problems = append(problems, FieldError{"headers", problem})
		}
	}
	return problems
}

// AttemptDelays returns the wait before each delivery attempt. The last wait of the connector's schedule repeats.
func (c Config) AttemptDelays() []time.Duration {
	var retry Retry
	if c.Retry != nil {
		retry = *c.Retry
	}
	delays := DefaultSchedule
	if len(retry.ScheduleSeconds) > 0 {
		delays = nil
		for _, seconds := range retry.ScheduleSeconds {
			delays = append(delays, time.Duration(min(max(seconds, 0), int(MaxWait.Seconds())))*time.Second)
		}
	}
	attempts := len(delays)
	if n := retry.MaxAttempts; n != nil && *n > 0 {
		attempts = *n
	}
	attempts = min(attempts, MaxAttempts)
	for len(delays) < attempts {
		delays = append(delays[:len(delays):len(delays)], delays[len(delays)-1])
	}
	return delays[:attempts]
}

// effectiveRetry returns the retries with the defaults of the missing settings.
func (c Config) effectiveRetry() *Retry {
	delays := c.AttemptDelays()
	attempts := len(delays)
	if c.Retry != nil && len(c.Retry.ScheduleSeconds) > 0 {
		delays = delays[:min(attempts, len(c.Retry.ScheduleSeconds))]
	}
	out := &Retry{MaxAttempts: &attempts}
	for _, delay := range delays {
		out.ScheduleSeconds = append(out.ScheduleSeconds, int(delay.Seconds()))
	}
	return out
}
