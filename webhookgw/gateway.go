// SPDX-License-Identifier: Apache-2.0

// Package webhookgw is the gateway: it takes webhooks at its public port, hands
// their runs to runners at its internal one, and does what is due. It never
// talks to Kubernetes.
package webhookgw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/probe"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
	"github.com/agentplatform/agentplatform/webhookgw/ingress"
	"github.com/agentplatform/agentplatform/webhookgw/schedule"
)

// Options configure a Gateway.
type Options struct {
	Store store.Store
	// PublicAddr and InternalAddr are host:port; port 0 takes a free one.
	PublicAddr, InternalAddr string
	// TrustedProxies may say in X-Forwarded-For where a webhook came from.
	TrustedProxies httpserver.Proxies
	// PublicTLS and InternalTLS name the ports' certificates; plain HTTP without.
	PublicTLS, InternalTLS httpserver.TLSFiles
	// Grace is how long open requests may take once the gateway stops; 0 means 25 s.
	Grace time.Duration
	// Farewell is httpserver.Options' of the public port.
	Farewell time.Duration
	// WithTimeout is ingress.Options' of the public port.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
	// Registry takes the gateway's metrics; nil shows them nowhere.
	Registry prometheus.Registerer
	// Logger is where the gateway logs; nil means slog.Default.
	Logger *slog.Logger
}

// Gateway is one replica.
type Gateway struct {
	public, internal *httpserver.Server
	ingress          *ingress.Handler
	dispatch         *dispatch.Handler
	sweeper          *schedule.Sweeper
	stopping         atomic.Bool
	connected        atomic.Bool
	opts             Options
}

// New binds both ports.
func New(opts Options) (*Gateway, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	counted := metrics.NewGateway(opts.Registry)
	g := &Gateway{
		opts: opts,
		ingress: ingress.New(ingress.Options{
			Store: opts.Store, TrustedProxies: opts.TrustedProxies, Metrics: counted, Logger: opts.Logger, WithTimeout: opts.WithTimeout,
		}),
		dispatch: dispatch.New(dispatch.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
		sweeper:  schedule.New(schedule.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
	}
	if opts.Registry != nil {
		if err := opts.Registry.Register(&queueCollector{queue: opts.Store, logger: opts.Logger, now: time.Now}); err != nil {
			return nil, fmt.Errorf("registering the queue's metrics: %w", err)
		}
	}
	var err error
	g.public, err = httpserver.New(httpserver.Options{
		Name: "webhooks", Addr: opts.PublicAddr, TLS: opts.PublicTLS, Handler: g.withHealth(g.ingress), Grace: opts.Grace, Farewell: opts.Farewell, Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	g.internal, err = httpserver.New(httpserver.Options{
		Name: "dispatch", Addr: opts.InternalAddr, TLS: opts.InternalTLS, Handler: g.withHealth(g.dispatch), Grace: opts.Grace, Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// PublicAddr and InternalAddr are the bound addresses.
func (g *Gateway) PublicAddr() string   { return g.public.Addr() }
func (g *Gateway) InternalAddr() string { return g.internal.Addr() }

// Run serves until ctx ends. It stops in this order: new webhooks, those that
// wait for an answer, and then the internal port, at which their runs end.
func (g *Gateway) Run(ctx context.Context) error {
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	internal, stopInternal := context.WithCancel(background)
	defer stopBackground()
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return g.ingress.Run(background) })
	group.Go(func() error { return g.dispatch.Run(background) })
	group.Go(func() error { return g.sweeper.Run(failed) })
	group.Go(func() error { return g.internal.Run(internal) })
	group.Go(func() error {
		defer stopBackground()
		err := g.public.Run(failed)
		g.stopping.Store(true)
		stopInternal()
		return err
	})
	err := group.Wait()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return err
}

// Ready says whether the gateway takes webhooks: from the moment on at which the
// store has answered once, until it stops. It stays ready when the store goes
// away, so that callers get the gateway's own 503, which says what to do.
func (g *Gateway) Ready(ctx context.Context) error {
	if !g.connected.Load() {
		if err := g.opts.Store.Ping(ctx); err != nil {
			return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeNotConnected, "The store has not answered yet.")
		}
		g.connected.Store(true)
	}
	if g.stopping.Load() {
		return httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeStopping, "The gateway is stopping.")
	}
	return nil
}

// withHealth answers /healthz while the process works and /readyz as Ready says.
func (g *Gateway) withHealth(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	probe.Register(mux, g.Ready)
	return mux
}
