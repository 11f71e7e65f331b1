// SPDX-License-Identifier: Apache-2.0

// Package probe answers the kubelet: /healthz while the process works at all, so
// that it is only restarted where that helps, and /readyz while it does what it is
// there for.
package probe

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Check says why a process is not ready; nil: it is.
type Check func(ctx context.Context) error

// Register adds both paths to a mux.
func Register(mux *http.ServeMux, ready Check) {
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		err := ready(r.Context())
		var problem httpserver.Problem
		switch {
		case err == nil:
			w.WriteHeader(http.StatusOK)
		case errors.As(err, &problem):
			httpserver.WriteProblem(w, problem)
		default:
			httpserver.WriteProblem(w, httpserver.NewProblem(http.StatusServiceUnavailable, codeNotReady, "Not ready: "+err.Error()+"."))
		}
	})
}

const codeNotReady httpserver.Code = "not_ready" // 503: see what the detail says

// errStarting is what a process answers before it has a check.
var errStarting = errors.New("the process is starting")

// Readiness is for a process that knows only some time after its start how to tell
// whether it is ready. The zero value is not ready.
type Readiness struct{ check atomic.Pointer[Check] }

// Set makes check the one that is asked from now on.
func (r *Readiness) Set(check Check) { r.check.Store(&check) }

// Check asks.
func (r *Readiness) Check(ctx context.Context) error {
	if check := r.check.Load(); check != nil {
		return (*check)(ctx)
	}
	return errStarting
}
