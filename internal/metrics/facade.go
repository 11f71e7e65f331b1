// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// refusals are the reasons for rejecting a caller, by status.
var refusals = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusTooManyRequests: "rate_limited",
}

// Facade are the metrics of the REST facade.
type Facade struct {
	requests requests
	refused  counters
	lookups  counters
}

// NewFacade registers the facade's metrics; nil registers none.
func NewFacade(registry prometheus.Registerer) *Facade {
	return &Facade{
		requests: newRequests(registry, "agentplatform_api", "the REST facade"),
		refused: newCounters(registry, "agentplatform_api_refused_requests_total",
			"REST requests that were rejected by authentication, authorization or rate limits, by reason.",
			"reason", "unauthorized", "forbidden", "rate_limited"),
		lookups: newCounters(registry, "agentplatform_api_key_lookups_total",
			"Lookups of API keys in Kubernetes after a cache miss, one per watched namespace, by outcome.",
			"outcome", "answered", "failed"),
	}
}

// Count counts requests to the facade's handler.
func (f *Facade) Count(next http.Handler) http.Handler {
	return f.requests.countRequests(next, func(status int) {
		if reason, refused := refusals[status]; refused {
			f.refused.counterOf(reason).Inc()
		}
	})
}

// LookedUp counts an access review for an API key.
func (f *Facade) LookedUp(err error) {
	if err != nil {
		f.lookups.counterOf("failed").Inc()
		return
	}
	f.lookups.counterOf("answered").Inc()
}
