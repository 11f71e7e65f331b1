// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/store"
)

// Classes of what goes wrong with attempts.
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
	// classConnector: the connector cannot be sent with as it is.
	classConnector = "connector"
	// classPlatform: the platform could not send just now.
	classPlatform = "platform"
	// classErased: what was to be sent is not stored any more.
	classErased = "erased"
)

// platformPause is how long a delivery waits that the platform could not send.
const platformPause = 10 * time.Second

// seen is what came of an attempt.
type seen struct {
	status     int
	retryAfter string
	response   string
	class      string // "" with an answer of 2xx
	message    string
	at         time.Time
	took       time.Duration
}

// judge decides what an attempt means for its delivery, the number-th of a schedule.
// random is from 0 to 1: it spreads those that failed together.
func judge(s seen, number int, schedule []time.Duration, now time.Time, random float64) store.Attempt {
	a := store.Attempt{
		At: s.at, Duration: s.took, StatusCode: s.status, ErrorClass: s.class, Error: s.message, Response: s.response, Reason: s.message,
	}
	switch {
	case s.class == "":
		a.Outcome, a.Reason = store.DeliveryDone, ""
	case s.class == classErased:
		a.Outcome = store.DeliveryCancelled
	case s.class == classPlatform: // which is nobody's fault but ours, and ends nothing
		// In whole seconds, so that those which wait alike are recorded at once.
		a.Outcome, a.Wait, a.Free = store.DeliveryRetry, jittered(platformPause, random).Round(time.Second), true
	case s.status == http.StatusGone:
		a.Outcome = store.DeliveryGone
	case s.class == classForbidden, s.class == classConnector, s.status >= 400 && s.status < 500 && !passing(s.status):
		a.Outcome = store.DeliveryFailed
	default:
		a.Down = s.class != classRedirect
		a.Outcome = store.DeliveryRetry
		if number >= len(schedule) {
			a.Outcome, a.Reason = store.DeliveryFailed, fmt.Sprintf("given up after %d attempts: %s", number, s.message)
			return a
		}
		a.Wait = max(jittered(schedule[number], random), retryAfterOf(s.retryAfter, now))
	}
	return a
}

// passing says that a client's error may be another one the next time.
func passing(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}

// jittered is up to a fifth less or more.
func jittered(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*random))
}

// retryAfterOf reads a Retry-After: seconds, or a date.
func retryAfterOf(header string, now time.Time) time.Duration {
	if header = strings.TrimSpace(header); header == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), outbound.MaxWait)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), outbound.MaxWait)
}
