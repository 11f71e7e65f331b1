// SPDX-License-Identifier: Apache-2.0

package push

import (
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// maxBody is the size limit of a body in bytes, as for all webhooks.
	maxBody = 16 << 20
	// maxBodies limits the bodies that are read at the same time. A project gets at most one of
	// projectShare parts.
	maxBodies, projectShare = 256, 4
	// maxStrangers limits the waiting calls for unknown projects. maxKnown limits the cached IDs of
	// existing projects.
	maxStrangers, maxKnown = 64, 50_000
	// idInterval is the interval between two reads of all project IDs. One query reads maxIDs.
	idInterval, maxIDs = 30 * time.Second, 5000
	// batchInterval is the pause after each batch of calls.
	batchInterval = 100 * time.Millisecond
	// storeTimeout limits the store calls of one batch.
	storeTimeout = 5 * time.Second
	// retryAfter is the Retry-After of temporary errors.
	retryAfter = 2 * time.Second
)

// pace limits the time for reading a body, and so the time that it holds a slot.
var pace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 5 * time.Second, Most: 20 * time.Second}

// temporaryProblem returns an error response for a temporary condition.
func temporaryProblem(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = retryAfter
	return p
}

var (
	errMethod = func() httpserver.Problem {
		p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A push webhook accepts POST only.")
		p.Allow = http.MethodPost
		return p
	}()
	errUnknown = httpserver.NewProblem(http.StatusNotFound, httpserver.CodeWebhookNotFound,
		"No project has this push webhook. Compare the URL with that of the project.")
	errLarge      = httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, "The request is larger than 16 MiB.")
	errSlow       = httpserver.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, "The body did not arrive in time. Send at least 64 KiB a second, and all of it within 20 seconds.")
	errUnreadable = httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body is incomplete. Send the request again.")
	errBusy       = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy, "Too many push webhooks are in progress. Send the request again.")
	errStrangers  = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown,
		"Too many requests for unknown URLs are in progress. If this URL is right, send the request again.")
	errStore = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable,
		"The push may not have been recorded. Send the request again. Without it, the push takes effect with the next regular poll of the repository.")
)
