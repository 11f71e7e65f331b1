// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// later is a problem that goes by without anybody's doing.
func later(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = retryAfter
	return p
}

var (
	errManyWait = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"As many of the project's requests as may be waiting are waiting to be recorded. Send the request again.")
	errAllWait = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests as may be waiting are waiting to be recorded. Send the request again.")
	errManyIncoming = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"As many of the project's requests are coming in as may. Send the request again.")
	errAllIncoming = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests are coming in as may. Send the request again.")
	errManyBodies = later(http.StatusTooManyRequests, httpserver.CodeTooManyLargeBodies,
		"As many of the project's requests with more than 64 KiB are under way as may be. Send the request again.")
	errAllBodies = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"As many requests with more than 64 KiB are under way as may be. Send the request again.")
	errManyCallers = later(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"As many callers wait for the project's agents as may. Send the request again, or with `Prefer: respond-async`.")
	errAllCallers = later(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"As many callers wait for agents as may. Send the request again, or with `Prefer: respond-async`.")
)
