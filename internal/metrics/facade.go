// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// refusals are the reasons for which the facade refuses a caller, by status.
var refusals = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusTooManyRequests: "rate_limited",
}

// Facade is what the REST facade counts.
type Facade struct {
	requests requests
	refused  counters
	lookups  counters
}

// NewFacade registers the facade's metrics; nil registers them nowhere.
func NewFacade(registry prometheus.Registerer) *Facade {
	return &Facade{
		requests: newRequests(registry, "agentplatform_api", "the REST facade"),
		refused: newCounters(registry, "agentplatform_api_refused_requests_total",
			"Requests to the REST facade that were refused for who sent them or how many, by reason.",
			"reason", "unauthorized", "forbidden", "rate_limited"),
		lookups: newCounters(registry, "agentplatform_api_key_lookups_total",
			"Questions to Kubernetes for API keys that the facade's cache did not know, one a watched namespace, by whether it answered.",
			"outcome", "answered", "failed"),
	}
}

// Count counts the requests to the facade's handler.
func (f *Facade) Count(next http.Handler) http.Handler {
	return f.requests.count(next, func(status int) {
		if reason, refused := refusals[status]; refused {
			f.refused.of(reason).Inc()
		}
	})
}

// LookedUp counts a question to Kubernetes for an API key.
func (f *Facade) LookedUp(err error) {
	if err != nil {
		f.lookups.of("failed").Inc()
		return
	}
	f.lookups.of("answered").Inc()
}
