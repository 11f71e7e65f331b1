// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
)

// Error classes of attempts.
const (
	classDNS       = "dns"
	classRefused   = "refused"
	classReset     = "reset"
	classTimeout   = "timeout"
	classTLS       = "tls"
	classForbidden = "forbidden_address"
	classNetwork   = "network"
	classRedirect  = "redirect"
	classStatus    = "http_status"
	// classConnector means that the configuration of the connector cannot be used.
	classConnector = "connector"
	// classPlatform means that the platform could not send at the moment.
	classPlatform = "platform"
	// classErased means that the contents are no longer stored.
	classErased = "erased"
)

// platformPause is the wait after the platform could not send.
const platformPause = 10 * time.Second

// attemptResult is the result of an attempt.
type attemptResult struct {
	status     int
	retryAfter string
	response   string
	class      string // "" for a 2xx response
	message    string
	at         time.Time
	took       time.Duration
}

// decideAttempt decides about the outcome of an attempt, which has the given number in the schedule. random
// is from 0 to 1 and spreads deliveries that failed together.
func decideAttempt(s attemptResult, number int, schedule []time.Duration, now time.Time, random float64) store.Attempt {
	a := store.Attempt{
		At: s.at, Duration: s.took, StatusCode: s.status, ErrorClass: s.class, Error: s.message, Response: s.response, Reason: s.message,
	}
	switch {
	case s.class == "":
		a.Outcome, a.Reason = store.DeliveryDone, ""
	case s.class == classErased:
		a.Outcome = store.DeliveryCancelled
	case s.class == classPlatform: // our fault, so it ends nothing
		// Whole seconds, so that deliveries with the same wait are recorded together.
		a.Outcome, a.Wait, a.Free = store.DeliveryRetry, addJitter(platformPause, random).Round(time.Second), true
	case s.status == http.StatusGone:
		a.Outcome = store.DeliveryGone
	case s.class == classForbidden, s.class == classConnector, s.status >= 400 && s.status < 500 && !isTemporary(s.status):
		a.Outcome = store.DeliveryFailed
	default:
		a.Down = s.class != classRedirect
		a.Outcome = store.DeliveryRetry
		if number >= len(schedule) {
			a.Outcome, a.Reason = store.DeliveryFailed, fmt.Sprintf("given up after %d attempts: %s", number, s.message)
			return a
		}
		a.Wait = max(addJitter(schedule[number], random), retryAfterOf(s.retryAfter, now))
	}
	return a
}

// isTemporary reports whether a client error may be temporary.
func isTemporary(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}

// addJitter changes a duration by up to a fifth.
func addJitter(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*random))
}

// retryAfterOf parses Retry-After: seconds or a date.
func retryAfterOf(header string, now time.Time) time.Duration {
	if header = strings.TrimSpace(header); header == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), connector.MaxWait)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), connector.MaxWait)
}
