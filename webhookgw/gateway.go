// SPDX-License-Identifier: Apache-2.0

// Package webhookgw is the gateway. It accepts webhooks at its public port, dispatches their runs
// to runners at its internal port, and runs scheduled work. It does not use the Kubernetes API.
package webhookgw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/cron"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
	"github.com/agentplatform/agentplatform/webhookgw/housekeeping"
	"github.com/agentplatform/agentplatform/webhookgw/ingress"
	"github.com/agentplatform/agentplatform/webhookgw/push"
	"github.com/agentplatform/agentplatform/webhookgw/replay"
	"github.com/agentplatform/agentplatform/webhookgw/telemetry"
)

// Options configure a Gateway.
type Options struct {
	Store store.Store
	// PublicAddr and InternalAddr are host:port. Port 0 selects a free port.
	PublicAddr, InternalAddr string
	// TrustedProxies has the proxies whose X-Forwarded-For is used. Their connections are closed
	// last when a port has too many.
	TrustedProxies httpserver.Proxies
	// PublicTLS and InternalTLS name the certificates of the ports. Without them a port serves
	// plain HTTP.
	PublicTLS, InternalTLS httpserver.TLSFiles
	// Grace limits how long open requests of the public port, including sync callers, can continue
	// after the gateway stops; 0 means DefaultDrain. The internal port stays open for dispatchGrace
	// longer.
	Grace time.Duration
	// Farewell is the option of httpserver.Options for the public port.
	Farewell time.Duration
	// MaxConnections is the option of httpserver.Options for each port.
	MaxConnections int
	// ReviewBudget is the option of ingress.Options.
	ReviewBudget int64
	// Retention is the option of housekeeping.Options, at least store.MinRetention.
	Retention time.Duration
	// Keys derives and opens the secrets that sign deliveries and that providers sign with. Guard
	// checks the destinations of deliveries and traces; nil allows public addresses only. Without
	// Keys the gateway sends no deliveries, rejects signed webhooks, and exports no traces with
	// headers.
	Keys  Keys
	Guard *egress.Guard
	// Now is the clock for cached store data; nil means time.Now.
	Now func() time.Time
	// WithTimeout is the option of ingress.Options.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
	// Registry registers the gateway's metrics; nil disables them.
	Registry prometheus.Registerer
	// Logger receives the log; nil means slog.Default.
	Logger *slog.Logger
}

const (
	// DefaultDrain is the default time that a stopping gateway waits for the responses of sync
	// callers.
	DefaultDrain = time.Minute
	// dispatchGrace limits how long requests of runners can continue after the last sync caller has
	// left. Runners that wait for a run then connect to another replica.
	dispatchGrace = 5 * time.Second
)

// Keys has the platform's keys.
type Keys interface {
	delivery.Keys
	ingress.Keys
}

// Gateway is one gateway replica.
type Gateway struct {
	public, internal *httpserver.Server
	ingress          *ingress.Handler
	push             *push.Handler
	dispatch         *dispatch.Handler
	sweeper          *housekeeping.Sweeper
	sender           *delivery.Sender // nil without keys
	exporter         *telemetry.Exporter
	ticker           *cron.Ticker
	replayer         *replay.Replayer
	stopping         atomic.Bool
	storeMonitor     *storeMonitor
	opts             Options
}

