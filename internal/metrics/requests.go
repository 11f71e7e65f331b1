// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// noRoute is the route of requests without a route.
	noRoute = "none"
	// brokenOff is the code of requests without a response.
	brokenOff = "none"
)

// methods are the separate label values.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// requests counts the responses of a router.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newRequests creates the metrics prefix_requests_total and prefix_request_duration_seconds.
func newRequests(registry prometheus.Registerer, prefix, to string) requests {
	with := promauto.With(registry)
	return requests{
		total: with.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_requests_total", Help: "Requests to " + to + " by route, method and HTTP status.",
		}, []string{"route", "method", "code"}),
		duration: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "Duration of requests to " + to + " by route.", Buckets: durations,
		}, []string{"route"}),
	}
}

// countRequests counts the requests to a handler with chi routes and calls then with each status, 0 without
// a response.
func (m requests) countRequests(next http.Handler, then func(status int)) http.Handler {
	routes, _ := next.(chi.Routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, answer, route := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor), chi.NewRouteContext()
		route.Routes = routes // chi fills in the context that it finds
		status := 0
		defer func() {
			if then != nil {
				then(status)
			}
			m.recordRequest(route.RoutePattern(), r.Method, status, time.Since(begin))
		}()
		defer func() { status = answer.Status() }() // also after a panic
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route)))
		if answer.Status() == 0 && r.Context().Err() == nil {
			answer.WriteHeader(http.StatusOK) // like net/http for a handler without a response
		}
	})
}

func (m requests) recordRequest(route, method string, status int, took time.Duration) {
	code := brokenOff
	if status != 0 {
		code = strconv.Itoa(status)
	}
	if route == "" {
		route = noRoute
	}
	m.total.WithLabelValues(route, knownValue(method, methods), code).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}
