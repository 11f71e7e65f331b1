// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/probe"
)

const (
	// storeCheckTTL is how long the result of a store check is cached.
	storeCheckTTL = 2 * time.Second
	// storeCheckTimeout limits a store check.
	storeCheckTimeout = time.Second
)

// Ready reports whether the gateway accepts webhooks: after it has read the connectors from the
// store once, until it stops. It stays ready while the store is unavailable, so that callers get
// the gateway's own 503 with a useful message.
func (g *Gateway) Ready(context.Context) error {
	if !g.ingress.Ready() {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotConnected,
			"The connectors have not been read from the store yet.")
	}
	if g.stopping.Load() {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStopping, "The gateway is stopping.")
	}
	return nil
}

// dispatchReady reports whether the internal port can serve runners. Without the store this gateway cannot,
// but another replica may.
func (g *Gateway) dispatchReady(context.Context) error {
	if g.storeMonitor.lastError() != nil {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable, "The store does not answer this gateway.")
	}
	return nil
}

// storeMonitor checks whether the store answers, and caches the result for a short time.
type storeMonitor struct {
	ping func(context.Context) error
	now  func() time.Time

	mutex     sync.Mutex
	checkedAt time.Time
	err       error
}

// lastError returns the error of the last store check, or nil.
func (r *storeMonitor) lastError() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.checkedAt.IsZero() || r.now().Sub(r.checkedAt) >= storeCheckTTL {
		ctx, cancel := context.WithTimeout(context.Background(), storeCheckTimeout)
		defer cancel()
		r.err, r.checkedAt = r.ping(ctx), r.now()
	}
	return r.err
}

// withHealth serves /healthz while the process works, and /readyz as ready reports.
func withHealth(next http.Handler, ready probe.Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	probe.Register(mux, ready)
	return mux
}
