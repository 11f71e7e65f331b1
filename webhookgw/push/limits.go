// SPDX-License-Identifier: Apache-2.0

package push

import (
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

const (
	// maxBody is the most bytes of a body, as of all webhooks.
	maxBody = 16 << 20
	// maxBodies is how many bodies are read at once, of which a project has one part in
	// projectShare.
	maxBodies, projectShare = 256, 4
	// maxStrangers is for how many projects calls may wait of which it is not known whether
	// there are; maxKnown is of how many it is remembered that there were.
	maxStrangers, maxKnown = 64, 50_000
	// idsApart is how long after a reading of the ids of all projects the next one is; maxIDs are
	// read at a time.
	idsApart, maxIDs = 30 * time.Second, 5000
	// batchesApart is how long the store is left alone after each batch of calls.
	batchesApart = 100 * time.Millisecond
	// storeTimeout bounds what is asked of the store for a batch.
	storeTimeout = 5 * time.Second
	// retryAfter is what callers are told that may come again.
	retryAfter = 2 * time.Second
)

// pace is that of bodies, of which nothing is kept: a slot is held for no longer than that.
var pace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 5 * time.Second, Most: 20 * time.Second}

// later is a problem that goes by without anybody's doing.
func later(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = retryAfter
	return p
}

var (
	errMethod = func() httpserver.Problem {
		p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A push webhook takes POST.")
		p.Allow = http.MethodPost
		return p
	}()
	errUnknown = httpserver.NewProblem(http.StatusNotFound, httpserver.CodeWebhookNotFound,
		"No project has this push webhook. Compare the URL with the one that the project shows.")
	errLarge      = httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, "The request is larger than 16 MiB.")
	errSlow       = httpserver.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, "The body did not come in time: send at least 64 KiB a second, and all of it in 20 seconds.")
	errUnreadable = httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body could not be read whole; send the request again.")
	errBusy       = later(http.StatusServiceUnavailable, httpserver.CodeBusy, "Too many push webhooks are in progress. Send the request again.")
	errStrangers  = later(http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown,
		"Too many requests for unknown URLs are in progress. If this URL is right, send the request again.")
	errStore = later(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable,
		"The push may not have been recorded. Send the request again. Without it, the push takes effect with the next regular poll of the repository.")
)
