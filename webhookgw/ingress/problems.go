// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// temporaryProblem returns an error response for a temporary condition.
func temporaryProblem(status int, code httpserver.Code, detail string) httpserver.Problem {
	p := httpserver.NewProblem(status, code, detail)
	p.RetryAfter = retryAfter
	return p
}

var (
	errManyWait = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Too many requests of the project wait to be recorded. Send the request again.")
	errAllWait = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Too many requests wait to be recorded. Send the request again.")
	errManyWrong = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWrong,
		"Too many requests to this connector have a wrong secret or signature, including this one. Requests with the correct secret or signature are always accepted.")
	errManyUnverified = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyUnverified,
		"Too many bytes without a valid signature were sent to this connector. Send the request again.")
	errSecretChanged = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeSecretChanged,
		"The connector's secret changed while this request arrived. Send it again.")
	errKeyring = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeKeyring,
		"The gateway cannot read the signing secret of this connector yet. Send the request again.")
	errUnspooled = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway cannot buffer the request to verify its signature. Send it again.")
	errManyIncoming = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Too many requests of the project are arriving. Send the request again.")
	errAllIncoming = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Too many requests are arriving. Send the request again.")
	errManyBodies = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyLargeBodies,
		"Too many requests of the project with more than 64 KiB are in progress. Send the request again.")
	errAllBodies = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Too many requests with more than 64 KiB are in progress. Send the request again.")
	errManyCallers = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"Too many callers wait for the project's agents. Send the request again, or with `Prefer: respond-async`.")
	errAllCallers = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyCallers,
		"Too many callers wait for agents. Send the request again, or with `Prefer: respond-async`.")
)

// writeProblem writes an error response. It counts callers with an unknown URL or a wrong secret by their
// address.
func (h *Handler) writeProblem(w http.ResponseWriter, r *http.Request, p httpserver.Problem) {
	if key, err := connectorOf(r); p.Status == http.StatusUnauthorized && (err != nil || !h.wrongs.countWrong(key)) {
		p = errManyWrong
	}
	if p.Status == http.StatusNotFound || p.Status == http.StatusUnauthorized || p.Code == httpserver.CodeTooManyWrong {
		h.refusals.Add(h.opts.TrustedProxies.Client(r), string(p.Code))
	}
	h.opts.Metrics.Refused(p.Code)
	h.recordRejection(r, p)
	httpserver.WriteProblem(w, p)
}

// recordRejection records a rejected request for the owners of the connector, if the connector exists.
func (h *Handler) recordRejection(r *http.Request, p httpserver.Problem) {
	if key, err := connectorOf(r); err == nil && p.Code != httpserver.CodeWebhookNotFound && h.routes.isKnown(key) {
		h.rejections.addRejection(key, sampleOf(r, p, h.opts.TrustedProxies))
	}
}
