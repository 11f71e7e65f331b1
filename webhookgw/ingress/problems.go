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
	errManyWrong = later(http.StatusTooManyRequests, httpserver.CodeTooManyWrong,
		"Too many requests with wrong secrets or signatures have come for this connector, and this one's is wrong too. One that is right is taken at any time.")
	errManyUnverified = later(http.StatusTooManyRequests, httpserver.CodeTooManyUnverified,
		"As much as may comes in for this connector, or came in a moment ago, without a right signature. Send the request again.")
	errSecretChanged = later(http.StatusServiceUnavailable, httpserver.CodeSecretChanged,
		"The connector's secret was changed while this request came in. Send it again.")
	errKeyring = later(http.StatusServiceUnavailable, httpserver.CodeKeyring,
		"The gateway cannot read the secret that signs for this connector yet. Send the request again.")
	errUnspooled = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"The gateway cannot keep the request until its signature is judged. Send it again.")
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

// refuse answers with a problem. Callers who are refused before they are known, for
// the URL or the secret is wrong, are counted by address.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, p httpserver.Problem) {
	if key, err := connectorOf(r); p.Status == http.StatusUnauthorized && (err != nil || !h.wrongs.answered(key)) {
		p = errManyWrong
	}
	if p.Status == http.StatusNotFound || p.Status == http.StatusUnauthorized || p.Code == httpserver.CodeTooManyWrong {
		h.refusals.Add(h.opts.TrustedProxies.Client(r), string(p.Code))
	}
	h.opts.Metrics.Refused(p.Code)
	h.reject(r, p)
	httpserver.WriteProblem(w, p)
}

// reject notes a refusal for those who look after the connector, where there is one.
func (h *Handler) reject(r *http.Request, p httpserver.Problem) {
	if key, err := connectorOf(r); err == nil && p.Code != httpserver.CodeWebhookNotFound && h.routes.knows(key) {
		h.rejections.add(key, sampleOf(r, p, h.opts.TrustedProxies))
	}
}
