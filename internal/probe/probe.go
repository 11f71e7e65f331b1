// SPDX-License-Identifier: Apache-2.0

// Package probe serves the probes of the kubelet: /healthz while the process works, so that a
// restart happens only if it helps, and /readyz while the process is ready.
package probe

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Check returns the reason why a process is not ready, or nil.
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

const codeNotReady httpserver.Code = "not_ready" // 503: the detail has the reason

// errStarting is the reason before the process has a check.
var errStarting = errors.New("the process is starting")

// Readiness is the check of a process that gets its check some time after its start. The zero value
// is not ready.
type Readiness struct{ check atomic.Pointer[Check] }

// Set replaces the check.
func (r *Readiness) Set(check Check) { r.check.Store(&check) }

// Check calls the current check.
func (r *Readiness) Check(ctx context.Context) error {
	if check := r.check.Load(); check != nil {
		return (*check)(ctx)
	}
	return errStarting
}
