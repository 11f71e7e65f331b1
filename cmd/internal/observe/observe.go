// SPDX-License-Identifier: Apache-2.0

// Package observe serves health and metrics of a process on separate ports.
package observe

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/probe"
)

// none is the address that disables a port.
const none = "0"

// grace is how long an open response may take after the process has ended its work.
const grace = time.Second

// Flags are the addresses.
type Flags struct{ Health, Metrics string }

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Health, "health-addr", none, "address of /healthz and /readyz for the kubelet, such as :8083; 0 disables it")
	flags.StringVar(&f.Metrics, "metrics-addr", none, "address of /metrics for Prometheus, such as :8084; 0 disables it")
}

// Process holds the metrics and the readiness check of a process.
type Process struct {
	Metrics prometheus.Gatherer
	Ready   probe.Check
}

// Run runs work and serves the health and metrics ports from before work begins until work has ended. It returns the error of
// work, or why a port cannot be served.
func (f *Flags) Run(ctx context.Context, p Process, work func(context.Context) error) error {
	servers, err := f.servers(p)
	if err != nil {
		return err
	}
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group errgroup.Group
	for _, server := range servers {
		group.Go(func() error {
			err := server.Run(answering)
			if answering.Err() != nil {
				return nil // an answer that was cut off is no failure of the process
			}
			cancel(err)
			return err
		})
	}
	err = work(working)
	stop()
	return errors.Join(err, group.Wait())
}

func (f *Flags) servers(p Process) (servers []*httpserver.Server, err error) {
	health := http.NewServeMux()
	probe.Register(health, p.Ready)
	for _, port := range []struct {
		name, addr string
		handler    http.Handler
	}{{"health", f.Health, health}, {"metrics", f.Metrics, metrics.Handler(p.Metrics)}} {
		if port.addr == none || port.addr == "" {
			continue
		}
		server, err := httpserver.New(httpserver.Options{
			Name: port.name, Addr: port.addr, Handler: port.handler, Grace: grace, Logger: slog.Default(),
		})
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}
