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
	// reachAge is how long an answer of the store counts for those who ask whether
	// it answers.
	reachAge = 2 * time.Second
	// reachTimeout bounds that question.
	reachTimeout = time.Second
)

// Ready says whether the gateway takes webhooks: from the moment on at which it has
// read from the store which connectors there are, until it stops. It stays ready when
// the store goes away, so that callers get the gateway's own 503, which says what to do.
func (g *Gateway) Ready(context.Context) error {
	if !g.ingress.Ready() {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotConnected,
			"The store has not told yet which connectors there are.")
	}
	if g.stopping.Load() {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStopping, "The gateway is stopping.")
	}
	return nil
}

// dispatchReady says whether the internal port is of use to runners: a gateway
// without its store has nothing to say to them, and another replica may.
func (g *Gateway) dispatchReady(context.Context) error {
	if g.reach.check() != nil {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStoreUnavailable, "The store does not answer this gateway.")
	}
	return nil
}

// reach knows whether the store answers. It asks rarely, however often it is asked
// itself.
type reach struct {
	ping func(context.Context) error
	now  func() time.Time

	mutex sync.Mutex
	asked time.Time
	err   error
}

// check says why the store did not answer when it was asked last; nil: it did.
func (r *reach) check() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.asked.IsZero() || r.now().Sub(r.asked) >= reachAge {
		ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
		defer cancel()
		r.err, r.asked = r.ping(ctx), r.now()
	}
	return r.err
}

// withHealth answers /healthz while the process works and /readyz as ready says.
func withHealth(next http.Handler, ready probe.Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	probe.Register(mux, ready)
	return mux
}
