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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
	"github.com/agentplatform/agentplatform/webhookgw/dispatch"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
	"github.com/agentplatform/agentplatform/webhookgw/ingress"
	"github.com/agentplatform/agentplatform/webhookgw/push"
	"github.com/agentplatform/agentplatform/webhookgw/schedule"
)

// Options configure a Gateway.
type Options struct {
	Store store.Store
	// PublicAddr and InternalAddr are host:port; port 0 takes a free one.
	PublicAddr, InternalAddr string
	// TrustedProxies may say in X-Forwarded-For where a webhook came from; their
	// connections are the last to be closed where there is no room for more.
	TrustedProxies httpserver.Proxies
	// PublicTLS and InternalTLS name the ports' certificates; plain HTTP without.
	PublicTLS, InternalTLS httpserver.TLSFiles
	// Grace is how long open requests of the public port, those included that wait
	// for an agent's answer, may take once the gateway stops; 0 means DefaultDrain.
	// The internal port goes on for as long, and dispatchGrace longer.
	Grace time.Duration
	// Farewell is httpserver.Options' of the public port.
	Farewell time.Duration
	// MaxConnections is httpserver.Options' of each port.
	MaxConnections int
	// ReviewBudget is ingress.Options'.
	ReviewBudget int64
	// Retention is schedule.Options', store.MinRetention at least.
	Retention time.Duration
	// Keys derive and open what deliveries are signed and sent with, and the secrets that
	// providers sign with; Guard decides where deliveries go. Without Keys nothing is
	// delivered, and nothing taken that is signed.
	Keys  Keys
	Guard *egress.Guard
	// Now is the clock of what is remembered of the store; nil means time.Now.
	Now func() time.Time
	// WithTimeout is ingress.Options' of the public port.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
	// Registry takes the gateway's metrics; nil shows them nowhere.
	Registry prometheus.Registerer
	// Logger is where the gateway logs; nil means slog.Default.
	Logger *slog.Logger
}

const (
	// DefaultDrain is how long a gateway that stops waits for the answers of agents.
	DefaultDrain = time.Minute
	// dispatchGrace is how long requests of runners may take once there is nobody
	// left whom they could answer; those that wait for a run ask another replica.
	dispatchGrace = 5 * time.Second
)

// Keys are the platform's keys.
type Keys interface {
	delivery.Keys
	ingress.Keys
}

// Gateway is one replica.
type Gateway struct {
	public, internal *httpserver.Server
	ingress          *ingress.Handler
	push             *push.Handler
	dispatch         *dispatch.Handler
	sweeper          *schedule.Sweeper
	sender           *delivery.Sender // nil without keys
	ticker           *schedule.Ticker
	replayer         *schedule.Replayer
	stopping         atomic.Bool
	reach            *reach
	opts             Options
}

// New binds both ports. It asks the store nothing: it need not answer yet.
func New(opts Options) (*Gateway, error) {
	if opts.ReviewBudget < 0 {
		return nil, fmt.Errorf("agents cannot be given %d bytes of files", opts.ReviewBudget)
	}
	if opts.Retention != 0 && opts.Retention < store.MinRetention {
		return nil, fmt.Errorf("history is kept for %s at least, not for %s", store.MinRetention, opts.Retention)
	}
	opts = withDefaults(opts)
	counted, runners := metrics.NewGateway(opts.Registry), handoff.NewRunners()
	g := &Gateway{
		opts: opts, reach: &reach{ping: opts.Store.Ping, now: opts.Now},
		ingress: ingress.New(ingress.Options{
			Store: opts.Store, TrustedProxies: opts.TrustedProxies, Metrics: counted, Logger: opts.Logger, WithTimeout: opts.WithTimeout,
			Runners: runners, Keys: opts.Keys, Now: opts.Now, ReviewBudget: opts.ReviewBudget,
		}),
		push: push.New(push.Options{
			Store: opts.Store, TrustedProxies: opts.TrustedProxies, Metrics: counted, Logger: opts.Logger, Now: opts.Now,
		}),
		dispatch: dispatch.New(dispatch.Options{Store: opts.Store, Metrics: counted, Logger: opts.Logger, Runners: runners}),
		sweeper:  schedule.New(schedule.Options{Store: opts.Store, Retention: opts.Retention, Metrics: counted, Logger: opts.Logger}),
		replayer: schedule.NewReplayer(schedule.ReplayerOptions{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
		ticker:   schedule.NewTicker(schedule.TickerOptions{Store: opts.Store, Metrics: counted, Logger: opts.Logger}),
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

// webhooks serves what the public port takes: those of connectors, and of Git providers.
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
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// PublicAddr and InternalAddr are the bound addresses.
func (g *Gateway) PublicAddr() string   { return g.public.Addr() }
func (g *Gateway) InternalAddr() string { return g.internal.Addr() }

// heapFloor is a GC ballast: memory that counts for the garbage collector and is never
// touched, so that it takes address space alone. What a gateway holds is little and what it
// makes is much: it would collect dozens of times a second.
const heapFloor = 32 << 20

// Run serves until ctx ends. It stops in this order: new webhooks, those that
// wait for an answer, and then the internal port, at which their runs end.
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
	group.Go(func() error { return g.ticker.Run(failed) })
	group.Go(func() error { return g.replayer.Run(failed) })
	var ports sync.WaitGroup // until both are closed webhooks are recorded, and runs end
	ports.Add(2)
	group.Go(func() error {
		defer ports.Done()
		return unlessCut(internal, g.internal.Run(internal))
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

// unlessCut is how the internal port ended. A runner that waited for a run and was
// cut off asks another replica: a stop may do that.
func unlessCut(stopped context.Context, err error) error {
	if stopped.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
