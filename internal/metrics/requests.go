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
	// noRoute is the route of requests that no route takes.
	noRoute = "none"
	// brokenOff is the code of requests whose handler gave no answer.
	brokenOff = "none"
)

// methods are those that are told apart.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// requests count what a router answers.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newRequests names its metrics prefix_requests_total and
// prefix_request_duration_seconds.
func newRequests(registry prometheus.Registerer, prefix, to string) requests {
	with := promauto.With(registry)
	return requests{
		total: with.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_requests_total", Help: "Requests to " + to + ", by route, method and HTTP status.",
		}, []string{"route", "method", "code"}),
		duration: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "How long requests to " + to + " took, by route.", Buckets: durations,
		}, []string{"route"}),
	}
}

// count counts the requests to a handler that routes by chi, and tells then of
// each one's status, 0 where there was no answer.
func (m requests) count(next http.Handler, then func(status int)) http.Handler {
	routes, _ := next.(chi.Routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, answer, route := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor), chi.NewRouteContext()
		route.Routes = routes // which fills in the context that it finds
		status := 0
		defer func() {
			if then != nil {
				then(status)
			}
			m.note(route.RoutePattern(), r.Method, status, time.Since(begin))
		}()
		defer func() { status = answer.Status() }() // also of one that panics
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route)))
		if answer.Status() == 0 && r.Context().Err() == nil {
			answer.WriteHeader(http.StatusOK) // as net/http does for a handler that says nothing
		}
	})
}

func (m requests) note(route, method string, status int, took time.Duration) {
	code := brokenOff
	if status != 0 {
		code = strconv.Itoa(status)
	}
	if route == "" {
		route = noRoute
	}
	m.total.WithLabelValues(route, known(method, methods), code).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}