// New binds both ports. It does not query the store, so the store can still be unavailable.
func New(opts Options) (*Gateway, error) {
	if opts.ReviewBudget < 0 {
		return nil, fmt.Errorf("--review-budget: %d is not a valid number of bytes", opts.ReviewBudget)
	}
	if opts.Retention != 0 && opts.Retention < store.MinRetention {
		return nil, fmt.Errorf("--retention: %s is below the minimum of %s", opts.Retention, store.MinRetention)
	}
	opts = withDefaults(opts)
	counted, runners := metrics.NewGateway(opts.Registry, connector.Modes(connector.Kind.HasCallers)), handoff.NewRunners()
	g := &Gateway{
		opts: opts, storeMonitor: &storeMonitor{ping: opts.Store.Ping, now: opts.Now},
		ingress: ingress.New(ingress.Options{
			Store: opts.Store, TrustedProxies: opts.TrustedProxies, Metrics: counted, Logger: opts.Logger, WithTimeout: opts.WithTimeout,
			Runners: runners, Keys: opts.Keys, Now: opts.Now, ReviewBudget: opts.ReviewBudget,
		}),
		push: push.New(push.Options{
			Store: opts.Store, TrustedProxies: opts.TrustedProxies, Metrics: counted, Logger: opts.Logger, Now: opts.Now,
		}),
		dispatch: dispatch.New(dispatch.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger, Runners: runners}),
		sweeper:  housekeeping.New(housekeeping.Options{Store: opts.Store, Retention: opts.Retention, Metrics: counted, Logger: opts.Logger}),
		replayer: replay.New(replay.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
		exporter: telemetry.New(telemetry.Options{Store: opts.Store, Keys: opts.Keys, Guard: opts.Guard, Metrics: counted, Logger: opts.Logger}),
		ticker:   cron.New(cron.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
	}
	if opts.Keys != nil {
		g.sender = delivery.New(delivery.Options{Store: opts.Store, Keys: opts.Keys, Guard: opts.Guard, Metrics: counted, Logger: opts.Logger})
	}
	if opts.Registry != nil {
		if err := opts.Registry.Register(&queueCollector{queue: opts.Store, logger: opts.Logger, now: time.Now}); err != nil {
			return nil, fmt.Errorf("registering the queue's metrics: %w", err)
		}
	}
	var err error
	g.public, err = httpserver.New(httpserver.Options{
		Name: "webhooks", Addr: opts.PublicAddr, TLS: opts.PublicTLS, Handler: withHealth(g.webhooks(), g.Ready),
		Grace: opts.Grace, Farewell: opts.Farewell, MaxConnections: opts.MaxConnections, TrustedProxies: opts.TrustedProxies,
		Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	g.internal, err = httpserver.New(httpserver.Options{
		Name: "dispatch", Addr: opts.InternalAddr, TLS: opts.InternalTLS, Handler: withHealth(g.dispatch, g.dispatchReady),
		Grace: dispatchGrace, MaxConnections: opts.MaxConnections, Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// webhooks serves the public port: webhooks of connectors and push webhooks of Git providers.
func (g *Gateway) webhooks() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", g.ingress)
	mux.Handle("/git/", g.push)
	return mux
}

func withDefaults(opts Options) Options {
	if opts.Grace == 0 {
		opts.Grace = DefaultDrain
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Guard == nil {
		opts.Guard = egress.New(egress.Rules{})
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// PublicAddr and InternalAddr return the bound addresses.
func (g *Gateway) PublicAddr() string   { return g.public.Addr() }
func (g *Gateway) InternalAddr() string { return g.internal.Addr() }

// heapFloor is a GC ballast: memory that counts for the garbage collector but is never touched, so
// it only uses address space. The gateway holds little memory and allocates much, so without the
// ballast it would collect garbage dozens of times a second.
const heapFloor = 32 << 20

// Run serves until ctx ends. It stops in this order: new webhooks, sync callers, then the internal
// port, because runners report the results for sync callers there.
func (g *Gateway) Run(ctx context.Context) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	internal, stopInternal := context.WithCancel(background)
	defer stopBackground()
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return g.ingress.Run(background) })
	group.Go(func() error { return g.push.Run(background) })
	group.Go(func() error { return g.dispatch.Run(background) })
	group.Go(func() error { return g.sweeper.Run(failed) })
	if g.sender != nil {
		group.Go(func() error { return g.sender.Run(failed) })
	}
	group.Go(func() error { return g.exporter.Run(failed) })
	group.Go(func() error { return g.ticker.Run(failed) })
	group.Go(func() error { return g.replayer.Run(failed) })
	var ports sync.WaitGroup // until both ports are closed, webhooks are committed and runs end
	ports.Add(2)
	group.Go(func() error {
		defer ports.Done()
		return ignoreClosedRequests(internal, g.internal.Run(internal))
	})
	group.Go(func() error {
		ports.Wait()
		stopBackground()
		return nil
	})
	group.Go(func() error {
		defer ports.Done()
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

// ignoreClosedRequests ignores the error of the internal port if a stop closed the requests of waiting
// runners. These runners connect to another replica.
func ignoreClosedRequests(stopped context.Context, err error) error {
	if stopped.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
